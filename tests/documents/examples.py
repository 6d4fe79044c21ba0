"""Reads the examples of a page: what it tells readers to write, type and expect.

A fenced block may be marked behind its language: with `norun` when it needs another
machine, with a path when it is a file that later examples read, and with `before` when
that is in the form of an older version. In a `console` block a line with `$ ` is a
command, which a backslash continues, and what follows is its output, where `...` stands
for anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOT_RUN = "norun"
BEFORE = "before"

ANYTHING = "..."

EXACT = frozenset(
    {"n_ctx", "n_pool", "total_slots", "kv_unified", "mode", "speculative"}
    | {"code", "type", "status", "object", "role", "route", "request_id"}
)
"""Keys whose values are the same for every model; of others only the type counts."""


@dataclass(frozen=True)
class Block:
    """One fenced block, with the line where it begins."""

    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def runs(self) -> bool:
        return NOT_RUN not in self.words

    @property
    def path(self) -> str | None:
        """The file that the block shows."""
        return next((word for word in self.words if "/" in word or "." in word), None)


@dataclass(frozen=True)
class Command:
    """One command of a console block and the output that is shown for it."""

    line: int
    text: str
    shown: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a Markdown page, also those in lists."""
    found: list[str] | None = None
    info: list[str] = []
    indent = start = 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if found is None:
            if fence := re.match(r"( *)```(.+)", line):
                indent, info = len(fence[1]), fence[2].split()
                found, start = [], number
        elif line.strip() == "```":
            yield Block(start, info[0], tuple(info[1:]), "\n".join(found) + "\n")
            found = None
        else:
            found.append(line[indent:])
    assert found is None, f"{page}:{start}: the block has no end"


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block."""
    parts = re.split(r"(?m)^\$ ", block.text)
    assert not parts[0].strip(), f"line {block.line}: output before a command"
    line = block.line + 1
    for part in parts[1:]:
        rows = part.splitlines()
        n = 1
        while rows[n - 1].endswith("\\"):
            n += 1
        yield Command(line, "\n".join(rows[:n]), "\n".join(rows[n:]).strip())
        line += len(rows)


def differs(shown: str, real: str) -> str:
    """Why `real` is not what a page shows; empty when it is."""
    wanted = _json(shown)
    if wanted is not None:
        found = _json(real)
        return f"no JSON: {real}" if found is None else _lacks(wanted, found, "$")
    lines = [_pattern(line) for line in shown.strip().splitlines()]
    matches = re.fullmatch("".join(lines), real.strip() + "\n")
    return "" if matches else f"shown:\n{shown}\nreally:\n{real.strip()}"


def _pattern(line: str) -> str:
    """A pattern for one line, or for any number of them."""
    if line.strip() == ANYTHING:
        return r"(?:.*\n)*?"
    return ".*".join(re.escape(part) for part in line.rstrip().split(ANYTHING)) + r"\n"


def _json(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _lacks(shown: Any, real: Any, where: str) -> str:
    """What of `shown` is not in `real`: keys, types, and the values of some keys."""
    if isinstance(shown, dict) and isinstance(real, dict):
        for key, value in shown.items():
            if key not in real:
                return f"{where} has no {key}: {sorted(real)}"
            if key in EXACT and not isinstance(value, dict | list):
                if value != real[key]:
                    return f"{where}.{key} is {real[key]!r}, not {value!r}"
            elif reason := _lacks(value, real[key], f"{where}.{key}"):
                return reason
        return ""
    if isinstance(shown, list) and isinstance(real, list):
        if len(real) < len(shown):
            return f"{where} has only {len(real)} entries"
        reasons = (
            _lacks(a, b, f"{where}[{i}]")
            for i, (a, b) in enumerate(zip(shown, real, strict=False))
        )
        return next(filter(None, reasons), "")
    if _kind(shown) is not _kind(real):
        return f"{where} is {real!r}, shown is {shown!r}"
    return ""


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)
