"""Which cells are spoken for: the arithmetic of admission and of making room.

In split modes a slot's partition is its own and there is nothing to decide. In shared
mode all slots draw on one pool, so that a request starts only when what it needs now
fits beside what the running ones hold, and idle slots give up what they remember, least
recently used first and only as many as needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlxceld.engine.slot import Slot, serial


def live(slots: Iterable[Slot]) -> int:
    """Live tokens: those held for running requests."""
    return sum(slot.n_held for slot in slots if slot.request is not None)


def spoken_for(slots: Iterable[Slot]) -> int:
    """Tokens that running requests hold or are about to: prompt, answer, one more."""
    return sum(
        max(slot.n_held, slot.request.n_tokens) + 1
        for slot in slots
        if slot.request is not None
    )


def fits(n_tokens: int, slots: Iterable[Slot], pool: int) -> bool:
    """Whether `n_tokens` and their next token fit beside the running requests."""
    return spoken_for(slots) + n_tokens + 1 <= pool


def to_evict(
    slots: Sequence[Slot], claims: Sequence[int], slot: Slot, n: int, pool: int
) -> list[Slot] | None:
    """The idle slots to clear so that `slot` may hold `n` tokens.

    `claims` are the cells that each slot has to keep. None when clearing all idle slots
    would not be enough.
    """
    short = n + sum(claims) - claims[slot.id] - pool
    chosen: list[Slot] = []
    idle = [other for other in slots if other.request is None and other is not slot]
    for other in sorted(idle, key=lambda candidate: candidate.used):
        if short <= 0:
            break
        if other.n_held:
            chosen.append(other)
            short -= other.n_held
    return chosen if short <= 0 else None


def to_preempt(slots: Iterable[Slot]) -> Slot:
    """The running slot that gives way: the youngest, so that the oldest goes on."""
    running = [slot for slot in slots if slot.request is not None]
    return max(running, key=serial)
