"""What the runs of two servers gave, side by side: tables, remarks and JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.clients import Answer, Gap

SIDES = ("ours", "peer")


@dataclass
class Run:
    """One side under one number of clients."""

    side: str
    pair: int
    clients: int
    measures: dict[str, float]
    answers: list[Answer] = field(repr=False, default_factory=list)
    gap: Gap | None = None


_CELLS: Sequence[tuple[str, str, float, str, bool]] = (
    ("tok/s", "tokens_per_second", 1, ".1f", True),
    ("TTFT p50 s", "ttft_p50", 1, ".2f", False),
    ("TTFT p99 s", "ttft_p99", 1, ".2f", True),
    ("gap p50 ms", "gap_p50", 1e3, ".1f", False),
    ("gap p99 ms", "gap_p99", 1e3, ".0f", False),
    ("gap max ms", "gap_max", 1e3, ".0f", False),
    ("prompt tok/s", "prompt_tokens_per_second", 1, ".0f", False),
    ("host GiB", "host_bytes", 1 / (1 << 30), ".2f", True),
    ("device GiB", "device_bytes", 1 / (1 << 30), ".2f", True),
)
"""Heading, measure, factor, format, and whether a ratio follows."""


def table(runs: Sequence[Run]) -> str:
    """Markdown: one line for each number of clients; cells are `ours / peer`."""
    cells = [cell for cell in _CELLS if any(run.measures.get(cell[1]) for run in runs)]
    heads = ["clients"]
    for heading, _, _, _, compared in cells:
        heads += [heading, "ratio"] if compared else [heading]
    heads += ["failed", "short", "same text"]
    lines = [heads, ["---"] * len(heads)]
    for level in sorted({run.clients for run in runs}):
        sides = {
            side: [run for run in runs if (run.side, run.clients) == (side, level)]
            for side in SIDES
        }
        line = [str(level)]
        for _, name, factor, how, compared in cells:
            both = [
                format(factor * _median(run.measures.get(name) for run in side), how)
                if side
                else "-"
                for side in sides.values()
            ]
            line.append(" / ".join(both))
            if compared:
                line.append(format(_ratio(sides, name), ".2f"))
        for count in ("failures", "short"):
            sums = [sum(int(r.measures[count]) for r in s) for s in sides.values()]
            line.append(" / ".join(map(str, sums)))
        same, of = _same(sides)
        line.append(f"{same} of {of}")
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def gap_table(runs: Sequence[Run]) -> str:
    """Markdown: one line for each side of the runs beside a long prompt."""
    heads = (
        "side | gap before ms | median ms | largest ms | tokens meanwhile | prompt | "
        "prompt s | failed"
    )
    lines = [f"| {heads} |", "| --- " * 8 + "|"]
    for side in SIDES:
        gaps = [run.gap for run in runs if run.side == side and run.gap]
        if not gaps:
            continue
        good = [gap for gap in gaps if not gap.failure]
        cells = [side]
        cells += [
            format(1e3 * _median(getattr(gap, name) for gap in good), ".1f")
            for name in ("before", "median", "largest")
        ]
        cells.append(format(_median(gap.tokens for gap in good), ".0f"))
        cells.append(format(_median(gap.prompt_tokens for gap in good), ".0f"))
        cells.append(format(_median(gap.prompt_seconds for gap in good), ".2f"))
        failures = sorted({gap.failure for gap in gaps if gap.failure})
        cells.append("; ".join(failures) or "0")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _median(values: Any) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def _ratio(sides: Mapping[str, Sequence[Run]], name: str) -> float:
    peers = {run.pair: run.measures.get(name) for run in sides["peer"]}
    found = []
    for run in sides["ours"]:
        mine, other = run.measures.get(name), peers.get(run.pair)
        if mine is not None and other:
            found.append(mine / other)
    return _median(found)


def _same(sides: Mapping[str, Sequence[Run]]) -> tuple[int, int]:
    """How many answers have the same text on both sides, and of how many."""
    peers = {run.pair: run.answers for run in sides["peer"]}
    same = of = 0
    for run in sides["ours"]:
        for mine, other in zip(run.answers, peers.get(run.pair, []), strict=False):
            if not mine.failure and not other.failure:
                of += 1
                same += mine.text == other.text
    return same, of


def remarks(runs: Sequence[Run]) -> list[str]:
    """What a reader of the table has to know: failures, and counts that disagree."""
    found = []
    for side in SIDES:
        answers = [a for run in runs if run.side == side for a in run.answers]
        failures = sorted({a.failure for a in answers if a.failure})
        found += [f"{side} failed: {failure}" for failure in failures]
        off = [a for a in answers if not a.failure and a.prompt_tokens != a.wanted]
        if off:
            found.append(
                f"{side} counts other prompt tokens than wanted in {len(off)} of "
                f"{len(answers)} answers, such as {off[0].prompt_tokens} for "
                f"{off[0].wanted}"
            )
        untold = sum(not a.told for a in answers if not a.failure)
        if untold:
            found.append(f"{side} told no usage in {untold}: chunks were counted")
    return found


def plain(run: Run) -> dict[str, Any]:
    """A run for JSON."""
    answers = [
        {
            "prompt_tokens": answer.prompt_tokens,
            "tokens": answer.tokens,
            "ttft": answer.first,
            "seconds": answer.ended - answer.began,
            "largest_gap": max(answer.gaps, default=None),
            "text": answer.text,
            "failure": answer.failure,
        }
        for answer in run.answers
    ]
    return {
        "side": run.side,
        "pair": run.pair,
        "clients": run.clients,
        "measures": run.measures,
        "gap": asdict(run.gap) if run.gap else None,
        "answers": answers,
    }
