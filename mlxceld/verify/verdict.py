"""Judges a record: what is as the server says, what is not, what cannot be seen.

Pure functions of recorded values. Every verdict has a name that stays, a state, and a
sentence with the numbers behind it. Where a rule is llama-server's own it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mlxceld.plan import size
from mlxceld.verify.record import Long, Record, Status, Stream

State: TypeAlias = Literal["ok", "WRONG", "unknown"]

LOOKS = 3
"""So many looks at /slots must lie in the time when all streams ran, to blame it."""
AT_ONCE = 0.05
"""An answer came in one piece when its tokens took less than this share of its time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that was looked at."""

    name: str
    state: State
    text: str


def judge(record: Record) -> tuple[Verdict, ...]:
    """All verdicts, in the order in which they are shown."""
    return (
        _overlap(record),
        _view(record),
        _count(record),
        _numbers(record),
        _window(record),
        _over(record),
        _memory(record),
    )


def status(verdicts: Iterable[Verdict]) -> Status:
    """The exit status of verdicts."""
    wrong = any(verdict.state == "WRONG" for verdict in verdicts)
    return Status.WRONG if wrong else Status.GOOD


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """The most spans that hold one moment; one that ends where another begins is not
    beside it."""
    edges = sorted(
        edge for first, end in spans for edge in ((first, 1), (max(first, end), -1))
    )
    most = running = 0
    for _, step in edges:
        running += step
        most = max(most, running)
    return most


def met(stream: Stream, streams: Sequence[Stream]) -> tuple[int, int]:
    """Of how many of the others the end came after this one's first token, and how
    many others there are. Streams that did not end well are not counted."""
    others = [s.span for s in streams if s is not stream]
    ends = [span[1] for span in others if span is not None]
    first = stream.first
    return sum(first is not None and first < end for end in ends), len(ends)


def _overlap(record: Record) -> Verdict:
    """Whether as many streams ran at once as there are slots for."""
    streams, seats = record.streams, record.seen.seats
    failed = [stream for stream in streams if stream.span is None]
    sent = f"{len(streams)} streams" if len(streams) > 1 else "1 stream"
    if failed:
        text = f"{len(failed)} of {sent} failed: {failed[0].error or 'no token came'}"
        fits = record.seen.busy == 0 and seats is not None and len(streams) <= seats
        return Verdict("overlap", "WRONG" if fits else "unknown", text)
    cores = [core for stream in streams if (core := stream.core) is not None]
    most = most_at_once(cores)
    wanted = len(streams) if seats is None else min(len(streams), seats)
    if seats is not None and most > seats:
        text = f"{most} streams ran at once on {seats} slots"
        return Verdict("overlap", "WRONG", text)
    if most == wanted:
        return Verdict("overlap", "ok", f"{most} of {sent} ran at once")
    text = f"{most} of {sent} ran at once, {wanted} should have"
    if _in_one_piece(streams):
        text = "answers come in one piece, not as a stream"
        return Verdict("overlap", "unknown", text)
    if record.seen.busy:
        text += f", but {record.seen.busy} slots were at work for others"
        return Verdict("overlap", "unknown", text)
    if min(end for _, end in cores) <= max(stream.sent for stream in streams):
        text = "the streams were too short to meet; ask for more `--tokens`"
        return Verdict("overlap", "unknown", text)
    return Verdict("overlap", "WRONG", text)


def _in_one_piece(streams: Sequence[Stream]) -> bool:
    for stream in streams:
        if stream.span is not None and len(stream.ticks) > 1:
            first, last = stream.ticks[0], stream.ticks[-1]
            if last - first > AT_ONCE * (last - stream.sent):
                return False
    return True


def _view(record: Record) -> Verdict:
    """Whether /slots shows as many slots at work as there were streams."""
    name = "slots"
    cores = [core for stream in record.streams if (core := stream.core) is not None]
    most = most_at_once(cores)
    if not record.polls:
        why = "/slots tells nothing" if record.seen.listed is None else "no look at it"
        return Verdict(name, "unknown", why)
    shown = max(poll.busy for poll in record.polls)
    text = f"/slots showed {shown} at work at once, {most} streams ran"
    if shown >= most:
        return Verdict(name, "ok", text)
    inside = sum(_during(poll.began, poll.ended, cores, most) for poll in record.polls)
    if inside < LOOKS:
        text += f", and only {inside} looks fell into that time"
        return Verdict(name, "unknown", text)
    return Verdict(name, "WRONG", text)


def _during(
    began: float, ended: float, spans: Sequence[tuple[float, float]], most: int
) -> bool:
    """Whether `most` spans hold the whole time of a look."""
    return sum(first <= began and ended <= end for first, end in spans) >= most


def _count(record: Record) -> Verdict:
    """Whether /props and /slots tell the same number of slots."""
    total, listed = record.seen.slots, record.seen.listed
    if total is None or listed is None:
        silent = "/props" if total is None else "/slots"
        return Verdict("count", "unknown", f"{silent} does not tell how many slots")
    text = f"/props tells {total} slots, /slots lists {listed}"
    return Verdict("count", "ok" if total == listed else "WRONG", text)


def numbers(record: Record) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The five places where the window of a request shows, and what each tells.

    What a request really got stands beside what three routes and a refusal say. A
    place that does not tell has no numbers; slots that agree have one.
    """
    seen, over = record.seen, record.over
    yield "/props", _told(seen.props_ctx)
    yield "/slots", tuple(sorted(set(seen.slots_ctx)))
    yield "/v1/models", _told(seen.models_ctx)
    refused = [one.n_ctx for one in (*record.fills, over) if one is not None]
    yield "refusal", tuple(sorted({n for n in refused if n is not None}))
    got = {n for fill in record.fills if (n := measured(fill)) is not None}
    yield "measured", tuple(sorted(got))


def _told(n: int | None) -> tuple[int, ...]:
    return () if n is None else (n,)


def measured(fill: Long) -> int | None:
    """The tokens that a filling request got; None where its end does not tell.

    The prompt must have been read whole, and the answer must have been stopped by the
    window and not by its own limit or end.
    """
    if fill.error or fill.evaluated != fill.prompt or fill.predicted is None:
        return None
    if fill.stop_type not in ("", "limit") or fill.predicted >= fill.asked:
        return None
    return fill.evaluated + fill.predicted


def _numbers(record: Record) -> Verdict:
    told = {place: found for place, found in numbers(record) if found}
    if len(told) < 2:
        return Verdict("numbers", "unknown", "fewer than two places tell n_ctx")
    if len({n for found in told.values() for n in found}) == 1:
        (n,) = next(iter(told.values()))
        text = f"n_ctx is {n} in {len(told)} of 5 places"
        return Verdict("numbers", "ok", text)
    parts = (f"{place} {_several(found)}" for place, found in told.items())
    return Verdict("numbers", "WRONG", f"n_ctx differs: {', '.join(parts)}")


def _several(found: Sequence[int]) -> str:
    return " and ".join(str(n) for n in found)


def _window(record: Record) -> Verdict:
    """Whether a request can use the whole window, and no more."""
    name, window = "window", record.seen.window
    if not record.fills or window is None:
        return Verdict(name, "unknown", record.skipped or "no window was filled")
    failed = [fill for fill in record.fills if fill.error]
    pool, whole = record.seen.pool, window * len(record.fills)
    if record.at_once and failed and (pool is None or pool < whole):
        text = f"{len(failed)} of {len(record.fills)} windows could not be filled at "
        text += f"once, and slots may share their memory: {failed[0].error}"
        return Verdict(name, "unknown", text)
    found = [_filled(fill, window) for fill in record.fills]
    for state in ("WRONG", "unknown"):
        for verdict in found:
            if verdict.state == state:
                return verdict
    if len(found) > 1:
        where = "at once" if record.at_once else "one after another"
        text = f"{len(found)} requests got {window} tokens each, {where}"
        return Verdict(name, "ok", text)
    return found[0]


def _filled(fill: Long, window: int) -> Verdict:
    name = "window"
    if fill.error:
        text = f"a prompt of {fill.prompt} tokens failed, n_ctx is {window}: "
        return Verdict(name, "WRONG", text + fill.error)
    if fill.evaluated is None or fill.predicted is None:
        return Verdict(name, "unknown", "the answer has no counts of tokens")
    if fill.evaluated < fill.prompt:
        text = f"of a prompt of {fill.prompt} tokens only {fill.evaluated} were read"
        return Verdict(name, "WRONG", text)
    got = measured(fill)
    if got == window:
        return Verdict(name, "ok", f"a request got all of its {window} tokens")
    if got is not None:
        text = f"a request got {got} tokens, n_ctx is {window}"
        return Verdict(name, "WRONG", text)
    if fill.predicted >= fill.asked:
        # A context that is shifted when it is full goes on for ever, as with
        # llama-server's `--context-shift`, and says that text was cut.
        if fill.truncated:
            text = "the context is shifted when it is full, so its end does not show"
            return Verdict(name, "unknown", text)
        text = f"{fill.evaluated + fill.predicted} tokens fitted, n_ctx is {window}"
        return Verdict(name, "WRONG", text)
    return Verdict(name, "unknown", f"the answer ended early ({fill.stop_type})")


def _over(record: Record) -> Verdict:
    """Whether one token too many is refused, as llama-server refuses it: status 400,
    type `exceed_context_size_error`, both numbers, and no stream."""
    name, over, window = "refusal", record.over, record.seen.window
    if over is None or window is None:
        return Verdict(name, "unknown", record.skipped or "no long prompt was sent")
    prompt = f"a prompt of {over.prompt} tokens"
    if not over.error:
        if over.evaluated is not None and over.evaluated < over.prompt:
            text = f"{prompt} was cut to {over.evaluated} without a word"
        else:
            text = f"{prompt} was answered, n_ctx is {window}"
        return Verdict(name, "WRONG", text)
    if over.status == 0:
        return Verdict(name, "WRONG", f"{prompt} ended the connection: {over.error}")
    if over.status == 200:
        text = f"{prompt} was refused inside a stream of status 200: {over.error}"
        return Verdict(name, "WRONG", text)
    if not 400 <= over.status < 500:
        return Verdict(name, "WRONG", f"{prompt} is a failure: {over.error}")
    if over.n_ctx is None:
        return Verdict(name, "unknown", f"{prompt} is refused: {over.error}")
    said = f"HTTP {over.status}, n_prompt_tokens {over.n_prompt}, n_ctx {over.n_ctx}"
    exact = (over.status, over.kind) == (400, "exceed_context_size_error")
    exact = exact and (over.n_prompt, over.n_ctx) == (over.prompt, window)
    state: State = "ok" if exact else "WRONG"
    return Verdict(name, state, f"{prompt} is refused: {said}")


def _memory(record: Record) -> Verdict:
    """Whether keys and values stay within their plan, where the server tells."""
    name = "memory"
    if not record.memory:
        return Verdict(name, "unknown", "the server does not tell")
    plan = record.memory[-1].plan
    first, most = (
        record.memory[0].kv_bytes,
        max(sample.kv_bytes for sample in record.memory),
    )
    text = f"KV memory {_grew(first, most)}, planned {size(plan)}"
    if most > plan:
        return Verdict(name, "WRONG", text)
    live = max(sample.live or 0 for sample in record.memory)
    pool = record.seen.pool
    if pool is not None and live > pool:
        return Verdict(name, "WRONG", f"{live} live tokens in a pool of {pool}")
    return Verdict(name, "ok", text)


def _grew(first: int, most: int) -> str:
    return f"stays {size(first)}" if first == most else f"{size(first)} to {size(most)}"
