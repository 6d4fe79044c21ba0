// Try it: prompts sent side by side, each answer in a column of its own.

import { byId, write } from "./draw.js";
import { ask, events } from "./stream.js";
import { number, say } from "./words.js";

const MOST = 16;
const EXAMPLES = 4;

const tries = [];
let offered = 0;

class Try {
  constructor(index) {
    this.n = index + 1;
    this.example = "";
    this.stop = null;
    this.status = ["", {}];
    this.box = document.createElement("section");
    this.box.className = "try";
    this.name = document.createElement("h3");
    this.name.id = `try-${this.n}`;
    this.box.setAttribute("aria-labelledby", this.name.id);
    this.label = document.createElement("label");
    this.label.htmlFor = `prompt-${this.n}`;
    this.prompt = document.createElement("textarea");
    this.prompt.id = `prompt-${this.n}`;
    this.prompt.rows = 3;
    this.buttons = document.createElement("p");
    this.buttons.className = "row";
    this.sends = document.createElement("button");
    this.stops = document.createElement("button");
    this.sends.type = this.stops.type = "button";
    this.sends.addEventListener("click", () => this.send());
    this.stops.addEventListener("click", () => this.cancel());
    this.stops.disabled = true;
    this.buttons.append(this.sends, this.stops);
    this.told = document.createElement("p");
    this.told.className = "small";
    this.told.setAttribute("role", "status");
    this.answer = document.createElement("div");
    this.answer.className = "answer";
    this.answer.tabIndex = 0;
    this.answer.setAttribute("role", "region");
    this.box.append(
      this.name, this.label, this.prompt, this.buttons, this.told, this.answer,
    );
    this.translate();
  }

  translate() {
    const { n } = this;
    write(this.name, say("try.name", { n }));
    write(this.label, say("try.prompt", { n }));
    write(this.sends, say("try.send", { n }));
    write(this.stops, say("try.stop", { n }));
    this.answer.setAttribute("aria-label", say("try.answer", { n }));
    if (this.prompt.value === this.example) {
      this.example = say(`try.${(n - 1) % EXAMPLES}`);
      this.prompt.value = this.example;
    }
    this.tell(...this.status);
  }

  tell(word, values) {
    this.status = [word, values];
    write(this.told, word ? say(word, values) : "");
  }

  cancel() {
    this.stop?.abort();
  }

  async send() {
    if (this.stop) {
      return;
    }
    this.stop = new AbortController();
    this.sends.disabled = true;
    this.stops.disabled = false;
    this.answer.replaceChildren();
    this.tell("try.waiting", {});
    try {
      await this.run(this.stop.signal);
    } catch (error) {
      const stopped = this.stop.signal.aborted;
      const why = error instanceof Refused ? error.message : say("try.broken");
      this.tell(stopped ? "try.stopped" : "try.failed", { why });
    } finally {
      this.stop = null;
      this.sends.disabled = false;
      this.stops.disabled = true;
    }
  }

  async run(signal) {
    const began = performance.now();
    const response = await ask("v1/chat/completions", {
      method: "POST",
      signal,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        messages: [{ role: "user", content: this.prompt.value }],
        max_tokens: Math.max(1, byId("tokens").valueAsNumber || 128),
        stream: true,
        stream_options: { include_usage: true },
        return_progress: true,
      }),
    });
    if (!response.ok) {
      throw new Refused(await reason(response));
    }
    let first = null;
    let n = 0;
    for await (const data of events(response)) {
      if (data === "[DONE]") {
        break;
      }
      const event = JSON.parse(data);
      if (event.error) {
        throw new Refused(event.error.message);
      }
      n = event.usage?.completion_tokens ?? n;
      const progress = event.prompt_progress;
      if (progress && first === null) {
        this.tell("try.reading", { done: progress.processed, total: progress.total });
      }
      const delta = event.choices?.[0]?.delta ?? {};
      if (delta.reasoning_content || delta.content) {
        if (first === null) {
          first = (performance.now() - began) / 1000;
          this.tell("try.writing", { first: number(first, 2) });
        }
        this.add(delta.reasoning_content, "thought");
        this.add(delta.content, "");
      }
    }
    if (first === null) {
      this.tell("try.empty", {});
      return;
    }
    const took = (performance.now() - began) / 1000 - first;
    const rate = number(took > 0 ? Math.max(0, n - 1) / took : 0, 1);
    this.tell("try.done", { first: number(first, 2), n: number(n), rate });
  }

  // What a model writes is text, whatever it looks like.
  add(text, kind) {
    if (!text) {
      return;
    }
    const follows =
      this.answer.scrollHeight - this.answer.scrollTop - this.answer.clientHeight < 40;
    let last = this.answer.lastElementChild;
    if (!last || last.className !== kind) {
      last = document.createElement("span");
      last.className = kind;
      this.answer.append(last);
    }
    last.append(document.createTextNode(text));
    if (follows) {
      this.answer.scrollTop = this.answer.scrollHeight;
    }
  }
}

class Refused extends Error {}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return String(response.status);
  }
}

// Makes as many columns as are wanted; those that go are cancelled.
function lay(n) {
  while (tries.length > n) {
    const one = tries.pop();
    one.cancel();
    one.box.remove();
  }
  while (tries.length < n) {
    const one = new Try(tries.length);
    tries.push(one);
    byId("tries").append(one.box);
  }
}

// Offers one column a slot. Called with every update: only a change does anything.
export function offer(slots) {
  const most = Math.min(MOST, slots);
  if (most === offered) {
    return;
  }
  offered = most;
  const select = byId("columns");
  const wanted = Math.min(most, tries.length || 4);
  select.replaceChildren();
  for (let n = 1; n <= most; n += 1) {
    const option = document.createElement("option");
    option.value = option.textContent = String(n);
    select.append(option);
  }
  select.value = String(wanted);
  lay(wanted);
}

export function translateTries() {
  tries.forEach((one) => one.translate());
}

byId("columns").addEventListener("change", (event) => lay(Number(event.target.value)));
byId("send-all").addEventListener("click", () => tries.forEach((one) => one.send()));
byId("stop-all").addEventListener("click", () => tries.forEach((one) => one.cancel()));
