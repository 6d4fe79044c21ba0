// What the page says, in English and Korean. `{name}` stands for a value.

const en = {
  skip: "Skip to Try it",
  language: "Language",
  "lock.why": "This server asks for an API key. It is kept in this page only.",
  "lock.key": "API key",
  "lock.open": "Show",
  "lock.wrong": "The server does not know this key.",
  "state.title": "Engine",
  "state.connecting": "Connecting to the server",
  "state.lost": "The server does not answer; trying again",
  "state.loading": "The model is loading",
  "state.ready": "Ready",
  "state.restarting": "The engine was lost and is starting again",
  "state.draining": "Stopping: running requests may end, new ones are refused",
  "state.sleeping": "Sleeping until the next request",
  "state.waking": "Waking up",
  "state.failed": "The model could not be loaded, or the engine failed",
  "state.stopped": "Stopped",
  "state.progress": "{what}: {done} of {total}",
  "plan.one": "1 slot of {ctx} tokens",
  "plan.shared": "{n} slots share {pool} tokens; one request may use up to {ctx} of them",
  "plan.shared-all": "{n} slots share {pool} tokens; one request may use all of them",
  "plan.split": "{n} slots of {ctx} tokens each, {pool} in all",
  "plan.mode": "{plan} (mode {mode})",
  "flip.what": "{option} is not set, and its default changes from {old} to {new} in version {version}.",
  "flip.now": "Now: {plan}.",
  "flip.then": "Then: {plan}.",
  "flip.write": "Write {option} = {old} to keep today's meaning, or {option} = {new} to adopt the new one now.",
  "slots.title": "Slots",
  "slot.idle": "Slot {id}: idle",
  "slot.held": "Slot {id}: idle, remembers {held} tokens",
  "slot.reading": "Slot {id}: reading, {done} of {prompt} prompt tokens ({cached} cached), room {room}",
  "slot.writing": "Slot {id}: writing, prompt {prompt} ({cached} cached), answer {generated}, room {room}",
  "part.cached": "prompt, cached",
  "part.read": "prompt, read",
  "part.unread": "prompt, to be read",
  "part.generated": "answer",
  "part.held": "remembered",
  "part.room": "room",
  "waiting.none": "No request waits for a slot",
  "waiting.some": "Requests that wait for a slot: {n}",
  "pool.title": "Context pool",
  "pool.live": "Running requests: {n} of {pool} tokens",
  "pool.held": "In reserve, given up when room is needed: {n} tokens",
  "pool.free": "Empty: {n} tokens",
  "pool.evicted": "Memories given up: {evicted}; requests put back for room: {preempted}",
  "pool.saved": "Prompts kept in RAM: {n}, {bytes} of {most}",
  "memory.title": "Memory",
  "memory.now": "In use: {now}, at most so far {peak}",
  "memory.plan": "Planned: {total} (weights {weights}, KV {kv}, one step {work})",
  "memory.kv": "KV memory: {now} of {plan}",
  "memory.limit": "Limit: {limit}",
  "memory.none": "Limit: none",
  "speed.title": "Speed",
  "speed.now": "{n} tokens/s",
  "ttft.title": "Time to first token",
  "ttft.now": "{n} s",
  "ttft.none": "no request yet",
  "plot.span": "The last minute, at most {most}",
  "try.title": "Try it",
  "try.why": "Prompts are sent side by side. Watch them share the slots above.",
  "try.columns": "Requests",
  "try.tokens": "Most tokens",
  "try.send-all": "Send all",
  "try.stop-all": "Stop all",
  "try.name": "Request {n}",
  "try.prompt": "Prompt {n}",
  "try.answer": "Answer {n}",
  "try.send": "Send {n}",
  "try.stop": "Stop {n}",
  "try.waiting": "Waiting for the first token",
  "try.reading": "Reading the prompt: {done} of {total} tokens",
  "try.writing": "First token after {first} s, writing",
  "try.done": "First token after {first} s, {n} tokens, {rate} tokens/s",
  "try.empty": "The answer is empty",
  "try.stopped": "Stopped",
  "try.failed": "Failed: {why}",
  "try.broken": "the connection was lost",
  "try.0": "Tell a short story about a fox and a lighthouse.",
  "try.1": "Explain in plain words how rain comes to be.",
  "try.2": "Write a packing list for three days in the mountains.",
  "try.3": "Name five rivers and one fact about each.",
  "errors.title": "Last errors",
  "errors.none": "None",
  "errors.request": "{time} {route}: {kind} ({status})",
  "errors.stream": "{time} {route}: {kind} (in its stream)",
  "errors.lost": "The engine {how} (started again {n} times)",
  version: "mlxceld {version}",
};

const ko = {
  skip: "바로 써 보기로 건너뛰기",
  language: "언어",
  "lock.why": "이 서버는 API 키를 요구합니다. 키는 이 페이지 안에만 있습니다.",
  "lock.key": "API 키",
  "lock.open": "보기",
  "lock.wrong": "서버가 모르는 키입니다.",
  "state.title": "엔진",
  "state.connecting": "서버에 연결하는 중",
  "state.lost": "서버가 응답하지 않아 다시 시도하는 중",
  "state.loading": "모델을 불러오는 중",
  "state.ready": "준비됨",
  "state.restarting": "엔진이 멈춰 다시 시작하는 중",
  "state.draining": "종료하는 중: 실행 중인 요청은 끝까지 하고 새 요청은 거절합니다",
  "state.sleeping": "다음 요청까지 잠들어 있음",
  "state.waking": "깨어나는 중",
  "state.failed": "모델을 불러올 수 없거나 엔진이 실패했습니다",
  "state.stopped": "멈춤",
  "state.progress": "{what}: {total} 중 {done}",
  "plan.one": "{ctx}토큰 슬롯 1개",
  "plan.shared": "슬롯 {n}개가 {pool}토큰을 함께 쓰며, 요청 하나는 {ctx}토큰까지 쓸 수 있음",
  "plan.shared-all": "슬롯 {n}개가 {pool}토큰을 함께 쓰며, 요청 하나가 모두 쓸 수 있음",
  "plan.split": "{ctx}토큰 슬롯 {n}개, 모두 {pool}토큰",
  "plan.mode": "{plan} (모드 {mode})",
  "flip.what": "{option}이(가) 설정되어 있지 않으며, 기본값이 버전 {version}에서 {old}에서 {new}(으)로 바뀝니다.",
  "flip.now": "지금: {plan}.",
  "flip.then": "그때: {plan}.",
  "flip.write": "지금의 뜻을 지키려면 {option} = {old}, 새 뜻을 미리 쓰려면 {option} = {new}라고 적습니다.",
  "slots.title": "슬롯",
  "slot.idle": "슬롯 {id}: 비어 있음",
  "slot.held": "슬롯 {id}: 쉬는 중, {held}토큰을 기억함",
  "slot.reading": "슬롯 {id}: 읽는 중, 프롬프트 {prompt}토큰 중 {done} (캐시 {cached}), 여유 {room}",
  "slot.writing": "슬롯 {id}: 쓰는 중, 프롬프트 {prompt} (캐시 {cached}), 답변 {generated}, 여유 {room}",
  "part.cached": "프롬프트, 캐시됨",
  "part.read": "프롬프트, 읽음",
  "part.unread": "프롬프트, 읽을 것",
  "part.generated": "답변",
  "part.held": "기억한 것",
  "part.room": "여유",
  "waiting.none": "슬롯을 기다리는 요청 없음",
  "waiting.some": "슬롯을 기다리는 요청: {n}",
  "pool.title": "컨텍스트 풀",
  "pool.live": "실행 중인 요청: {pool}토큰 중 {n}",
  "pool.held": "예비, 자리가 필요하면 내줌: {n}토큰",
  "pool.free": "빈 자리: {n}토큰",
  "pool.evicted": "내준 기억: {evicted}, 자리가 없어 되돌린 요청: {preempted}",
  "pool.saved": "RAM에 둔 프롬프트: {n}개, {most} 중 {bytes}",
  "memory.title": "메모리",
  "memory.now": "사용 중: {now}, 지금까지 최대 {peak}",
  "memory.plan": "계획: {total} (가중치 {weights}, KV {kv}, 한 단계 {work})",
  "memory.kv": "KV 메모리: {plan} 중 {now}",
  "memory.limit": "한도: {limit}",
  "memory.none": "한도: 없음",
  "speed.title": "속도",
  "speed.now": "초당 {n}토큰",
  "ttft.title": "첫 토큰까지 걸린 시간",
  "ttft.now": "{n}초",
  "ttft.none": "아직 요청 없음",
  "plot.span": "지난 1분, 최대 {most}",
  "try.title": "바로 써 보기",
  "try.why": "여러 프롬프트를 나란히 보냅니다. 위에서 슬롯을 나눠 쓰는 모습을 볼 수 있습니다.",
  "try.columns": "요청 수",
  "try.tokens": "최대 토큰 수",
  "try.send-all": "모두 보내기",
  "try.stop-all": "모두 멈추기",
  "try.name": "요청 {n}",
  "try.prompt": "프롬프트 {n}",
  "try.answer": "답변 {n}",
  "try.send": "{n} 보내기",
  "try.stop": "{n} 멈추기",
  "try.waiting": "첫 토큰을 기다리는 중",
  "try.reading": "프롬프트를 읽는 중: {total}토큰 중 {done}",
  "try.writing": "{first}초 만에 첫 토큰, 쓰는 중",
  "try.done": "{first}초 만에 첫 토큰, {n}토큰, 초당 {rate}토큰",
  "try.empty": "답변이 비어 있음",
  "try.stopped": "멈춤",
  "try.failed": "실패: {why}",
  "try.broken": "연결이 끊어졌습니다",
  "try.0": "여우와 등대에 관한 짧은 이야기를 들려줘.",
  "try.1": "비가 어떻게 내리는지 쉬운 말로 설명해 줘.",
  "try.2": "산에서 사흘 지낼 때 필요한 준비물을 적어 줘.",
  "try.3": "강 다섯 개의 이름과 각각의 특징을 하나씩 말해 줘.",
  "errors.title": "최근 오류",
  "errors.none": "없음",
  "errors.request": "{time} {route}: {kind} ({status})",
  "errors.stream": "{time} {route}: {kind} (스트림 도중)",
  "errors.lost": "엔진이 끝남: {how} (다시 시작한 횟수 {n})",
  version: "mlxceld {version}",
};

export const WORDS = { en, ko };

let language = navigator.language.toLowerCase().startsWith("ko") ? "ko" : "en";

export function speak(other) {
  language = other;
}

export function spoken() {
  return language;
}

export function say(word, values = {}) {
  const text = WORDS[language][word];
  return text.replace(/\{([a-z]+)\}/g, (_, name) => String(values[name]));
}

export function number(value, digits = 0) {
  return value.toLocaleString(language, {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${number(value, unit ? 1 : 0)} ${units[unit]}`;
}

export function clock(unixSeconds) {
  return new Date(unixSeconds * 1000).toLocaleTimeString(language);
}
