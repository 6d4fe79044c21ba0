"""Exit statuses of `mlxcel-migrate`: what a packaging script may rely on."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Status(IntEnum):
    """How a run ended; of several set-ups the worst one counts."""

    OK = 0
    """Nothing to do, or everything was written."""
    CHANGES = 1
    """Changes are needed and were not written."""
    INVALID = 2
    """The command line or a source is wrong. Nothing was written."""
    REVIEW = 3
    """The meaning of a set-up is not certain: a person has to look."""


_RANK = (Status.OK, Status.CHANGES, Status.REVIEW, Status.INVALID)


def worst(several: Iterable[Status]) -> Status:
    """The status of a run from those of its set-ups."""
    return max(several, key=_RANK.index, default=Status.OK)
