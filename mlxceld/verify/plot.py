"""Draws when each stream waited and ran, as an SVG that needs nothing beside itself.

One lane for each stream: pale while it waits for its first token, full while it runs, a
line for each token. Below them the slots that /slots showed at work. Colours follow
the reader's choice of light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from mlxceld.verify.record import Record, Stream

WIDTH, LEFT, RIGHT = 760, 84, 24
TOP, LANE, BAR = 44, 26, 16
STEPS = 60
"""Height of the curve of busy slots."""

STYLE = """\
svg{color-scheme:light dark;font:12px system-ui,sans-serif;background:#fff}
text{fill:#222}.axis{stroke:#bbb}.wait{fill:#c9d6e8}.run{fill:#3a6ea5}
.tick{stroke:#fff;stroke-opacity:.5;fill:none}.bad{fill:#b3261e}
.busy{stroke:#3a6ea5;fill:none;stroke-width:2}
@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#ddd}
.axis{stroke:#555}.wait{fill:#34445a}.run{fill:#7fb0e6}.tick{stroke:#16181c}
.bad{fill:#f2b8b5}.busy{stroke:#7fb0e6}}"""


def svg(record: Record) -> str:
    """The timeline of a record."""
    return "\n".join(_drawing(record)) + "\n"


def _drawing(record: Record) -> Iterator[str]:
    lanes = len(record.streams)
    bottom = TOP + lanes * LANE
    height = bottom + (STEPS + 44 if record.polls else 0) + 40
    end = _end(record)
    title = f"{lanes} streams at {record.url}"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title">'
    )
    yield f'<title id="title">{escape(title)}</title>'
    yield f"<style>{STYLE}</style>"
    yield f'<text x="{LEFT}" y="22">{escape(title)}</text>'
    floor = height - 34
    for seconds in _marks(end):
        x = _x(seconds, end)
        yield f'<line class="axis" x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{floor}"/>'
        yield (
            f'<text x="{x}" y="{floor + 18}" text-anchor="middle">{seconds:g} s</text>'
        )
    for index, stream in enumerate(record.streams):
        yield from _lane(stream, TOP + index * LANE, end)
    if record.polls:
        yield from _busy(record, bottom + 24, end)
    yield "</svg>"


def _end(record: Record) -> float:
    """The last moment that is drawn, in seconds."""
    times = [poll.ended for poll in record.polls]
    for stream in record.streams:
        times += [stream.sent, *stream.ticks]
        times += [] if stream.end is None else [stream.end]
    return max(times, default=0.0) or 1.0


def _x(seconds: float, end: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * min(seconds, end) / end, 1)


def _marks(end: float) -> Iterator[float]:
    """Round numbers of seconds, about five of them."""
    size = 10 ** math.floor(math.log10(end / 5))
    step = next(f * size for f in (1, 2, 5, 10) if f * size >= end / 5)
    for index in range(math.floor(end / step) + 1):
        yield round(index * step, 6)


def _lane(stream: Stream, y: int, end: float) -> Iterator[str]:
    slot = "" if stream.slot is None else f" (slot {stream.slot})"
    yield f'<text x="8" y="{y + 13}">{stream.number}{slot}</text>'
    first = stream.first
    last = stream.end
    if last is None:
        last = stream.ticks[-1] if stream.ticks else stream.sent
    begun = last if first is None else first
    yield _rect("wait", stream.sent, begun, y, end, "waits for its first token")
    if first is not None:
        yield _rect("run", first, last, y, end, f"{len(stream.ticks)} tokens")
        path = "".join(f"M{_x(t, end)} {y}v{BAR}" for t in stream.ticks)
        yield f'<path class="tick" d="{path}"/>'
    if stream.error:
        x = min(_x(last, end) + 4, WIDTH - RIGHT - 60)
        error = escape(stream.error)
        yield (
            f'<text class="bad" x="{x}" y="{y + 13}">failed<title>{error}</title>'
            "</text>"
        )


def _rect(kind: str, begin: float, stop: float, y: int, end: float, text: str) -> str:
    x, width = _x(begin, end), round(_x(stop, end) - _x(begin, end), 1)
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{max(width, 0)}" '
        f'height="{BAR}"><title>{begin:.2f} to {stop:.2f} s: {escape(text)}</title>'
        "</rect>"
    )


def _busy(record: Record, y: int, end: float) -> Iterator[str]:
    """How many slots /slots showed at work, as steps."""
    most = max([record.seen.seats or 0, *(poll.busy for poll in record.polls)])
    scale = STEPS / max(most, 1)
    floor = y + STEPS
    yield f'<text x="8" y="{y + 10}">{most} busy</text>'
    yield f'<text x="8" y="{floor}">0</text>'
    path = f"M{_x(0, end)} {floor}"
    for poll in record.polls:
        path += f"H{_x(poll.ended, end)}V{round(floor - poll.busy * scale, 1)}"
    yield f'<path class="busy" d="{path}H{_x(end, end)}"/>'
