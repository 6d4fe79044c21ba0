"""What every slot gets and what it costs, number by number.

The rows of the tables are worked out by hand from the rules of the modes, or measured
on llama-server where both must agree.
"""

from __future__ import annotations

import pytest

from mlxceld.plan import Geometry, Mode, Plan, Wish, make_plan
from mlxceld.problems import Refused

LONG = Geometry(n_ctx_train=1 << 20)
"""A model whose training length is in nobody's way."""

MIB = 1 << 20


def plan_of(
    mode: Mode,
    ctx: int | None,
    parallel: int | None,
    *,
    per_seq: int | None = None,
    unified: bool | None = None,
    model: Geometry = LONG,
    limit: int | None = None,
) -> Plan:
    wish = Wish(mode, ctx, parallel, per_seq, unified)
    return make_plan(wish, model, limit)


def numbers(plan: Plan) -> tuple[int, int, int, bool]:
    return plan.slots, plan.slot_ctx, plan.pool, plan.shared


def refusal(wish: Wish, model: Geometry | None = LONG, limit: int | None = None) -> str:
    with pytest.raises(Refused) as caught:
        make_plan(wish, model, limit)
    return str(caught.value)


@pytest.mark.parametrize(
    ("ctx", "parallel", "slot_ctx", "pool"),
    [
        (4096, 1, 4096, 4096),
        (4096, 4, 4096, 16384),
        (8192, 3, 8192, 24576),
        (2048, 3, 2048, 6144),
        (1000, 1, 1000, 1000),
        (2048, 5, 2048, 10240),
        (100, 2, 100, 200),
        (4096, None, 4096, 4096),
        (4096, -1, 4096, 16384),
    ],
)
def test_legacy_gives_every_slot_the_whole_context(
    ctx: int, parallel: int | None, slot_ctx: int, pool: int
) -> None:
    slots = {None: 1, -1: 4}.get(parallel, parallel)
    assert numbers(plan_of("legacy", ctx, parallel)) == (slots, slot_ctx, pool, False)


@pytest.mark.parametrize(
    ("ctx", "parallel", "slot_ctx"),
    [
        (4096, 1, 4096),
        (4096, 4, 1024),
        (8192, 3, 2730),
        (2048, 3, 682),
        (2048, 4, 512),
        (1000, 1, 1000),
        (9216, 6, 1536),
        (100, 1, 100),
    ],
)
def test_llama_compat_divides_the_context_and_rounds_down_to_the_token(
    ctx: int, parallel: int, slot_ctx: int
) -> None:
    plan = plan_of("llama-compat", ctx, parallel)
    assert numbers(plan) == (parallel, slot_ctx, ctx, False)


@pytest.mark.parametrize(
    ("ctx", "parallel"), [(4096, None), (8192, None), (1000, -1), (2048, -1), (300, -1)]
)
def test_llama_compat_without_a_number_of_slots_shares_the_context_among_four(
    ctx: int, parallel: int | None
) -> None:
    assert numbers(plan_of("llama-compat", ctx, parallel)) == (4, ctx, ctx, True)


@pytest.mark.parametrize(
    ("ctx", "parallel"), [(4096, 1), (4096, 4), (8192, 3), (2048, 5), (1000, 1)]
)
def test_kv_unified_gives_each_request_up_to_the_whole_shared_context(
    ctx: int, parallel: int
) -> None:
    plan = plan_of("llama-compat", ctx, parallel, unified=True)
    assert numbers(plan) == (parallel, ctx, ctx, True)


def test_kv_unified_false_without_a_number_of_slots_still_means_four() -> None:
    """llama-server overrides the explicit wish there and shares; here it wins."""
    for parallel in (None, -1):
        plan = plan_of("llama-compat", 8192, parallel, unified=False)
        assert numbers(plan) == (4, 2048, 8192, False)


@pytest.mark.parametrize(
    ("per_seq", "parallel", "slots", "pool"),
    [
        (4096, 1, 1, 4096),
        (4096, 4, 4, 16384),
        (1536, 6, 6, 9216),
        (2048, 5, 5, 10240),
        (1000, None, 1, 1000),
        (1000, -1, 4, 4000),
        (100, 2, 2, 200),
    ],
)
def test_per_seq_gives_each_slot_its_own_and_the_memory_grows(
    per_seq: int, parallel: int | None, slots: int, pool: int
) -> None:
    plan = plan_of("per-seq", None, parallel, per_seq=per_seq)
    assert numbers(plan) == (slots, per_seq, pool, False)


@pytest.mark.parametrize(
    ("ctx", "per_seq", "parallel", "expected"),
    [
        (8192, 2048, None, (4, 2048, 8192, True)),
        (8192, 2048, -1, (4, 2048, 8192, True)),
        (8192, 2048, 8, (8, 2048, 8192, True)),
        (2048, 4096, 2, (2, 2048, 2048, True)),
        (None, 1000, None, (4, 1000, 4000, True)),
        (0, 1000, 3, (3, 1000, 3000, True)),
    ],
)
def test_per_seq_with_kv_unified_shares_the_context(
    ctx: int | None,
    per_seq: int,
    parallel: int | None,
    expected: tuple[int, int, int, bool],
) -> None:
    plan = plan_of("per-seq", ctx, parallel, per_seq=per_seq, unified=True)
    assert numbers(plan) == expected


def test_per_seq_says_that_a_context_has_no_effect_without_kv_unified() -> None:
    plan = plan_of("per-seq", 8192, 2, per_seq=1024)
    assert numbers(plan) == (2, 1024, 2048, False)
    assert plan.notes == (
        "ctx_size 8192 has no effect in mode per-seq without kv_unified",
    )


LLAMA = Geometry(n_ctx_train=8192, kv_bytes_per_token=23040)
"""SmolLM2-135M: 22.5 KiB for a cell."""


@pytest.mark.parametrize(
    ("ctx", "parallel", "unified", "per_seq", "slots", "slot_ctx", "kv_mib"),
    [
        (8192, 4, None, None, 4, 2048, 180),
        (8192, 4, True, None, 4, 8192, 180),
        (8192, 4, False, None, 4, 2048, 180),
        (0, None, None, None, 4, 8192, 180),
        (None, None, None, None, 4, 8192, 180),
        (8192, None, None, None, 4, 8192, 180),
        (8192, -1, None, None, 4, 8192, 180),
        (8192, 1, None, None, 1, 8192, 180),
        (0, 4, None, None, 4, 8192, 720),
        (None, 4, None, None, 4, 8192, 720),
        (0, 4, True, None, 4, 8192, 180),
        (16384, 4, True, None, 4, 8192, 360),
        (None, 4, None, 2048, 4, 2048, 180),
        (None, 4, True, 2048, 4, 2048, 180),
        (8192, 4, True, 1000, 4, 1000, 180),
        (8192, 4, None, 4096, 4, 2048, 180),
    ],
)
def test_the_numbers_are_those_measured_on_llama_server(
    ctx: int | None,
    parallel: int | None,
    unified: bool | None,
    per_seq: int | None,
    slots: int,
    slot_ctx: int,
    kv_mib: int,
) -> None:
    """Where its rounding to 256 plays no part and no cell lies idle above a cap."""
    plan = plan_of(
        "llama-compat", ctx, parallel, unified=unified, per_seq=per_seq, model=LLAMA
    )
    assert (plan.slots, plan.slot_ctx) == (slots, slot_ctx)
    assert plan.kv_bytes == kv_mib * MIB


@pytest.mark.parametrize(
    ("ctx", "parallel", "unified", "slots", "slot_ctx", "pool"),
    [
        # llama-server serves the same windows and allocates 16384 cells,
        (16384, 1, None, 1, 8192, 8192),
        # and four times 10240: cells that no request can reach.
        (40960, 4, None, 4, 8192, 32768),
    ],
)
def test_cells_that_no_request_can_reach_are_not_planned(
    ctx: int,
    parallel: int,
    unified: bool | None,
    slots: int,
    slot_ctx: int,
    pool: int,
) -> None:
    plan = plan_of("llama-compat", ctx, parallel, unified=unified, model=LLAMA)
    assert numbers(plan) == (slots, slot_ctx, pool, False)


def test_a_cap_per_request_without_a_context_sizes_the_pool() -> None:
    """llama-server rounds the pool of 4000 to 4096."""
    plan = plan_of("llama-compat", None, None, per_seq=1000, model=LLAMA)
    assert numbers(plan) == (4, 1000, 4000, True)


def test_a_cap_per_request_may_be_below_the_floor() -> None:
    """The floor is for a share that comes out of a division; this one was asked for."""
    plan = plan_of("llama-compat", None, 4, per_seq=256)
    assert numbers(plan) == (4, 256, 1024, False)


def test_a_cap_below_the_share_leaves_no_cells_idle() -> None:
    plan = plan_of("llama-compat", 8192, 2, per_seq=1000)
    assert numbers(plan) == (2, 1000, 2000, False)
    assert plan.cells == 2000


# ---- the training length ----


@pytest.mark.parametrize("ctx", [None, 0])
@pytest.mark.parametrize(
    ("mode", "parallel", "unified", "expected"),
    [
        ("legacy", None, None, (1, 2048, 2048, False)),
        ("legacy", 2, None, (2, 2048, 4096, False)),
        ("llama-compat", 2, None, (2, 2048, 4096, False)),
        ("llama-compat", 2, True, (2, 2048, 2048, True)),
        ("llama-compat", None, None, (4, 2048, 2048, True)),
        ("llama-compat", None, False, (4, 2048, 8192, False)),
    ],
)
def test_no_context_means_the_training_length_for_each_slot(
    ctx: int | None,
    mode: Mode,
    parallel: int | None,
    unified: bool | None,
    expected: tuple[int, int, int, bool],
) -> None:
    plan = plan_of(
        mode, ctx, parallel, unified=unified, model=Geometry(n_ctx_train=2048)
    )
    assert numbers(plan) == expected
    assert plan.notes == ()


@pytest.mark.parametrize(
    ("mode", "ctx", "per_seq", "unified", "expected"),
    [
        ("legacy", 4096, None, None, (2, 2048, 4096, False)),
        ("llama-compat", 8192, None, None, (2, 2048, 4096, False)),
        ("llama-compat", 3000, None, True, (2, 2048, 3000, True)),
        ("llama-compat", 9000, None, True, (2, 2048, 4096, True)),
        ("per-seq", None, 5000, None, (2, 2048, 4096, False)),
        ("per-seq", 3000, 2500, True, (2, 2048, 3000, True)),
    ],
)
def test_a_window_above_the_training_length_is_served_as_that_length_with_a_warning(
    mode: Mode,
    ctx: int | None,
    per_seq: int | None,
    unified: bool | None,
    expected: tuple[int, int, int, bool],
) -> None:
    plan = plan_of(
        mode,
        ctx,
        2,
        per_seq=per_seq,
        unified=unified,
        model=Geometry(n_ctx_train=2048),
    )
    assert numbers(plan) == expected
    [note] = plan.notes
    assert "above the training length 2048" in note


def test_a_context_equal_to_the_training_length_is_not_worth_a_warning() -> None:
    plan = plan_of("legacy", 2048, 1, model=Geometry(n_ctx_train=2048))
    assert plan.slot_ctx == 2048
    assert plan.notes == ()


def test_an_explicit_context_needs_no_training_length() -> None:
    assert numbers(make_plan(Wish("legacy", 2048, 2))) == (2, 2048, 4096, False)


def test_without_context_and_training_length_there_is_no_plan() -> None:
    text = refusal(Wish("legacy"), None)
    assert text == (
        "ctx_size is not set and the model does not say its training length\n"
        "  hint: set engine.ctx_size (`--ctx-size`)"
    )


# ---- refusals ----


def test_a_share_below_the_floor_names_all_numbers_and_both_ways_out() -> None:
    text = refusal(Wish("llama-compat", 2048, 5))
    assert text.splitlines()[0] == (
        "ctx_size 2048 divided by parallel 5 leaves 409 tokens for a slot, less than "
        "min_slot_ctx 512"
    )
    assert "raise ctx_size to at least 2560" in text
    assert "lower parallel to 4 or less" in text


def test_the_floor_is_the_first_share_that_is_served() -> None:
    assert plan_of("llama-compat", 2559, 4).slot_ctx == 639
    assert plan_of("llama-compat", 2560, 5).slot_ctx == 512
    assert "leaves 511 tokens" in refusal(Wish("llama-compat", 2559, 5))


def test_the_floor_can_be_lowered() -> None:
    plan = make_plan(Wish("llama-compat", 1024, 4, min_slot_ctx=256), LONG)
    assert numbers(plan) == (4, 256, 1024, False)


def test_the_number_of_slots_is_no_way_out_when_even_one_is_too_many() -> None:
    text = refusal(Wish("llama-compat", 400, 2))
    assert "leaves 200 tokens" in text
    assert "raise ctx_size to at least 1024" in text
    assert "lower parallel" not in text


def test_auto_slots_that_are_split_meet_the_floor_too() -> None:
    text = refusal(Wish("llama-compat", 1000, None, kv_unified=False))
    assert "ctx_size 1000 divided by parallel 4 leaves 250 tokens" in text


@pytest.mark.parametrize("mode", ["legacy", "llama-compat", "per-seq"])
def test_zero_slots_are_refused_in_every_mode(mode: Mode) -> None:
    per_seq = 1024 if mode == "per-seq" else None
    text = refusal(Wish(mode, 4096, 0, per_seq))
    assert text.startswith("parallel is 0\n")


def test_unset_auto_and_one_are_three_different_numbers_of_slots() -> None:
    seen = [
        [plan_of(mode, 4096, parallel).slots for parallel in (None, -1, 1)]
        for mode in ("legacy", "llama-compat")
    ]
    assert seen == [[1, 4, 1], [4, 4, 1]]
    shared = [plan_of("llama-compat", 4096, n).shared for n in (None, -1, 1)]
    assert shared == [True, True, False]


def test_legacy_and_a_shared_context_contradict_each_other() -> None:
    assert "contradict" in refusal(Wish("legacy", 4096, 2, kv_unified=True))
    assert plan_of("legacy", 4096, 2, unified=False).pool == 8192


def test_per_seq_needs_to_know_how_much_one_request_gets() -> None:
    text = refusal(Wish("per-seq", 4096, 2))
    assert text.startswith("mode per-seq needs ctx_size_per_seq")


def test_legacy_does_not_take_a_size_per_request() -> None:
    text = refusal(Wish("legacy", 4096, 2, 1024))
    assert "ctx_size_per_seq is 1024 and mode legacy does not know it" in text


def test_all_contradictions_are_told_together() -> None:
    with pytest.raises(Refused) as caught:
        make_plan(Wish("legacy", 4096, 0, 1024, kv_unified=True), LONG)
    assert len(caught.value.problems) == 3
