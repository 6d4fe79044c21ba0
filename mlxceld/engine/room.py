"""Cells for a slot: evict what is idle, let others give way, move what is in the way.

The ledger decides who gives way, the spans where everything lies; this file carries it
out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mlxceld.engine import ledger
from mlxceld.engine.runner import Runner
from mlxceld.engine.slot import Slot
from mlxceld.engine.spans import Spans
from mlxceld.plan import Plan


def decodes(slot: Slot) -> bool:
    """Whether the slot takes part in the next decode step."""
    request = slot.request
    return (
        request is not None
        and not slot.prefilling
        and request.issued < request.limit
        and slot.n_held < request.n_ctx - 1
        and not (request.stepwise and request.issued > len(request.output))
    )


class Scattered(Exception):
    """Cells were to be moved and were not: nobody knows any more which are whose."""


class Room:
    """The spans of all slots, and the order in which room is made."""

    def __init__(
        self,
        plan: Plan,
        slots: Sequence[Slot],
        runner: Runner,
        overflow: Callable[[], None],
        keep: Callable[[Slot, int], None],
    ) -> None:
        """`overflow` ends or puts back running requests and calls `forget` for each.

        `keep` is told of an idle slot, and of the first cell of its span, before what
        it remembers is lost.
        """
        self.evicted = 0
        """Idle slots that were cleared so far."""
        self.spans = Spans(plan.slots, plan.slot_ctx, plan.pool, shared=plan.shared)
        self.plan = plan
        self.slots = slots
        self.runner = runner
        self._overflow = overflow
        self._keep = keep

    def make(self, slot: Slot, n: int) -> bool:
        """Let the slot's span hold `n` cells; False when its own request had to go.

        Order: what idle slots remember, then the overflow policy.
        """
        while slot.request is not None:
            if self.hold(slot, n):
                return True
            self._overflow()
        return False

    def hold(self, slot: Slot, n: int, others: Mapping[int, int] | None = None) -> bool:
        """Let the slot's span hold `n` cells, at the cost of idle slots alone.

        `others` says how many cells further slots, by number, are about to fill.
        False when clearing idle ones would not be enough; then nothing has changed.
        Raises `Scattered`, which is no one request's or action's: the engine ends.
        """
        if not others and n <= self.spans.capacity(slot.id):
            # As at nearly every step: cells of its own are in nobody's way.
            return True
        others = others or {}
        claims = self._claims(others)
        if self.plan.shared:
            evict = ledger.to_evict(self.slots, claims, slot, n, self.plan.pool)
            if evict is None:
                return False
            for idle in evict:
                self._keep(idle, self.spans.start(idle.id))
                self.forget(idle)
                self.evicted += 1
            claims = self._claims(others)
        held = [other.n_held for other in self.slots]
        moves = self.spans.reserve(slot.id, n, held, claims)
        if moves is None:
            raise RuntimeError(f"no room for {n} cells in slot {slot.id}")
        if moves:
            try:
                self.runner.move(moves)
            except Exception as error:
                raise Scattered from error
        return True

    def forget(self, slot: Slot) -> None:
        """Clear what a slot holds and give its cells back."""
        slot.n_held = 0
        slot.tokens = []
        self.spans.release(slot.id)
        self.runner.forget(slot.id)

    def _claims(self, about: Mapping[int, int]) -> list[int]:
        """Cells that each slot has to keep: a decoding row needs one more at once."""
        return [
            max(slot.n_held + decodes(slot), about.get(slot.id, 0))
            for slot in self.slots
        ]
