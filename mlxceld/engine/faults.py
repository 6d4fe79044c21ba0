"""A fault of ours as it goes into the log: its kind and place, never a user's words."""

from __future__ import annotations

import traceback

from mlxceld.engine.messages import Fault

_FRAMES = 4


def fault(where: str, error: Exception) -> Fault:
    """What the log is told. The error's own text may quote a prompt: it stays out."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    trace = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return Fault(where, type(error).__name__, trace)
