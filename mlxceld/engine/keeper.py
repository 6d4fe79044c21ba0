"""Brings remembered texts from slots into the store and back, when it pays.

A text is exported when it is about to be lost: its slot goes to another prompt that
shares less than half of it, or its cells are needed. It comes back when a prompt begins
with more of it than its slot remembers.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlxceld.engine import ledger
from mlxceld.engine.room import Room
from mlxceld.engine.runner import Runner
from mlxceld.engine.slot import Slot
from mlxceld.engine.store import LEAST_TOKENS, Entry, Store
from mlxceld.plan import Plan


class Keeper:
    """The prompts kept in RAM, at most `plan.cache_ram_bytes` of them."""

    def __init__(self, plan: Plan, runner: Runner) -> None:
        self.store = Store(plan.cache_ram_bytes)
        self._plan = plan
        self._runner = runner

    def keep(self, slot: Slot, start: int) -> None:
        """Keep what an idle slot remembers; `start` is the first cell of its span.

        Texts of requests that asked not to be remembered (`cache_prompt` false) are
        not kept.
        """
        last = slot.last
        if slot.request is not None or (last and not last.message.cache_prompt):
            return
        n = self._runner.reusable(slot.id, len(slot.tokens))
        if self.store.limit <= 0 or n < LEAST_TOKENS:
            return
        tokens = slot.tokens[:n]
        whole = self._runner.reusable(slot.id, n - 1) < n - 1
        most = n * self._plan.kv_bytes_per_token + self._plan.fixed_bytes_per_slot
        if not self.store.worth(tokens, whole):
            return
        if not self.store.make_room(tokens, whole, most):
            return
        try:
            saved = self._runner.export(slot.id, start, n)
        except Exception:
            # A prompt is read again then; no request may fail for a courtesy.
            return
        self.store.put(Entry(tokens, saved, whole))

    def recall(
        self,
        slot: Slot,
        tokens: Sequence[int],
        kept: int,
        slots: Sequence[Slot],
        room: Room,
    ) -> int:
        """Let an idle slot hold as much of a prompt as the slot or the store has.

        `kept` tokens are what the slot itself can go back to. Returns how many it holds
        now; its former text is kept when more than half of it goes.
        """
        found = self.store.best(tokens, kept)
        if found is not None and not self._fits(found[0], slots):
            found = None
        self.store.pin(found[0] if found else None)
        if found or 2 * kept < len(slot.tokens):
            self.keep(slot, room.spans.start(slot.id))
        if found:
            kept = self._restore(slot, *found, room)
        elif kept:
            self._runner.rewind(slot.id, kept)
        if not kept:
            room.forget(slot)
        self.store.pin(None)
        return kept

    def _fits(self, entry: Entry, slots: Sequence[Slot]) -> bool:
        """Whether the whole entry fits beside what runs: it is restored as a whole."""
        n = len(entry.tokens)
        if not self._plan.shared:
            return n <= self._plan.slot_ctx
        return ledger.fits(n, slots, self._plan.pool)

    def _restore(self, slot: Slot, entry: Entry, n: int, room: Room) -> int:
        """Put the first `n` tokens of an entry into the slot; 0 when it failed."""
        room.forget(slot)
        if not room.hold(slot, len(entry.tokens)):
            return 0
        try:
            start = room.spans.start(slot.id, entry.saved.n)
            self._runner.restore(slot.id, start, entry.saved)
            self._runner.rewind(slot.id, n)
        except Exception:
            # The prompt is read instead.
            self.store.drop(entry)
            return 0
        if n == len(entry.tokens):
            # The slot has all of it now: it comes back when the slot is taken.
            self.store.drop(entry)
        return n
