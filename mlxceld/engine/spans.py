"""Which cells of the pool belong to which slot.

A slot's keys and values lie in one contiguous span of cells. In split modes the spans
are fixed partitions. In shared mode a span grows into the free cells beside it, moves
to a larger gap when it must, and when the free cells are enough but scattered all
spans are packed anew. This file only keeps the map: it says which moves are needed,
the pool carries them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SLACK = 256
"""Cells that a growing span takes beyond what it needs, so that it rarely moves."""


@dataclass(frozen=True, slots=True)
class Move:
    """Copy `n` cells of a slot from cell `source` to cell `target`; may overlap."""

    slot: int
    source: int
    target: int
    n: int


class Spans:
    """The map of one pool: a start cell and a capacity for each slot."""

    def __init__(self, slots: int, slot_ctx: int, pool: int, *, shared: bool) -> None:
        self.shared = shared
        self.pool = pool
        if shared:
            self._start = [0] * slots
            self._capacity = [0] * slots
        else:
            self._start = [slot * slot_ctx for slot in range(slots)]
            self._capacity = [slot_ctx] * slots

    def start(self, slot: int, n: int = 0) -> int:
        """First cell of the slot's span, of which `n` cells are to be used.

        Raises RuntimeError when it has fewer: what follows are the cells of others, or
        memory that is no cell at all.
        """
        if n > self._capacity[slot]:
            raise RuntimeError(f"slot {slot} has no room for {n} cells")
        return self._start[slot]

    def capacity(self, slot: int) -> int:
        """Cells of the slot's span."""
        return self._capacity[slot]

    def release(self, slot: int) -> None:
        """Give the span back; a fixed partition stays where it is."""
        if self.shared:
            self._capacity[slot] = 0

    def reserve(
        self, slot: int, n: int, held: Sequence[int], claims: Sequence[int]
    ) -> list[Move] | None:
        """Make the span of `slot` hold `n` cells.

        `held` says for every slot how many of its cells carry tokens and must survive,
        `claims` how many it has to keep: at least those, and one more where the next
        token is on its way. Returns the moves to carry out first, in order, or None
        when the claims of the other slots leave too little; then nothing has changed.
        """
        if n <= self._capacity[slot]:
            return []
        others = sum(count for other, count in enumerate(claims) if other != slot)
        if not self.shared or others + n > self.pool:
            return None
        taken = sorted(
            (self._start[other], self._capacity[other])
            for other in range(len(held))
            if other != slot and self._capacity[other]
        )
        if self._capacity[slot] and self._extend(slot, n, taken):
            return []
        moves = self._relocate(slot, n, held, taken)
        return self._pack(slot, n, held, claims) if moves is None else moves

    def _extend(self, slot: int, n: int, taken: list[tuple[int, int]]) -> bool:
        start = self._start[slot]
        end = min((s for s, _ in taken if s > start), default=self.pool)
        if start + n > end:
            return False
        self._capacity[slot] = min(n + _SLACK, end - start)
        return True

    def _relocate(
        self, slot: int, n: int, held: Sequence[int], taken: list[tuple[int, int]]
    ) -> list[Move] | None:
        """Move the slot alone into the largest gap, when that is large enough.

        The gap may touch or cover the slot's own old span: a move may overlap.
        """
        best_start, best_size = 0, 0
        cursor = 0
        for start, capacity in [*taken, (self.pool, 0)]:
            if start - cursor > best_size:
                best_start, best_size = cursor, start - cursor
            cursor = start + capacity
        if best_size < n:
            return None
        old = self._start[slot]
        self._start[slot] = best_start
        self._capacity[slot] = min(n + _SLACK, best_size)
        if not held[slot] or old == best_start:
            return []
        return [Move(slot, old, best_start, held[slot])]

    def _pack(
        self, slot: int, n: int, held: Sequence[int], claims: Sequence[int]
    ) -> list[Move]:
        """Lay all spans out anew in their order, the free cells shared out as slack.

        Spans that go left move in ascending order, then those that go right in
        descending order: so no span is overwritten before it has moved.
        """
        need = {other: count for other, count in enumerate(claims) if count}
        need[slot] = n
        order = sorted(need, key=lambda other: (self._start[other], other))
        slack = (self.pool - sum(need.values())) // len(order)
        cursor = 0
        left: list[Move] = []
        right: list[Move] = []
        for other in order:
            old = self._start[other]
            if held[other] and old != cursor:
                move = Move(other, old, cursor, held[other])
                (left if cursor < old else right).append(move)
            self._start[other] = cursor
            self._capacity[other] = need[other] + slack
            cursor += self._capacity[other]
        for other in range(len(claims)):
            if other not in need:
                self._capacity[other] = 0
        return left + right[::-1]
