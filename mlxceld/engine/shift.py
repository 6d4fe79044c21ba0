"""Context shift: how a full context makes room, as llama-server does it.

The tokens after the first `keep` are dropped, and the rest moves up. llama-server turns
the keys that it holds to their new places; here the shortened text is read again, which
takes longer and gives exactly what a fresh request with that text would get. So it
works with every kind of cache.
"""

from __future__ import annotations

from mlxceld.engine.messages import Shift
from mlxceld.engine.room import Room
from mlxceld.engine.runner import Runner
from mlxceld.engine.slot import Slot

_LEAST = 4
"""Cells of a context that are never kept, however large `keep` is."""


def cut(
    shift: Shift, n_held: int, n_prompt: int, n_ctx: int, *, add_bos: bool
) -> tuple[int, int]:
    """How many tokens stay at the beginning, and how many go after them.

    Of `n_held` tokens at least one goes. The model's BOS is kept beside `shift.keep`
    tokens, and without a `shift.discard` half of what is not kept goes: both as in
    llama-server.
    """
    keep = n_prompt if shift.keep < 0 else shift.keep
    keep = max(0, min(keep + add_bos, n_ctx - _LEAST, n_held - 1))
    left = n_held - keep
    return keep, max(1, min(shift.discard or left // 2, left))


def full(slot: Slot) -> bool:
    """Whether the slot's request has more to say, and its context no cell for it.

    One whose last token has not been read yet is not there yet.
    """
    request = slot.request
    return (
        request is not None
        and request.message.shift is not None
        and slot.n_held >= request.n_ctx - 1
        and request.issued == len(request.output)
    )


def make_room(slot: Slot, runner: Runner, room: Room, *, add_bos: bool) -> None:
    """Shorten a full slot's text; what it holds no longer is read like a prompt."""
    request = slot.request
    assert request is not None
    assert request.message.shift is not None
    keep, discard = cut(
        request.message.shift,
        request.n_tokens - 1,
        len(request.prompt),
        request.n_ctx,
        add_bos=add_bos,
    )
    request.shift(keep, discard)
    kept = runner.reusable(slot.id, keep) if keep else 0
    if kept:
        runner.rewind(slot.id, kept)
        slot.n_held = kept
    else:
        room.forget(slot)
