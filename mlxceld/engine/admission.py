"""What a request is refused for before it starts, and its slot: rules, no state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mlxceld.engine.messages import Failed, Generate, Load
from mlxceld.engine.slot import Request, Slot
from mlxceld.pacing import PACINGS, Pacing
from mlxceld.plan import Plan

RETRY_AFTER = 1
"""Seconds after which a client that found no room may come back."""

_CLIENT_ERROR = "invalid_request_error"


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of queue and slots, as `messages.Load` explains them."""

    prefill_chunk: int = 512
    """The most tokens of prompts that are read at once."""
    queue_size: int = 128
    slot_prompt_similarity: float = 0.1
    overflow: str = "preempt"
    queue_timeout: float = 0.0
    chunk_seconds: float = 0.0
    """The longest that a chunk should take even when nobody else runs, 0 for no bound:
    whoever watches the engine takes longer silence for a hang."""
    n_train: int = 0
    """Tokens of the model's training."""
    token_gap: float | None = None
    """Seconds between the tokens of a running stream, None for those of the device."""
    pacing: Pacing = PACINGS["cpu"]
    """What the device is good for, where nothing else is said."""

    @property
    def gap(self) -> float:
        """Seconds that a stream may wait for a token while prompts are read; 0 is no
        bound."""
        return self.pacing.gap if self.token_gap is None else self.token_gap

    def with_bounds(self, load: Load) -> Limits:
        """What may change while the engine runs: bounds of the queue, and the gap."""
        return replace(
            self,
            queue_size=load.queue_size,
            queue_timeout=load.queue_timeout,
            slot_prompt_similarity=load.slot_prompt_similarity,
            overflow=load.overflow,
            token_gap=load.token_gap,
        )


def too_long(request_id: int, n_prompt: int, n_ctx: int, about: str = "") -> Failed:
    """The refusal of a prompt of `n_prompt` tokens, a number that `about` may limit."""
    return Failed(
        request_id,
        400,
        "exceed_context_size_error",
        f"request ({about}{n_prompt} tokens) exceeds the available context size "
        f"({n_ctx} tokens), try increasing it",
        n_prompt_tokens=n_prompt,
        n_ctx=n_ctx,
    )


def objection(
    message: Generate, prompt: list[int], plan: Plan, room: int
) -> Failed | None:
    """Why the request cannot be taken, or None when it can.

    `prompt` are the tokens that the message's prompt became, `room` is how many more
    requests may wait. A prompt needs one free cell after it, as in llama-server.
    """
    request_id, n_prompt, n_ctx = message.id, len(prompt), plan.slot_ctx
    if not prompt:
        return Failed(request_id, 400, _CLIENT_ERROR, "Field 'prompt': it is empty")
    if n_prompt >= n_ctx:
        return too_long(request_id, n_prompt, n_ctx)
    if message.id_slot >= plan.slots:
        return Failed(
            request_id,
            400,
            _CLIENT_ERROR,
            f"Field 'id_slot': {message.id_slot} is not one of the slots 0 to "
            f"{plan.slots - 1}",
        )
    if room <= 0:
        return Failed(
            request_id,
            503,
            "unavailable_error",
            "too many requests are waiting already, try again later",
            retry_after=RETRY_AFTER,
        )
    return None


def choose(
    request: Request,
    free: Sequence[Slot],
    threshold: float,
    reusable: Callable[[Slot, Request], int],
) -> Slot:
    """The slot that remembers most of the prompt, else the least recently used.

    A remembered prefix counts when it is more than `threshold` of the prompt, as in
    llama-server; `reusable` says how much of it a slot has.
    """
    if request.message.cache_prompt and threshold > 0:
        kept, best = max(
            ((reusable(slot, request), slot) for slot in free),
            key=lambda pair: pair[0],
        )
        if kept > threshold * request.n_tokens:
            return best
    return min(free, key=lambda slot: slot.used)


def overdue(request: Request, now: float, timeout: float) -> Failed | None:
    """The end of a request that has waited for `timeout` seconds; 0 is no deadline.

    One that has started and was put back has an answer to finish: it goes on waiting.
    """
    if not timeout or request.started is not None or now - request.arrived < timeout:
        return None
    return Failed(
        request.id,
        503,
        "unavailable_error",
        f"no slot became free within {timeout:g} seconds, try again later",
        retry_after=RETRY_AFTER,
    )
