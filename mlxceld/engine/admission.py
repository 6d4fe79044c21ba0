"""What a request is refused for before it starts: pure rules, no state."""

from __future__ import annotations

from mlxceld.engine.messages import Failed, Generate
from mlxceld.engine.slot import Request
from mlxceld.plan import Plan

RETRY_AFTER = 1
"""Seconds after which a client that found no room may come back."""

_CLIENT_ERROR = "invalid_request_error"


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
        return Failed(
            request_id,
            400,
            "exceed_context_size_error",
            f"request ({n_prompt} tokens) exceeds the available context size "
            f"({n_ctx} tokens), try increasing it",
            n_prompt_tokens=n_prompt,
            n_ctx=n_ctx,
        )
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
