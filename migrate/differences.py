"""Says in sentences what is different after a migration, and by how much."""

from __future__ import annotations

from collections.abc import Iterator

from mlxceld.plan import Geometry, Plan, Wish

from .migration import Outcome

_CELL = 256
"""llama-server makes every context a multiple of this many tokens."""

MLX_LM_WIDTH = (
    "mlx_lm.server answers up to 32 requests at the same time; here 4 slots do and the "
    "others wait, unless engine.parallel says more"
)


def between(old: Outcome, new: Outcome) -> Iterator[str]:
    """What another plan changes for requests and for memory."""
    if old.plan is None or new.plan is None:
        return
    before, after = old.plan, new.plan
    if before.slots != after.slots:
        yield f"slots: {before.slots} before, {after.slots} after"
    if before.slot_ctx != after.slot_ctx:
        yield (
            f"tokens of one request: {before.slot_ctx} before, {after.slot_ctx} after"
        )
    if before.pool != after.pool:
        yield f"tokens of all requests: {before.pool} before, {after.pool} after"
    if before.shared != after.shared:
        yield (
            "the slots share one pool after"
            if after.shared
            else "the slots no longer share one pool"
        )
    if before.kv_bytes != after.kv_bytes:
        yield f"KV bytes: {before.kv_bytes} before, {after.kv_bytes} after"


def from_llama_server(
    wish: Wish, plan: Plan, geometry: Geometry | None
) -> Iterator[str]:
    """Where llama-server's own arithmetic gives one request another number.

    It rounds the context and every share of it up to 256 tokens (llama.cpp b11434);
    the daemon serves exactly what the division leaves.
    """
    if not wish.ctx_size:
        return
    theirs = llama_slot_ctx(
        wish.ctx_size, plan.slots, shared=plan.shared, cap=wish.ctx_size_per_seq
    )
    if geometry is not None and geometry.n_ctx_train is not None:
        theirs = min(theirs, geometry.n_ctx_train)
    if theirs != plan.slot_ctx:
        yield (
            f"llama-server rounds up to a multiple of {_CELL}: one request may use "
            f"{theirs} tokens there, {plan.slot_ctx} here"
        )


def way_out_of_llama_server(wish: Wish) -> str:
    """What to write where llama-server rounds up and the daemon refuses, or nothing."""
    if not wish.ctx_size or not wish.parallel or wish.parallel < 1 or wish.kv_unified:
        return ""
    theirs = llama_slot_ctx(wish.ctx_size, wish.parallel, shared=False)
    floor = f" and min_slot_ctx = {theirs}" if theirs < wish.min_slot_ctx else ""
    return (
        f"; llama-server gives every slot {theirs} tokens, as ctx_size = "
        f"{theirs * wish.parallel}{floor} does here"
    )


def llama_slot_ctx(
    ctx: int, slots: int, *, shared: bool, cap: int | None = None
) -> int:
    """The slot context of llama-server before the training length, in tokens."""
    whole = _up(ctx)
    theirs = whole if shared else _up(whole // slots)
    return min(theirs, cap) if cap else theirs


def _up(tokens: int) -> int:
    return -(-tokens // _CELL) * _CELL
