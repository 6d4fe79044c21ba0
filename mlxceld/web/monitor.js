// The monitor: follows the server's stream of updates and shows each.

import { Plot, bar, byId, list, write } from "./draw.js";
import { ask, events, unlock } from "./stream.js";
import { offer, translateTries } from "./try.js";
import { bytes, clock, number, say, speak, spoken } from "./words.js";

const SILENCE = 6000;
const [FIRST_PAUSE, LONGEST_PAUSE] = [500, 5000];

const speed = new Plot(byId("speed-plot"));
const ttft = new Plot(byId("ttft-plot"));

let shown = null; // the last update
let state = "connecting";
let before = []; // counters of the last two seconds, for rates
let firstToken = null; // seconds, the last that is known
let rate = 0;

function planInWords(plan) {
  const values = {
    n: number(plan.slots),
    ctx: number(plan.slot_ctx),
    pool: number(plan.pool),
  };
  let kind = plan.shared ? "shared" : "split";
  if (plan.slots === 1) {
    kind = "one";
  } else if (plan.shared && plan.pool === plan.slot_ctx) {
    kind = "shared-all";
  }
  return say(`plan.${kind}`, values);
}

function showState() {
  const now = shown;
  const element = byId("state");
  element.dataset.state = state;
  write(element, say(`state.${state}`));
  const loading = now && !["ready", "lost"].includes(state) ? now.loading : null;
  byId("loading").hidden = !loading;
  if (loading) {
    showLoading(loading);
  }
}

function showLoading({ doing, done, total }) {
  const progress = byId("loading").querySelector("progress");
  if (total > 0) {
    progress.value = done / total;
    const values = { what: doing, done: bytes(done), total: bytes(total) };
    write(byId("doing"), say("state.progress", values));
  } else {
    progress.removeAttribute("value");
    write(byId("doing"), doing);
  }
}

function showPlan(now) {
  const { plan } = now;
  const values = { plan: plan ? planInWords(plan) : "", mode: plan?.mode };
  write(byId("plan"), plan ? say("plan.mode", values) : "");
  const notes = byId("notes");
  notes.hidden = !plan?.notes.length;
  list(notes, plan?.notes ?? []);
  const flips = byId("flips");
  flips.hidden = !now.flips.length;
  const lines = now.flips.flatMap((flip) => [
    say("flip.what", flip),
    plan ? say("flip.now", { plan: planInWords(plan) }) : "",
    say("flip.then", { plan: flip.plan ? planInWords(flip.plan) : flip.then }),
    say("flip.write", flip),
  ]);
  write(flips, lines.join(" "));
}

function slotInWords(slot, room) {
  if (!slot.busy) {
    return say(slot.held ? "slot.held" : "slot.idle", {
      id: slot.id,
      held: number(slot.held),
    });
  }
  const prompt = slot.cached + slot.read + slot.unread;
  return say(slot.unread ? "slot.reading" : "slot.writing", {
    id: slot.id,
    prompt: number(prompt),
    done: number(slot.cached + slot.read),
    cached: number(slot.cached),
    generated: number(slot.generated),
    room: number(room),
  });
}

function showSlots(now) {
  const slots = now.slots ?? [];
  const element = byId("slots");
  while (element.children.length > slots.length) {
    element.lastElementChild.remove();
  }
  while (element.children.length < slots.length) {
    const item = document.createElement("li");
    const words = document.createElement("div");
    const track = document.createElement("div");
    track.className = "bar";
    track.setAttribute("aria-hidden", "true");
    item.append(words, track);
    element.append(item);
  }
  const ctx = now.plan?.slot_ctx ?? 0;
  slots.forEach((slot, index) => {
    const [words, track] = element.children[index].children;
    const used = slot.cached + slot.read + slot.unread + slot.generated;
    write(words, slotInWords(slot, Math.max(0, ctx - used)));
    const parts = slot.busy
      ? ["cached", "read", "unread", "generated"].map((name) => [name, slot[name]])
      : [["held", slot.held], ["", 0], ["", 0], ["", 0]];
    bar(track, parts, ctx);
  });
  const waiting = now.waiting ?? 0;
  write(
    byId("waiting"),
    waiting ? say("waiting.some", { n: number(waiting) }) : say("waiting.none"),
  );
}

function showPool(now) {
  const { plan, live = 0 } = now;
  const remembered = Math.max(
    0,
    (now.slots ?? []).reduce((sum, slot) => sum + slot.held, 0) - live,
  );
  const free = Math.max(0, plan.pool - live - remembered);
  bar(byId("pool-bar"), [["live", live], ["held", remembered]], plan.pool);
  list(byId("pool"), [
    say("pool.live", { n: number(live), pool: number(plan.pool) }),
    say("pool.held", { n: number(remembered) }),
    say("pool.free", { n: number(free) }),
    say("pool.evicted", {
      evicted: number(now.totals?.evicted ?? 0),
      preempted: number(now.totals?.preempted ?? 0),
    }),
    say("pool.saved", {
      n: number(now.saved_prompts ?? 0),
      bytes: bytes(now.saved_bytes ?? 0),
      most: bytes(plan.cache_ram_bytes),
    }),
  ]);
}

function showMemory(now) {
  const { plan } = now;
  const { active = 0, peak = 0 } = now.memory ?? {};
  const whole = Math.max(plan.total_bytes, active);
  bar(byId("memory-bar"), [["used", active]], whole);
  list(byId("memory"), [
    say("memory.now", { now: bytes(active), peak: bytes(peak) }),
    say("memory.plan", {
      total: bytes(plan.total_bytes),
      weights: bytes(plan.weight_bytes),
      kv: bytes(plan.kv_bytes),
      work: bytes(plan.work_bytes),
    }),
    say("memory.kv", { now: bytes(now.kv_bytes ?? 0), plan: bytes(plan.kv_bytes) }),
    plan.memory_limit === null
      ? say("memory.none")
      : say("memory.limit", { limit: bytes(plan.memory_limit) }),
  ]);
}

// Rates come from the counters of two updates, about two seconds apart.
function measure(ms, now) {
  const predicted = now.totals?.predicted ?? 0;
  const [first, seconds] = now.ttft;
  const last = before.at(-1);
  if (last && (predicted < last.predicted || first < last.first)) {
    before = []; // The engine is a new one, and so are its counters.
  }
  before.push({ ms, predicted, first, seconds });
  while (before.length > 2 && before[1].ms <= ms - 2000) {
    before.shift();
  }
  const then = before[0];
  rate = ms > then.ms ? ((predicted - then.predicted) * 1000) / (ms - then.ms) : 0;
  if (last && first > last.first) {
    firstToken = (seconds - last.seconds) / (first - last.first) / 1000;
  } else if (firstToken === null && first) {
    firstToken = seconds / first / 1000;
  }
  speed.add(ms, rate);
  if (firstToken !== null) {
    ttft.add(ms, firstToken);
  }
}

function showRates() {
  const most = { most: say("speed.now", { n: number(speed.most, 1) }) };
  write(byId("speed"), say("speed.now", { n: number(rate, 1) }));
  write(byId("speed-span"), say("plot.span", most));
  if (firstToken === null) {
    write(byId("ttft"), say("ttft.none"));
    return;
  }
  const longest = { most: say("ttft.now", { n: number(ttft.most, 2) }) };
  write(byId("ttft"), say("ttft.now", { n: number(firstToken, 2) }));
  write(byId("ttft-span"), say("plot.span", longest));
}

function showErrors(now) {
  const lines = [];
  if (now.failure) {
    lines.push(now.failure);
  }
  if (now.lost) {
    lines.push(say("errors.lost", { how: now.lost, n: number(now.restarts) }));
  }
  for (const error of now.errors.toReversed()) {
    const word = error.status < 400 ? "errors.stream" : "errors.request";
    lines.push(say(word, { ...error, time: clock(error.at) }));
  }
  list(byId("errors"), lines.length ? lines : [say("errors.none")]);
}

function show() {
  showState();
  if (!shown) {
    return;
  }
  const now = shown;
  write(byId("model"), now.model);
  write(byId("version"), say("version", now));
  showPlan(now);
  showErrors(now);
  byId("all").classList.toggle("planned", now.plan !== null);
  if (now.plan) {
    showSlots(now);
    showPool(now);
    showMemory(now);
    showRates();
    offer(now.plan.slots);
  }
}

function become(word) {
  state = word;
  showState();
}

function translate() {
  document.documentElement.lang = spoken();
  for (const element of document.querySelectorAll("[data-word]")) {
    write(element, say(element.dataset.word));
  }
  translateTries();
  show();
}

async function askForKey(again) {
  const form = byId("lock");
  form.hidden = false;
  write(byId("lock-wrong"), again ? say("lock.wrong") : "");
  byId("key").focus();
  await new Promise((resolve) => {
    form.addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        unlock(byId("key").value);
        byId("key").value = "";
        resolve();
      },
      { once: true },
    );
  });
}

function visible() {
  return new Promise((resolve) => {
    if (!document.hidden) {
      resolve();
      return;
    }
    document.addEventListener("visibilitychange", () => resolve(), { once: true });
  });
}

// Reads one stream to its end. Gives it up when it falls silent, and while nobody can
// see the page: the server then has nothing to do for it.
async function followOnce(heard) {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(), SILENCE);
  const hide = () => document.hidden && stop.abort();
  document.addEventListener("visibilitychange", hide);
  try {
    const response = await ask("monitor/events", { signal: stop.signal });
    if (response.status === 401) {
      return "locked";
    }
    if (!response.ok) {
      return "lost";
    }
    byId("lock").hidden = true;
    for await (const data of events(response)) {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE);
      const { ms, now } = JSON.parse(data);
      heard();
      shown = now;
      state = now.state;
      measure(ms, now);
      show();
    }
    return "ended";
  } catch {
    return document.hidden ? "hidden" : "lost";
  } finally {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", hide);
  }
}

async function follow() {
  let pause = FIRST_PAUSE;
  let asked = false;
  for (;;) {
    await visible();
    const end = await followOnce(() => {
      pause = FIRST_PAUSE;
      asked = false;
    });
    before = [];
    if (end === "locked") {
      await askForKey(asked);
      asked = true;
    } else if (end !== "hidden") {
      become("lost");
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
  }
}

byId("language").value = spoken();
byId("language").addEventListener("change", (event) => {
  speak(event.target.value);
  translate();
});
translate();
follow();
