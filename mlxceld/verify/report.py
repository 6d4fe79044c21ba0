"""Shows a record and its verdicts: a page for a terminal, and JSON.

The keys of the JSON stay as they are. Nothing is judged here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from mlxceld.verify.record import Record, Stream
from mlxceld.verify.verdict import (
    Verdict,
    measured,
    met,
    most_at_once,
    numbers,
    status,
)

FORMAT = 1
"""Version of the JSON; it changes when a key changes its meaning."""


def text(record: Record, verdicts: Sequence[Verdict]) -> str:
    """The page: the server, the streams, the numbers, the verdicts."""
    return "\n".join(_page(record, verdicts)) + "\n"


def _page(record: Record, verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield _server(record)
    yield ""
    heads = (
        *("stream", "slot", "n_ctx", "sent", "first", "end", "tokens"),
        "before others' ends",
    )
    rows = [_row(stream, record) for stream in record.streams]
    yield from _table(heads, rows)
    for stream in record.streams:
        if stream.error:
            yield f"stream {stream.number}: {stream.error}"
    yield ""
    rows = [(place, _list(found)) for place, found in numbers(record)]
    yield from _table(("n_ctx of", "tokens"), rows)
    yield ""
    wide = max(len(verdict.name) for verdict in verdicts)
    for verdict in verdicts:
        yield f"{verdict.state:<7}  {verdict.name:<{wide}}  {verdict.text}"


def _server(record: Record) -> str:
    seen = record.seen
    parts = [part for part in (seen.build, seen.model) if part]
    if seen.seats is not None:
        parts.append(f"{seen.seats} slots")
    if seen.mode:
        parts.append(f"mode {seen.mode}")
    if seen.pool is not None:
        parts.append(f"pool of {seen.pool} tokens")
    return f"{record.url}: {', '.join(parts)}" if parts else record.url


def _row(stream: Stream, record: Record) -> tuple[str, ...]:
    before, others = met(stream, record.streams)
    return (
        str(stream.number),
        _count(stream.slot),
        _count(_window(stream, record)),
        f"{stream.sent:.2f}",
        _time(stream.first),
        _time(stream.end),
        _count(stream.tokens),
        f"{before} of {others}",
    )


def _window(stream: Stream, record: Record) -> int | None:
    """What /slots tells of the slot that the stream had."""
    told = record.seen.slots_ctx
    slot = stream.slot
    return None if slot is None or slot >= len(told) else told[slot]


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


def _count(n: int | None) -> str:
    return "-" if n is None else str(n)


def _list(found: Sequence[int]) -> str:
    return ", ".join(map(str, found)) or "-"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    columns = list(zip(heads, *rows, strict=True))
    wide = [max(map(len, column)) for column in columns]
    for row in (heads, *rows):
        first = f"{row[0]:<{wide[0]}}"
        rest = (
            f"{cell:>{width}}" for cell, width in zip(row[1:], wide[1:], strict=True)
        )
        yield "  ".join((first, *rest))


def as_json(record: Record, verdicts: Sequence[Verdict]) -> str:
    """Everything that was seen, and the verdicts, as one JSON document."""
    cores = [core for stream in record.streams if (core := stream.core) is not None]
    document = {
        "format": FORMAT,
        "url": record.url,
        "status": int(status(verdicts)),
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "server": asdict(record.seen),
        "most_at_once": most_at_once(cores),
        "most_busy": max((poll.busy for poll in record.polls), default=None),
        "n_ctx": {place: list(found) for place, found in numbers(record)},
        "streams": [
            {
                **asdict(stream),
                "first": stream.first,
                "n_ctx": _window(stream, record),
                "before_ends_of_others": met(stream, record.streams)[0],
            }
            for stream in record.streams
        ],
        "polls": [asdict(poll) for poll in record.polls],
        "memory": [asdict(sample) for sample in record.memory],
        "at_once": record.at_once,
        "fills": [{**asdict(f), "measured": measured(f)} for f in record.fills],
        "over": None if record.over is None else asdict(record.over),
        "skipped": record.skipped,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
