"""What a source says, thing by thing: that is how meaning is read and compared."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mlxceld.kinds import Value
from mlxceld.layers import Layer
from mlxceld.options import Option
from mlxceld.problems import Problem

from .found import Place, Program
from .migration import Fate

PLAN_KEYS = (
    "engine.mode",
    "engine.ctx_size",
    "engine.ctx_size_per_seq",
    "engine.parallel",
    "engine.kv_unified",
    "engine.min_slot_ctx",
)
"""The options that the plan is made from."""

SECRET = re.compile(
    r"(^|[-_])(api-?key|key|token|secret|password|passwd|credentials?)$", re.I
)
"""Names of flags, variables and keys whose values are not shown."""


@dataclass(frozen=True, slots=True)
class Saying:
    """One flag with its value, one variable or one key."""

    said: str
    """As it was written; secrets are masked."""
    place: Place
    layer: Layer
    option: Option | None = None
    """What it sets; None when it sets nothing, and then its fate is final."""
    value: Value | None = None
    """None where `doubt` says why the value is not certain."""
    doubt: str = ""
    fate: Fate = "kept"
    why: str = ""
    rank: int = 0
    """Inside a layer the higher rank wins, then what is said later."""


@dataclass(slots=True)
class Meaning:
    """What a source says, and whether more may have been said than can be read."""

    program: Program | None
    """Whose words they are, as far as source and variables tell."""
    ollama: bool = False
    takes_repositories: bool = False
    """Whether `--model` may name a repository: `owner/name`."""
    sayings: list[Saying] = field(default_factory=list)
    """In the order of the source."""
    removed: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    open: str = ""
    """Why any flag may be said besides: a word that could not be read."""
    config: str = ""
    """The words that name a configuration file, which the daemon reads as well."""


def short(text: str) -> str:
    """Text for a line of the report: no control characters, and not too long."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:80])
    return shown if len(text) <= 80 else f"{shown}..."
