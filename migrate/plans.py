"""From values to plans, as the daemon makes them, without a model where there is none.

A plan that hangs on the training length of a model that nobody named is no refusal:
it is not known, and two of them are compared with a length that is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

from mlxceld.flips import after
from mlxceld.kinds import Value
from mlxceld.plan import Geometry, Mode, Plan, Wish, make_plan
from mlxceld.problems import Refused

from .migration import Outcome

ANY = 1 << 40
"""A training length that no number of tokens reaches."""

REFUSED = "refused: "
"""How the reason begins when the daemon itself refuses a plan."""

UNKNOWN = "it depends on the training length of the model"


def wish_of(values: Mapping[str, Value], mode: str) -> Wish:
    """What the daemon would ask the plan for; `mode` counts where none is said."""
    return Wish(
        mode=cast("Mode", values.get("engine.mode", mode)),
        ctx_size=_number(values, "engine.ctx_size"),
        parallel=_number(values, "engine.parallel"),
        ctx_size_per_seq=_number(values, "engine.ctx_size_per_seq") or None,
        kv_unified=cast("bool | None", values.get("engine.kv_unified")),
        min_slot_ctx=cast("int", values.get("engine.min_slot_ctx", 512)),
        memory_check=False,
    )


def _number(values: Mapping[str, Value], key: str) -> int | None:
    return cast("int | None", values.get(key))


def flipped(wish: Wish, said: Iterable[str], as_of: str = "") -> Wish:
    """The same words after the flips; `said` are the keys of the options they set."""
    return after(wish, dict.fromkeys(said, True), as_of)


def plan_of(wish: Wish, geometry: Geometry | None) -> Outcome:
    """The plan, or why there is none.

    The reason starts with `REFUSED` where the daemon itself would not start.
    """
    known = geometry is not None and geometry.n_ctx_train is not None
    model = geometry or Geometry()
    if not known:
        model = replace(model, n_ctx_train=ANY)
    try:
        plan = make_plan(wish, model)
    except Refused as refused:
        return Outcome(None, REFUSED + refused.problems[0].what)
    if not known and plan.slot_ctx >= ANY:
        return Outcome(None, f"{UNKNOWN}: {_shape(plan)}")
    return Outcome(plan)


def _shape(plan: Plan) -> str:
    """What is known of a plan without its length."""
    if plan.slots == 1:
        return "1 slot of that length"
    if plan.shared:
        return f"{plan.slots} slots share that many tokens"
    return f"{plan.slots} slots of that length each"


def numbers(plan: Plan) -> tuple[int, int, int, bool]:
    """What a request and the memory get."""
    return plan.slots, plan.slot_ctx, plan.pool, plan.shared


def same_plan(one: Outcome, other: Outcome) -> bool:
    """Whether two outcomes give the same, as far as can be known."""
    if one.plan is not None and other.plan is not None:
        return numbers(one.plan) == numbers(other.plan)
    if one.plan is None and other.plan is None:
        # The same unknown shape is the same plan; two refusals are never one.
        return one.refusal == other.refusal and one.refusal.startswith(UNKNOWN)
    return False
