"""Tokens per second and memory over the number of rows, as an SVG.

    python -m benchmarks.engine --model 1.2b --out engine.json \\
        --work 1x512 2x512 4x512 8x512 16x512 32x512
    python -m benchmarks.plot engine.json --held 512 --out rows.svg

Reads what engine.py (ours and mlx-lm) and rows.py (ours alone) have written. The same
numbers give the same bytes. The background is part of the picture, so that a page with
dark colours shows it as one with light ones does.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 920, 420
_PANEL_WIDTH, _PANEL_HEIGHT = 370, 250
_TOP, _LEFTS = 96, (70, 530)

_COLOURS = ("#0b62c4", "#c2410c", "#4d7c0f", "#7e22ce")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Point:
    rows: int
    rate: float
    """Tokens per second."""
    peak_bytes: float


@dataclass(frozen=True, slots=True)
class Series:
    """One line in both panels."""

    label: str
    points: tuple[Point, ...]


def series_of(report: Mapping[str, Any], model: str, held: int) -> list[Series]:
    """The lines that a report of engine.py or rows.py has for a model and a length."""
    found: dict[str, list[Point]] = {}
    for label, point in _points(report, model, held):
        found.setdefault(label, []).append(point)
    return [
        Series(label, tuple(sorted(points, key=lambda point: point.rows)))
        for label, points in found.items()
    ]


def _points(
    report: Mapping[str, Any], model: str, held: int
) -> Iterator[tuple[str, Point]]:
    for run in report.get("runs", []):
        rows, _, length = run["work"].partition("x")
        if (run["model"], length) != (model, str(held)) or not rows.isdecimal():
            continue
        for side, label in (("ours", "mlxcel"), ("peer", "mlx-lm")):
            of = [pair[side] for pair in run["pairs"] if side in pair]
            if of:
                rate = median(one["rate"] for one in of)
                peak = median(one["peak_bytes"] for one in of)
                yield label, Point(int(rows), rate, peak)
    for step in report.get("steps", []):
        if (step["model"], step["held"]) == (model, held):
            point = Point(step["rows"], step["rate"], step["peak_bytes"])
            yield f"mlxcel, {step['lengths']} lengths", point


def ticks(most: float) -> list[float]:
    """From 0 to `most` or a little above, four to seven of them, round numbers."""
    if most <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(most / 5))
    step = next(power * n for n in (1, 2, 5, 10) if most / (power * n) <= 6)
    return [round(step * i, 10) for i in range(math.ceil(most / step) + 1)]


def draw(title: str, below: str, lines: Sequence[Series]) -> str:
    """The picture: rates on the left, memory on the right. Raises ValueError when
    there is nothing to draw."""
    if not lines:
        raise ValueError("there are no numbers of this model and length")
    rates = [[(p.rows, p.rate) for p in one.points] for one in lines]
    sizes = [[(p.rows, p.peak_bytes / _GIB) for p in one.points] for one in lines]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(_LEFTS[0], 30, title, size=17, bold=True),
        *_legend([one.label for one in lines]),
        *_panel(_LEFTS[0], "tokens per second, all rows together", rates),
        *_panel(_LEFTS[1], "peak memory in GiB, weights included", sizes),
        _text(_LEFTS[0], HEIGHT - 12, below, size=11, colour="#525252"),
        "</svg>",
    ]
    return "\n".join(out) + "\n"


def _legend(labels: Sequence[str]) -> Iterator[str]:
    x = _LEFTS[0]
    for index, label in enumerate(labels):
        yield from _line([(x, 52), (x + 26, 52)], index)
        yield _mark(x + 13, 52, index)
        yield _text(x + 34, 57, label, size=14)
        x += 60 + 8 * len(label)


def _panel(
    left: int, title: str, lines: Sequence[Sequence[tuple[int, float]]]
) -> Iterator[str]:
    rows = sorted({n for line in lines for n, _ in line})
    steps = ticks(max(value for line in lines for _, value in line))
    low, high = math.log2(rows[0]), math.log2(rows[-1])

    def x(n: int) -> float:
        share = (math.log2(n) - low) / (high - low) if high > low else 0.5
        return left + 14 + share * (_PANEL_WIDTH - 28)

    def y(value: float) -> float:
        return _TOP + _PANEL_HEIGHT * (1 - value / steps[-1])

    right, bottom = left + _PANEL_WIDTH, _TOP + _PANEL_HEIGHT
    yield _text(left, _TOP - 14, title, size=13)
    for value in steps:
        yield (
            f'<path d="M{left} {y(value):.1f}H{right}" '
            f'stroke="{"#d4d4d4" if value else "#404040"}"/>'
        )
        yield _text(left - 8, y(value) + 4, f"{value:,.10g}", anchor="end")
    for n in rows:
        yield f'<path d="M{x(n):.1f} {bottom}v5" stroke="#404040"/>'
        yield _text(x(n), bottom + 19, str(n), anchor="middle")
    middle = left + _PANEL_WIDTH / 2
    yield _text(middle, bottom + 38, "rows decoding at once", size=13, anchor="middle")
    for index, line in enumerate(lines):
        at = [(x(n), y(value)) for n, value in line]
        yield from _line(at, index)
        yield from (_mark(*point, index) for point in at)


def _line(points: Sequence[tuple[float, float]], index: int) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="7 4"' if index % 2 else ""
    yield (
        f'<polyline points="{path}" fill="none" stroke="{_colour(index)}" '
        f'stroke-width="2.5"{dashes}/>'
    )


def _mark(x: float, y: float, index: int) -> str:
    """A disc or a square: lines are told apart without colours."""
    if index % 2:
        return (
            f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" '
            f'fill="{_colour(index)}"/>'
        )
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{_colour(index)}"/>'


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 12,
    anchor: str = "start",
    bold: bool = False,
    colour: str = "#171717",
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}"{weight}>{escape(words)}</text>'
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plot",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("report", type=Path, nargs="+", help="JSON of engine.py or rows.py")
    add("--model", default="1.2b", help="default: 1.2b")
    add("--held", type=int, default=512, help="length of the prompts (default: 512)")
    add("--out", type=Path, required=True, metavar="FILE", help="the SVG")
    args = parser.parse_args(argv)
    reports = [json.loads(path.read_text()) for path in args.report]
    lines = [line for one in reports for line in series_of(one, args.model, args.held)]
    title = f"{args.model}, {args.held} tokens held in each row"
    try:
        svg = draw(title, reports[0]["machine"], lines)
    except ValueError as error:
        parser.error(str(error))
    args.out.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
