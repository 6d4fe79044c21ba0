"""What a plan costs, what does not fit, and how it is told."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.plan import Geometry, Mode, Wish, make_plan, size
from mlxceld.problems import Refused
from tests.test_plan import MIB, numbers, plan_of, refusal

GIB = 1 << 30

# ---- memory ----

MODEL = Geometry(
    n_ctx_train=8192,
    kv_bytes_per_token=1024,
    weight_bytes=100 * MIB,
    work_bytes=10 * MIB,
)


@pytest.mark.parametrize("unified", [None, True])
def test_the_kv_memory_of_llama_compat_does_not_depend_on_the_number_of_slots(
    unified: bool | None,
) -> None:
    plans = [
        plan_of("llama-compat", 8192, n, unified=unified, model=MODEL)
        for n in (1, 2, 4, 8)
    ]
    assert [plan.kv_bytes for plan in plans] == [8 * MIB] * 4


def test_the_kv_memory_of_legacy_and_per_seq_grows_with_the_number_of_slots() -> None:
    for n in (1, 2, 4, 8):
        legacy = plan_of("legacy", 8192, n, model=MODEL)
        per_seq = plan_of("per-seq", None, n, per_seq=8192, model=MODEL)
        assert legacy.kv_bytes == per_seq.kv_bytes == n * 8 * MIB


def test_state_of_a_fixed_size_is_counted_for_each_slot() -> None:
    model = dataclasses.replace(MODEL, fixed_bytes_per_slot=MIB)
    plan = plan_of("llama-compat", 8192, 4, model=model)
    assert plan.kv_bytes == 12 * MIB
    assert plan.total_bytes == (100 + 10 + 12) * MIB


def test_an_explicit_context_is_refused_and_never_lowered() -> None:
    text = refusal(Wish("legacy", 8192, 4), MODEL, 120 * MIB)
    assert text.splitlines()[0] == (
        "mode legacy with 4 slots of 8192 tokens needs 142.0 MiB (weights 100.0 MiB, "
        "KV 32.0 MiB, one step 10.0 MiB), more than the memory limit 120.0 MiB"
    )
    assert "lower ctx_size or parallel" in text


def test_what_fits_exactly_is_served() -> None:
    assert plan_of("legacy", 8192, 4, model=MODEL, limit=142 * MIB).pool == 32768
    refusal(Wish("legacy", 8192, 4), MODEL, 142 * MIB - 1)


@pytest.mark.parametrize(
    ("mode", "parallel", "expected"),
    [
        # 4 MiB are left: 4096 cells, in one window, in two, or shared by four.
        ("legacy", 1, (1, 4096, 4096, False)),
        ("llama-compat", 2, (2, 2048, 4096, False)),
        ("llama-compat", None, (4, 4096, 4096, True)),
    ],
)
def test_a_context_that_was_not_asked_for_is_lowered_to_what_memory_allows(
    mode: Mode, parallel: int | None, expected: tuple[int, int, int, bool]
) -> None:
    plan = plan_of(mode, None, parallel, model=MODEL, limit=114 * MIB)
    assert numbers(plan) == expected
    assert plan.notes == (
        f"ctx_size is not set: {expected[1]} instead of the training length 8192, "
        "which does not fit into 114.0 MiB",
    )


def test_a_context_that_the_daemon_chooses_is_a_multiple_of_256() -> None:
    plan = plan_of("legacy", None, 1, model=MODEL, limit=114 * MIB - 1)
    assert plan.slot_ctx == 4096 - 256


def test_below_the_floor_nothing_is_lowered_any_further() -> None:
    text = refusal(Wish("legacy", None, 1), MODEL, 110 * MIB + 400 * 1024)
    assert "with 1 slot of 512 tokens" in text


def test_a_context_that_fits_is_not_lowered() -> None:
    plan = plan_of("legacy", None, 1, model=MODEL, limit=118 * MIB)
    assert plan.slot_ctx == 8192
    assert plan.notes == ()


def test_without_the_memory_check_nothing_is_lowered_or_refused() -> None:
    wish = Wish("legacy", None, 4, memory_check=False)
    assert make_plan(wish, MODEL, MIB).pool == 32768
    wish = dataclasses.replace(wish, ctx_size=4096)
    assert make_plan(wish, MODEL, MIB).pool == 16384


SCORES = dataclasses.replace(
    MODEL, work_bytes_per_cell=1024, work_bytes_per_slot=2 * MIB
)
"""A model whose attention scores are held whole: 1 KiB for each token before."""


@pytest.mark.parametrize(
    ("mode", "ctx", "parallel", "step"),
    [
        # A chunk, the scores of one slot's context, and the rows of a step.
        ("legacy", 8192, 1, 10 + 8 + 2),
        ("legacy", 8192, 4, 10 + 8 + 8),
        ("llama-compat", 8192, 4, 10 + 2 + 8),
        ("llama-compat", 8192, None, 10 + 8 + 8),
        # What is served counts, not what was asked for.
        ("legacy", 100000, 1, 10 + 8 + 2),
    ],
)
def test_a_step_needs_memory_for_the_context_of_a_slot_and_for_each_slot(
    mode: Mode, ctx: int, parallel: int | None, step: int
) -> None:
    assert plan_of(mode, ctx, parallel, model=SCORES).work_bytes == step * MIB


@pytest.mark.parametrize(
    ("ctx", "parallel", "step"),
    [
        # 10 MiB for a chunk, 1 MiB for each part of each row: of 256 tokens, from
        # eight rows on; of a few rows 64; and 64 of them at most.
        (2048, 8, 10 + 8 * 8),
        (8192, 8, 10 + 8 * 32),
        (2048, 1, 10 + 32),
        (8192, 1, 10 + 64),
    ],
)
def test_a_step_needs_memory_for_the_parts_of_its_rows(
    ctx: int, parallel: int, step: int
) -> None:
    model = dataclasses.replace(MODEL, work_bytes_per_part=MIB)
    assert plan_of("legacy", ctx, parallel, model=model).work_bytes == step * MIB


@pytest.mark.parametrize(
    ("mode", "parallel", "left", "expected"),
    [
        # 4096 tokens with 1 KiB each for the scores, and as much for each slot's cells.
        ("legacy", 1, 2 + 8, (1, 4096, 4096, False)),
        ("legacy", 3, 6 + 16, (3, 4096, 12288, False)),
        ("llama-compat", 2, 4 + 12, (2, 4096, 8192, False)),
        ("llama-compat", None, 8 + 8, (4, 4096, 4096, True)),
    ],
)
def test_a_context_is_lowered_until_its_scores_fit_as_well(
    mode: Mode, parallel: int | None, left: int, expected: tuple[int, int, int, bool]
) -> None:
    """Beside weights of 100 MiB and a chunk of 10 MiB."""
    limit = (110 + left) * MIB
    plan = plan_of(mode, None, parallel, model=SCORES, limit=limit)
    assert numbers(plan) == expected
    assert plan.total_bytes == limit
    plan = plan_of(mode, None, parallel, model=SCORES, limit=limit - 1)
    assert plan.slot_ctx == 4096 - 256


def test_scores_that_do_not_fit_are_refused_with_the_step_they_make_large() -> None:
    assert "one step 20.0 MiB" in refusal(Wish("legacy", 8192, 1), SCORES, 127 * MIB)
    assert plan_of("legacy", 8192, 1, model=SCORES, limit=128 * MIB).slot_ctx == 8192


@settings(derandomize=True, deadline=None)
@given(
    mode=st.sampled_from(["legacy", "llama-compat", "per-seq"]),
    ctx=st.none() | st.integers(0, 20000),
    parallel=st.none() | st.integers(-1, 9),
    per_seq=st.none() | st.integers(1, 9000),
    unified=st.none() | st.booleans(),
    trained=st.integers(1, 9000),
    limit=st.none() | st.integers(0, 300 * MIB),
    scores=st.integers(0, 5000),
)
def test_a_plan_keeps_its_promises_whatever_was_asked(
    mode: Mode,
    ctx: int | None,
    parallel: int | None,
    per_seq: int | None,
    unified: bool | None,
    trained: int,
    limit: int | None,
    scores: int,
) -> None:
    model = dataclasses.replace(
        MODEL,
        n_ctx_train=trained,
        work_bytes_per_cell=scores,
        work_bytes_per_slot=999,
        work_bytes_per_part=77,
    )
    try:
        plan = make_plan(Wish(mode, ctx, parallel, per_seq, unified), model, limit)
    except Refused:
        return
    assert 1 <= plan.slot_ctx <= trained
    assert plan.slot_ctx <= plan.pool
    assert plan.slots >= 1
    assert plan.cells <= plan.pool
    assert plan.shared or plan.slots * plan.slot_ctx <= plan.pool
    assert limit is None or plan.total_bytes <= limit
    assert ctx is None or ctx == 0 or mode != "llama-compat" or plan.pool <= ctx


# ---- words ----


def test_the_lines_of_a_split_plan_name_every_number() -> None:
    plan = plan_of("llama-compat", 8192, 4, model=MODEL, limit=GIB)
    assert list(plan.lines()) == [
        "4 slots of 2048 tokens each, 8192 in all (mode llama-compat)",
        "KV memory at most 8.0 MiB (1024 bytes per token, estimated)",
        "memory 118.0 MiB of 1.0 GiB: weights 100.0 MiB, KV 8.0 MiB, one step 10.0 MiB",
        "prompts kept in RAM: at most 906.0 MiB beside that (cache_ram)",
    ]


def test_the_lines_of_a_shared_plan_say_what_one_request_may_use() -> None:
    model = Geometry(n_ctx_train=8192, kv_bytes_per_token=1024, measured=True)
    plan = plan_of("llama-compat", 10000, None, model=model)
    assert list(plan.lines()) == [
        "4 slots share 10000 tokens; one request may use up to 8192 "
        "(mode llama-compat, kv_unified)",
        "KV memory at most 9.8 MiB (1024 bytes per token, measured)",
    ]


def test_one_slot_is_told_in_the_singular() -> None:
    plan = plan_of("legacy", 1000, 1)
    assert list(plan.lines()) == ["1 slot of 1000 tokens (mode legacy)"]


def test_no_line_ends_with_a_full_stop() -> None:
    texts = [
        refusal(Wish("llama-compat", 2048, 5)),
        refusal(Wish("legacy", 8192, 4), MODEL, MIB),
        *plan_of("legacy", 9000, 2, model=MODEL).notes,
    ]
    assert not any(re.search(r"\.$", text, re.MULTILINE) for text in texts)


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (180 * MIB, "180.0 MiB"),
        (GIB + GIB // 2, "1.5 GiB"),
        (3 << 40, "3.0 TiB"),
    ],
)
def test_bytes_are_told_in_binary_units(n: int, text: str) -> None:
    assert size(n) == text


@pytest.mark.parametrize(
    ("wanted", "granted"),
    [
        (None, 906 * MIB),
        (-1, 906 * MIB),
        (0, 0),
        (100 * MIB, 100 * MIB),
        (2000 * MIB, 906 * MIB),
    ],
)
def test_prompts_kept_in_ram_get_what_is_wanted_and_left(
    wanted: int | None, granted: int
) -> None:
    """1 GiB less weights 100 MiB, KV 8 MiB and a step of 10 MiB leaves 906 MiB."""
    wish = Wish("llama-compat", 8192, 4, cache_ram=wanted)
    plan = make_plan(wish, MODEL, GIB)
    assert plan.cache_ram_bytes == granted
    assert any("cache_ram 2.0 GiB" in note for note in plan.notes) == (
        wanted == 2000 * MIB
    )


def test_the_default_for_saved_prompts_is_llama_servers_where_memory_allows_it() -> (
    None
):
    wish = Wish("llama-compat", 8192, 4)
    assert make_plan(wish, MODEL, 64 * GIB).cache_ram_bytes == 8192 * MIB
    assert make_plan(wish, MODEL).cache_ram_bytes == 8192 * MIB


def test_saved_prompts_never_make_a_plan_fail() -> None:
    """The plan takes the limit to the byte: nothing is left for them."""
    wish = Wish("llama-compat", 8192, 4, cache_ram=GIB)
    plan = make_plan(wish, MODEL, 118 * MIB)
    assert plan.cache_ram_bytes == 0
    wish = Wish("llama-compat", 8192, 4, cache_ram=GIB, memory_check=False)
    assert make_plan(wish, MODEL, 50 * MIB).cache_ram_bytes == 0
