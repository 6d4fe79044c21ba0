"""Save, restore and erase what a slot remembers, when the slot is idle.

An action on a busy slot waits for the end of its request and comes before the next one.
A restore that fails leaves the slot empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mlxceld.engine import ledger
from mlxceld.engine.keeper import Keeper
from mlxceld.engine.messages import Failed, SlotAction, SlotDone, Up
from mlxceld.engine.room import Room, Scattered
from mlxceld.engine.runner import Saved, TextFiles, Unusable
from mlxceld.engine.slot import Slot


class SlotActions:
    """The actions that wait, and how they are carried out; `files` may be missing."""

    def __init__(
        self,
        room: Room,
        keeper: Keeper,
        files: TextFiles | None,
        n_vocab: int,
        emit: Callable[[Up], None],
        touch: Callable[[Slot], None],
    ) -> None:
        """`touch` makes a slot the most recently used one."""
        self._room = room
        self._plan = room.plan
        self._slots = room.slots
        self._runner = room.runner
        self._keeper = keeper
        self._files = files
        self._n_vocab = n_vocab
        self._emit = emit
        self._touch = touch
        self._waiting: list[SlotAction] = []

    def __bool__(self) -> bool:
        """Whether any action waits."""
        return bool(self._waiting)

    def add(self, action: SlotAction) -> None:
        """Take an action; the next `run` that finds its slot idle carries it out."""
        if 0 <= action.slot < self._plan.slots:
            self._waiting.append(action)
            return
        last = self._plan.slots - 1
        text = f"Invalid slot ID: {action.slot} is not one of the slots 0 to {last}"
        self._emit(_invalid(action.id, text))

    def cancel(self, action_id: int) -> None:
        """Forget an action that still waits."""
        self._waiting = [one for one in self._waiting if one.id != action_id]

    def run(self) -> None:
        """Carry out, in order, what waits for a slot that is idle."""
        for action in list(self._waiting):
            slot = self._slots[action.slot]
            if slot.request is None:
                self._waiting.remove(action)
                self._emit(self._do(action, slot))

    def _do(self, action: SlotAction, slot: Slot) -> Up:
        began = time.monotonic()
        try:
            if action.action == "erase":
                n, nbytes = slot.n_held, 0
                self._room.forget(slot)
            elif action.action == "save":
                n, nbytes = self._save(action, slot)
            else:
                n, nbytes = self._restore(action, slot)
        except Unusable as error:
            return _invalid(action.id, f"Unable to {action.action} slot: {error}")
        except Scattered:
            raise
        except Exception as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            text = f"Unable to {action.action} slot: {reason}"
            return Failed(action.id, 500, "server_error", text)
        return SlotDone(action.id, n, nbytes, (time.monotonic() - began) * 1e3)

    def _save(self, action: SlotAction, slot: Slot) -> tuple[int, int]:
        """Tokens and bytes written. State can only be saved where it was marked."""
        n = self._runner.reusable(slot.id, len(slot.tokens))
        saved = None
        if n:
            start = self._room.spans.start(slot.id)
            saved = self._runner.export(slot.id, start, n)
        nbytes = self._open().write(action.folder, action.name, slot.tokens[:n], saved)
        return n, nbytes

    def _restore(self, action: SlotAction, slot: Slot) -> tuple[int, int]:
        """Tokens and bytes read."""
        self._keeper.keep(slot, self._room.spans.start(slot.id))
        self._room.forget(slot)
        tokens, saved, nbytes = self._open().read(
            action.folder, action.name, self._plan.slot_ctx
        )
        if not all(0 <= token < self._n_vocab for token in tokens):
            raise Unusable("Invalid tokens in slot save file")
        if saved is not None:
            self._put(slot, tokens, saved)
        return len(tokens), nbytes

    def _put(self, slot: Slot, tokens: list[int], saved: Saved) -> None:
        n = len(tokens)
        fits = not self._plan.shared or ledger.fits(n - 1, self._slots, self._plan.pool)
        if not fits or not self._room.hold(slot, n):
            raise Unusable("No available space in KV cache")
        try:
            start = self._room.spans.start(slot.id, saved.n)
            self._runner.restore(slot.id, start, saved)
        except Exception:
            self._room.forget(slot)
            raise
        slot.n_held, slot.tokens, slot.last = n, tokens, None
        self._touch(slot)

    def _open(self) -> TextFiles:
        if self._files is None:
            raise Unusable("this engine has no files")
        return self._files


def _invalid(action_id: int, text: str) -> Failed:
    return Failed(action_id, 400, "invalid_request_error", text)
