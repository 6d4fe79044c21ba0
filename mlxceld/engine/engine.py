"""What a loader gives: a model in memory, with all that serves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlxceld.engine import messages as m
from mlxceld.engine.grammar import Grammars
from mlxceld.engine.runner import Runner, TextFiles
from mlxceld.engine.text import Text
from mlxceld.pacing import PACINGS, Pacing
from mlxceld.plan import Plan


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded model, ready to run."""

    vocabulary: Text
    runner: Runner
    info: m.ModelInfo
    plan: Plan
    memory: Callable[[], m.MemoryUse] = m.MemoryUse
    """What MLX holds at the moment."""
    files: TextFiles | None = None
    grammars: Grammars | None = None
    """Made at the first grammar when the loader brings none."""
    pacing: Pacing = PACINGS["cpu"]
    """How prompts are read on the device that serves."""


Loader = Callable[[m.Load, Callable[[m.Loading], None]], Engine]
"""Loads the model and makes the plan. Raises `Refused` for what a user can mend."""
