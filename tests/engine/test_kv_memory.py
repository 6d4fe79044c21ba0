"""The bytes that keys and values really take, against what the plan promised."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from mlxceld.plan import Plan, Wish
from tests.engine import real
from tests.engine.families import FAMILIES, OWN_STATE, TOGETHER
from tests.tiny import VOCAB_SIZE

# isort: split
import mlx.core as mx

PER_TOKEN = (16 + 16) * 4
"""One layer of one head, keys and values of 16 floats."""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> real.Model:
    return real.tiny_model(
        tmp_path_factory,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
    )


def _filled(model: real.Model, plan: Plan, chunk: int = 1024) -> tuple[int, int]:
    """Fill every slot to its last cell.

    Returns the bytes that the runner tells of, and by which MLX's own count grew.
    """
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    runner = model.runner(plan.slots, plan.cells)
    share = plan.pool // plan.slots if plan.shared else plan.slot_ctx
    for slot in range(plan.slots):
        for position in range(0, share, chunk):
            n = min(chunk, share - position)
            runner.prefill(slot, slot * share, position, [3 + slot] * n)
    gc.collect()
    mx.clear_cache()
    return runner.kv_bytes, mx.get_active_memory() - before


@pytest.mark.parametrize("slots", [1, 2, 4, 8])
@pytest.mark.parametrize("unified", [False, True])
def test_llama_compat_takes_the_same_whatever_the_number_of_slots(
    slots: int, unified: bool, llama: real.Model
) -> None:
    plan = llama.plan(Wish("llama-compat", 8192, slots, kv_unified=unified))
    told, measured = _filled(llama, plan)
    assert plan.kv_bytes == 8192 * PER_TOKEN
    assert told <= plan.kv_bytes
    assert abs(told - 8192 * PER_TOKEN) <= 0.02 * 8192 * PER_TOKEN
    assert abs(measured - 8192 * PER_TOKEN) <= 0.02 * 8192 * PER_TOKEN


@pytest.mark.parametrize("slots", [1, 2, 4, 8])
@pytest.mark.parametrize("mode", ["legacy", "per-seq"])
def test_legacy_and_per_seq_take_as_much_for_every_further_slot(
    slots: int, mode: str, llama: real.Model
) -> None:
    if mode == "legacy":
        plan = llama.plan(Wish("legacy", 2048, slots))
    else:
        plan = llama.plan(Wish("per-seq", None, slots, ctx_size_per_seq=2048))
    told, measured = _filled(llama, plan)
    assert plan.kv_bytes == slots * 2048 * PER_TOKEN
    assert told == plan.kv_bytes
    assert abs(measured - plan.kv_bytes) <= 0.02 * plan.kv_bytes


def test_a_division_with_a_rest_takes_no_more_than_its_plan(llama: real.Model) -> None:
    plan = llama.plan(Wish("llama-compat", 8192, 3))
    told, measured = _filled(llama, plan)
    # Three slots of 2730 tokens leave 2 of 8192 unused.
    assert told == 3 * 2730 * PER_TOKEN
    assert told <= plan.kv_bytes
    assert measured <= plan.kv_bytes * 1.02


@pytest.mark.parametrize("family", OWN_STATE)
def test_state_of_its_own_stays_within_the_plan_too(
    family: str, tmp_path: Path
) -> None:
    """Chunks far longer than the window of 8, slots no multiple of anything."""
    loaded = real.tiny_model(tmp_path, family, **FAMILIES[family])
    plan = loaded.plan(Wish("llama-compat", 603, 2, min_slot_ctx=1))
    told, measured = _filled(loaded, plan, chunk=200)
    assert told <= plan.kv_bytes
    # MLX lets a small array share a buffer that is larger by up to 16 KiB.
    assert measured <= plan.kv_bytes * 1.02 + 16384


@pytest.mark.parametrize("family", ["mamba2", "gemma3_text", "qwen3_next"])
def test_slots_that_leave_the_batch_one_by_one_stay_within_the_plan(
    family: str, tmp_path: Path
) -> None:
    """Sizes large enough that a view of everybody's state would show."""
    larger = {
        "mamba2": {"state_size": 256},
        "gemma3_text": {"sliding_window": 256, "head_dim": 64},
        "qwen3_next": {"linear_key_head_dim": 128, "linear_value_head_dim": 128},
    }[family]
    loaded = real.tiny_model(tmp_path, family, **(FAMILIES[family] | larger))
    slots, n = 6, 40
    plan = loaded.plan(Wish("llama-compat", 600, slots, min_slot_ctx=1))
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    runner = loaded.runner(slots, plan.cells)
    assert runner.batched == (family in TOGETHER)
    for slot in range(slots):
        runner.prefill(slot, slot * 100, 0, [3 + slot] * n)
        runner.mark(slot, n)
    most = 0
    for last in range(slots, 0, -1):
        for step in range(2):
            position = n + 2 * (slots - last) + step
            rows = [
                real.row(slot=i, start=i * 100, position=position, id_=i)
                for i in range(last)
            ]
            runner.step(rows).read()
            most = max(most, mx.get_active_memory() - before)
    assert runner.kv_bytes <= plan.kv_bytes
    # The state of one slot may be on its way, small arrays share larger buffers; views
    # of the state of all would be more than 20 of one.
    one = plan.fixed_bytes_per_slot / 2
    assert most <= 1.02 * plan.kv_bytes + one + slots * 16384


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_quantised_cells_take_what_the_plan_says(kind: str, tmp_path: Path) -> None:
    """Two heads of 64 in each of three layers, float32: codes, scales, offsets."""
    per_token = {"q8_0": 3 * 2 * 2 * (64 + 16), "q4_0": 3 * 2 * 2 * (32 + 16)}[kind]
    loaded = real.tiny_model(tmp_path, head_dim=64)
    loaded.map = loaded.map.stored_as(kind, kind)
    plan = loaded.plan(Wish("llama-compat", 2048, 4))
    told, measured = _filled(loaded, plan)
    assert told == plan.kv_bytes == 2048 * per_token
    assert abs(measured - told) <= 0.02 * told


def test_what_a_slot_keeps_is_let_go_with_its_text(tmp_path: Path) -> None:
    """Without the pool, texts of two slots in turn must not add up."""
    loaded = real.tiny_model(tmp_path)
    loaded.map, loaded.batched = loaded.map.unpooled(), False
    wish = Wish("llama-compat", 600, 2, kv_unified=True)
    asked = [real.ask(i, [3 + i] * 520, 20, cache_prompt=True) for i in range(3)]
    run = real.serve(loaded, asked, wish, every=1, chunk=200)
    assert len(run.answers) == 3
    assert run.most_kv_bytes <= loaded.plan(wish).kv_bytes


def test_caches_outside_the_pool_stay_within_the_plan(llama: real.Model) -> None:
    own = real.Model(llama.path, llama.model, llama.map.unpooled())
    plan = own.plan(Wish("llama-compat", 1400, 2))
    told, measured = _filled(own, plan, chunk=150)
    assert 1400 * PER_TOKEN <= told <= plan.kv_bytes
    assert measured <= plan.kv_bytes * 1.02


@pytest.mark.parametrize(
    "wish",
    [
        Wish("legacy", 256, 4),
        Wish("llama-compat", 1024, 4, min_slot_ctx=1),
        Wish("llama-compat", 256, 4, kv_unified=True),
    ],
    ids=["legacy", "split", "shared"],
)
def test_a_busy_engine_never_holds_more_than_the_plan(
    wish: Wish, llama: real.Model
) -> None:
    """Ten requests that would all run to the end of their slots."""
    chance = random.Random(2)
    asked = [
        real.ask(i, [chance.randrange(3, VOCAB_SIZE) for _ in range(n)], 80)
        for i, n in enumerate((200, 3, 90, 41, 150, 12, 7, 100, 60, 30))
    ]
    plan = llama.plan(wish)
    run = real.serve(llama, asked, wish)
    assert run.most_kv_bytes <= plan.kv_bytes
    assert run.most_live <= plan.pool
    assert len(run.answers) == 10
