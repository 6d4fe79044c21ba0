"""What became of a set-up: the values to write, the plans, and a line for each word.

This is the result of the conversion and the only input of the report and of the
writers. Nothing in it is text for people yet, except reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from mlxceld.kinds import Value
from mlxceld.plan import Plan

from .found import Found, Place

Fate: TypeAlias = Literal["kept", "changed", "pinned", "ignored", "review"]
"""kept: said again as it is. changed: said in other words, or another value.
pinned: written by the tool to hold a meaning. ignored: without an effect here.
review: its meaning is not certain, a person has to look."""


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one thing that the source said."""

    said: str
    """As it was written: `-np 4`, `LLAMA_ARG_CTX_SIZE=8192`; secrets are masked."""
    place: Place
    fate: Fate
    became: str = ""
    """As TOML, `engine.parallel = 4`; empty when nothing is written for it."""
    why: str = ""
    """One sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan, or why there is none."""

    plan: Plan | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Migration:
    """One set-up, carried over."""

    found: Found
    adopt: bool
    """Whether the new meaning is taken; otherwise today's is kept."""
    values: Mapping[str, Value]
    """What the new configuration says, by key, in the order of the table.

    Nothing is here that nobody said, except the keys in `pinned`.
    """
    pinned: frozenset[str]
    removed: tuple[str, ...] = ()
    """Keys of the old file that an edit in place takes out, dotted."""
    lines: tuple[Line, ...] = ()
    """In the order of the source, pinned ones last. Remarks that ask for review have a
    line too, with `said` empty; the others are left in `found.remarks`.
    """
    today: Outcome = field(default_factory=lambda: Outcome(None))
    """What the set-up gets now."""
    flipped: Outcome = field(default_factory=lambda: Outcome(None))
    """What the same words would get after the flips (or in the version asked for)."""
    migrated: Outcome = field(default_factory=lambda: Outcome(None))
    """What the new configuration gets."""
    changes: tuple[str, ...] = ()
    """What is different after the migration, in sentences; empty when nothing is."""

    @property
    def review(self) -> tuple[Line, ...]:
        """The lines that a person has to look at."""
        return tuple(line for line in self.lines if line.fate == "review")
