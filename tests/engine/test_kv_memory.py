"""The bytes that keys and values really take, against what the plan promised."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from mlxceld.plan import Plan, Wish
from tests.engine import real
from tests.engine.families import FAMILIES
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


@pytest.mark.parametrize(
    "family", ["gemma3_text", "gpt_oss", "mamba2", "granitemoehybrid", "falcon_h1"]
)
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
