"""Text that another slot has read already: found, so that it is copied, not computed.

Agents send the same long beginning many times over, often several at once. The slots
read their prompts one after the other, so the second of two such requests finds the
first one's text read when its own turn comes, whether that request is still running or
has ended. Each slot has cells of its own; nothing is shared but the work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mlxceld.engine.runner import Runner
from mlxceld.engine.slot import Slot, common_prefix

WORTH_COPYING = 16
"""Tokens that a copy has to save; fewer are read with the rest of the prompt."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `n` tokens of a slot, which another one needs too."""

    source: Slot
    n: int


def longest(slots: Iterable[Slot], slot: Slot, runner: Runner) -> Prefix | None:
    """The longest text in another slot that continues what `slot` holds.

    None when that would save too little. The request's last token is never part of it:
    its logits are what is sampled. Both sides may opt out with `cache_prompt`.
    """
    request = slot.request
    if request is None or not request.message.cache_prompt:
        return None
    wanted = request.tokens[:-1]
    least = slot.n_held + WORTH_COPYING
    found: Prefix | None = None
    for other in slots:
        if other is slot or min(_readable(other), len(wanted)) < least:
            continue
        n = common_prefix(wanted, _tokens(other))
        n = runner.reusable(other.id, n) if n >= least else 0
        if n >= least:
            found = Prefix(other, n)
            least = n + 1
    return found


def _readable(slot: Slot) -> int:
    """How many of the slot's tokens may be copied; those of a step on its way not."""
    if slot.last is not None and not slot.last.message.cache_prompt:
        return 0
    request = slot.request
    return slot.n_held if request is None else min(slot.n_held, request.n_tokens - 1)


def _tokens(slot: Slot) -> list[int]:
    if slot.request is None:
        return slot.tokens
    return slot.request.tokens[: _readable(slot)]
