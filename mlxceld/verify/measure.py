"""Sends the requests and writes down what comes back; judges nothing.

First a look at the status routes, then streams that are sent together while /slots is
polled, then requests as long as the window: one that fills it and one that is a token
too long. Prompts are ids of one harmless token, so that their length is known exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from mlxceld.problems import Problem, Unreachable
from mlxceld.verify.ask import Answer, Lost, Server, error_of, now, number, plain
from mlxceld.verify.record import Long, Memory, Poll, Record, Seen, Stream

Tell: TypeAlias = Callable[[str], object]
"""Takes a line about how far things are."""

PROMPT = "Count slowly from one to one hundred, and write every number in words."
PROMPT_TOKENS = 32
"""More than any tokenizer makes of it."""
PAUSE = 0.02
"""Seconds between two looks at /slots, at least."""
RARER = 50
"""Looks become rarer with time, so that they never take much of the server's."""
EVERY = 5
"""Looks at /slots for one look at memory."""
SHORT = 0.25
"""Streams that end within so many seconds are sent again, longer."""
ROUNDS = 3
LONGER = 8
ROOM = 8
"""Tokens that a filling prompt leaves free in the window."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What shall be measured."""

    streams: int | None = None
    """How many at once; None for one in every slot."""
    tokens: int = 64
    """Tokens of each stream, fewer where the window is small."""
    fill: Literal["one", "all", "together", "none"] = "one"
    """Which windows are filled to their end."""


def measure(server: Server, wish: Wish, tell: Tell) -> Record:
    """Look at a server. Raises `Unreachable` when there is nothing to judge."""
    try:
        seen, memory = _look(server)
        wanted = wish.streams or seen.seats
        if wanted is None:
            what = "neither /props nor /slots tells how many slots there are"
            hint = "is this its whole address? If it is, give a number: `--streams N`"
            raise _unmeasured(server, what, hint)
        streams, polls, during = _streams(server, seen, wanted, wish.tokens, tell)
        if not any(stream.ticks for stream in streams):
            error = next((s.error for s in streams if s.error), "no token came")
            raise _unmeasured(server, f"no stream was answered: {error}")
        record = Record(server.url, seen, streams, polls, (*memory, *during))
        return _long(server, record, wish, tell)
    except Lost as lost:
        raise server.unreachable(lost) from None


def _unmeasured(server: Server, what: str, hint: str = "") -> Unreachable:
    return Unreachable([Problem(what, server.url, hint)])


def _look(server: Server) -> tuple[Seen, list[Memory]]:
    props = server.get("/props")
    if props.status in (401, 403) and props.error.get("type") != "feature_disabled":
        hint = "give its key with `--api-key-file` or `$LLAMA_API_KEY`"
        raise _unmeasured(server, props.message, hint)
    if props.status == 503:
        raise _unmeasured(server, f"it is not ready: {props.message}")
    told = props.body if props.status == 200 and isinstance(props.body, dict) else {}
    listed = server.get("/slots")
    seats = listed.body if listed.status == 200 else None
    seats = seats if isinstance(seats, list) else None
    models = server.get("/v1/models")
    windows = [number(seat, "n_ctx") for seat in seats or ()]
    seen = Seen(
        slots=number(told, "total_slots"),
        listed=None if seats is None else len(seats),
        props_ctx=number(told, "default_generation_settings", "n_ctx"),
        slots_ctx=tuple(window for window in windows if window is not None),
        models_ctx=number(models.body, "data", 0, "meta", "n_ctx"),
        busy=_busy(seats or ()),
        build=plain(told.get("build_info", "")),
        model=plain(told.get("model_alias", "")),
        mode=plain(told.get("mode", "")),
        pool=number(told, "n_pool"),
    )
    return seen, _memory(props)


def _busy(seats: Sequence[Any]) -> int:
    return sum(isinstance(s, dict) and bool(s.get("is_processing")) for s in seats)


def _memory(props: Answer) -> list[Memory]:
    held, plan = number(props.body, "kv_bytes"), number(props.body, "kv_bytes_plan")
    if held is None or plan is None:
        return []
    return [Memory(held, plan, number(props.body, "n_live_tokens"))]


def _streams(
    server: Server, seen: Seen, wanted: int, tokens: int, tell: Tell
) -> tuple[tuple[Stream, ...], tuple[Poll, ...], list[Memory]]:
    """The last round of streams; rounds that are over too soon say nothing."""
    # Slots may share one window, which then has to hold all of the streams.
    room = tokens * LONGER**ROUNDS
    if seen.window is not None:
        room = max(2, seen.window // wanted - PROMPT_TOKENS)
    tokens = min(tokens, room)
    memory: list[Memory] = []
    for turn in range(ROUNDS):
        together = _Together(server, wanted, tokens, tell)
        polls, during = together.run(watched=seen.listed is not None)
        memory += during
        streams = together.streams
        if turn == ROUNDS - 1 or tokens >= room or not _too_short(streams):
            break
        tokens = min(room, tokens * LONGER)
    return tuple(streams), tuple(polls), memory


def _too_short(streams: Sequence[Stream]) -> bool:
    cores = [core for stream in streams if (core := stream.core) is not None]
    if len(cores) < len(streams):
        return False
    ended = min(end for _, end in cores)
    met = max(first for first, _ in cores) < ended
    return not met and ended - max(stream.sent for stream in streams) < SHORT


@dataclass(slots=True)
class _Together:
    """Streams in threads that are sent at the same moment, and a look at them."""

    server: Server
    wanted: int
    tokens: int
    tell: Tell
    streams: list[Stream] = field(default_factory=list)
    _ticks: list[list[float]] = field(default_factory=list)
    _zero: float = 0.0

    def run(self, *, watched: bool) -> tuple[list[Poll], list[Memory]]:
        """Send them, and poll until all have ended. Raises `Lost`."""
        self.streams = [Stream(index, 0.0) for index in range(self.wanted)]
        self._ticks = [[] for _ in self.streams]
        gate = threading.Barrier(self.wanted, action=self._start)
        threads = [
            threading.Thread(target=self._one, args=(index, gate), daemon=True)
            for index in range(self.wanted)
        ]
        for thread in threads:
            thread.start()
        polls: list[Poll] = []
        memory: list[Memory] = []
        while alive := [thread for thread in threads if thread.is_alive()]:
            if watched and self._zero:
                began = self._now()
                listed = self.server.get("/slots").body
                if isinstance(listed, list):
                    polls.append(Poll(began, self._now(), _busy(listed)))
                if len(polls) % EVERY == 1:
                    memory += _memory(self.server.get("/props"))
            self._say()
            past = self._now() if self._zero else 0.0
            alive[0].join(min(1.0, max(PAUSE, past / RARER)))
        return polls, memory

    def _start(self) -> None:
        self._zero = now()

    def _now(self) -> float:
        return now() - self._zero

    def _say(self) -> None:
        started = sum(bool(ticks) for ticks in self._ticks)
        ended = sum(bool(s.end is not None or s.error) for s in self.streams)
        came = sum(map(len, self._ticks))
        self.tell(
            f"streams: {started} of {self.wanted} have begun, {ended} have ended, "
            f"{came} tokens"
        )

    def _one(self, index: int, gate: threading.Barrier) -> None:
        stream, ticks = Stream(index, 0.0), self._ticks[index]
        body = {
            "prompt": PROMPT,
            "n_predict": self.tokens,
            "ignore_eos": True,
            "temperature": 0,
            "cache_prompt": False,
            "stream": True,
        }

        def send() -> None:
            nonlocal stream
            gate.wait()
            stream = replace(stream, sent=self._now())

        try:
            with self.server.stream("/completion", body, send) as reply:
                if isinstance(reply, Answer):
                    stream = replace(stream, error=reply.message)
                else:
                    stream = self._read(reply, stream, ticks)
        except (Lost, threading.BrokenBarrierError) as lost:
            # Whoever waits at the gate for this one would wait for ever.
            gate.abort()
            text = str(lost) or "another stream was not connected"
            stream = replace(stream, error=text)
        self.streams[index] = replace(stream, ticks=tuple(ticks))

    def _read(
        self, events: Iterator[Any], stream: Stream, ticks: list[float]
    ) -> Stream:
        for event in events:
            error = error_of(event)
            if error:
                return replace(stream, error=plain(error.get("message", "an error")))
            if not isinstance(event, dict):
                continue
            if event.get("stop"):
                return replace(
                    stream,
                    end=self._now(),
                    tokens=number(event, "tokens_predicted"),
                    slot=number(event, "id_slot"),
                )
            if event.get("content") or event.get("tokens"):
                ticks.append(self._now())
        return replace(stream, error="the stream ended before its last event")


def _long(server: Server, record: Record, wish: Wish, tell: Tell) -> Record:
    """The record with the long requests added."""
    window = record.seen.window
    if window is None:
        return replace(record, skipped="no route tells n_ctx")
    token, trouble = _token(server)
    if token is None:
        return replace(record, skipped=f"/tokenize gives no token: {trouble}")
    memory = list(record.memory)
    room = max(1, min(ROOM, window // 2))

    def fill(slot: int | None) -> Long:
        return _send(server, [token] * (window - room), 2 * room, slot, tell)

    at_once = wish.fill == "together"
    fills: list[Long] = []
    if at_once:
        fills = _at_once(fill, len(record.streams))
    else:
        for slot in _filled(record.seen, wish):
            fills.append(fill(slot))
            if memory:
                memory += _memory(server.get("/props"))
    if memory and at_once:
        memory += _memory(server.get("/props"))
    over = _send(server, [token] * (window + 1), 1, None, tell)
    return replace(
        record,
        fills=tuple(fills),
        at_once=at_once,
        over=over,
        memory=tuple(memory),
    )


def _at_once(fill: Callable[[None], Long], wanted: int) -> list[Long]:
    """Fill so many windows at the same time."""
    done: list[Long] = []
    threads = [
        threading.Thread(target=lambda: done.append(fill(None)), daemon=True)
        for _ in range(wanted)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def _filled(seen: Seen, wish: Wish) -> Sequence[int | None]:
    if wish.fill == "all" and seen.seats is not None:
        return range(seen.seats)
    return [] if wish.fill == "none" else [None]


def _token(server: Server) -> tuple[int | None, str]:
    """A token that may stand in a prompt, or why there is none."""
    answer = server.post("/tokenize", {"content": " and so on and so on"})
    tokens = answer.body.get("tokens") if isinstance(answer.body, dict) else None
    found = number(tokens, -1)
    return found, "" if found is not None else answer.message


def _send(
    server: Server, prompt: list[int], asked: int, slot: int | None, tell: Tell
) -> Long:
    """Send a long prompt and read its answer to the end."""
    body: dict[str, Any] = {
        "prompt": prompt,
        "n_predict": asked,
        "ignore_eos": True,
        "temperature": 0,
        "cache_prompt": False,
        "return_progress": True,
        "stream": True,
    }
    if slot is not None:
        body["id_slot"] = slot
    tell(f"long request: {len(prompt)} tokens")
    sent = Long(len(prompt), asked, 0)
    try:
        with server.stream("/completion", body) as reply:
            if isinstance(reply, Answer):
                sent = replace(sent, status=reply.status)
                if reply.status == 200:
                    return _final(sent, reply.body)
                return _failed(sent, reply.error, reply.message)
            sent = replace(sent, status=200)
            for event in reply:
                if error := error_of(event):
                    return _failed(sent, error, plain(error.get("message", "an error")))
                if isinstance(event, dict) and event.get("stop"):
                    return _final(sent, event)
                read = number(event, "prompt_progress", "processed")
                if read is not None:
                    tell(f"long request: {read} of {len(prompt)} tokens are read")
    except Lost as lost:
        return replace(sent, error=str(lost))
    return replace(sent, error="the stream ended before its last event")


def _failed(sent: Long, error: dict[str, Any], message: str) -> Long:
    return replace(
        sent,
        error=message,
        kind=plain(error.get("type", "")),
        n_ctx=number(error, "n_ctx"),
        n_prompt=number(error, "n_prompt_tokens"),
    )


def _final(sent: Long, body: Any) -> Long:
    """The counts of a last event."""
    told = body if isinstance(body, dict) else {}
    return replace(
        sent,
        evaluated=number(told, "tokens_evaluated"),
        predicted=number(told, "tokens_predicted"),
        truncated=bool(told.get("truncated")),
        stop_type=plain(told.get("stop_type", "")),
        slot=number(told, "id_slot"),
    )
