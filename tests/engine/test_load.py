"""From an order to an engine that is ready: loaded, measured, planned and probed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.engine import Engine
from mlxceld.engine.load import load, pacing_of
from mlxceld.engine.scheduler import Scheduler
from mlxceld.geometry import read_geometry
from mlxceld.pacing import PACINGS
from mlxceld.plan import Wish
from mlxceld.problems import Refused
from tests.engine import real
from tests.engine.families import FAMILIES
from tests.tiny import IM_END, VOCAB_SIZE, tiny_gguf, tiny_model_dir

COMPAT = Wish("llama-compat", 2048, 4)


def _load(path: Path, wish: Wish = COMPAT, **order: Any) -> tuple[Engine, list[str]]:
    """The engine, and what it was busy with on the way."""
    told: list[m.Loading] = []
    source = m.ModelSource(path=str(path))
    engine = load(m.Load(source, wish, device="cpu", **order), told.append)
    return engine, [loading.doing for loading in told]


def _answer(engine: Engine, prompt: list[int], n: int) -> list[int]:
    out: list[m.Up] = []
    scheduler = Scheduler(engine.plan, engine.vocabulary, engine.runner, out.append)
    scheduler.submit(*real.ask(1, prompt, n))
    while scheduler.busy:
        scheduler.advance()
        scheduler.read_chunk()
    return real.collect(out)[1].tokens


@pytest.fixture(scope="module")
def llama_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory)


def test_an_engine_comes_with_measured_plan_and_filled_in_info(llama_dir: Path) -> None:
    engine, _ = _load(llama_dir)
    plan = engine.plan
    assert (plan.slots, plan.slot_ctx, plan.pool) == (4, 512, 2048)
    assert plan.measured
    # Three layers, two heads, keys and values of 16 floats.
    assert plan.kv_bytes_per_token == 768
    assert engine.runner.kv_bytes == plan.kv_bytes == 2048 * 768
    assert plan.work_bytes > 0
    info = engine.info
    assert plan.weight_bytes == info.size
    assert (info.n_vocab, info.n_ctx_train) == (VOCAB_SIZE, 2048)
    assert (info.device, info.batched, info.decode_note) == ("cpu", True, "")
    assert engine.vocabulary.eos_ids >= {IM_END}


@pytest.mark.parametrize(("chunk", "read"), [(0, 256), (128, 128)])
def test_the_planned_working_memory_is_that_of_the_chunks_that_are_read(
    chunk: int, read: int, llama_dir: Path
) -> None:
    engine, _ = _load(llama_dir, prefill_chunk=chunk)
    estimated = read_geometry(llama_dir, float32=True, chunk=read)
    assert engine.plan.work_bytes == estimated.step_bytes(4, 512)
    assert engine.pacing.chunk == 256
    assert engine.runner.reads_together


def test_chunks_are_not_filled_up_beyond_their_own_size() -> None:
    assert pacing_of("cuda", 64) == replace(PACINGS["cuda"], grain=64)
    assert pacing_of("cuda", 512) == PACINGS["cuda"]
    assert pacing_of("cpu", 64) == PACINGS["cpu"]


def test_loading_says_what_it_is_doing_in_order(llama_dir: Path) -> None:
    _, doing = _load(llama_dir)
    steps = [
        "reading the model",
        "loading weights",
        "measuring the caches",
        "probing the model",
        "allocating the pool",
    ]
    assert [step for step in dict.fromkeys(doing) if step in steps] == steps


def test_on_the_cpu_every_step_is_read_before_the_next_is_queued(
    llama_dir: Path,
) -> None:
    assert not _load(llama_dir)[0].runner.pipelined


def test_a_loaded_engine_answers_as_mlx_lm_does(llama_dir: Path) -> None:
    engine, _ = _load(llama_dir)
    model, _ = real.load_model(llama_dir)
    wanted = real.greedy(model, [5, 9, 33, 7], 12, engine.vocabulary.eos_ids)
    assert _answer(engine, [5, 9, 33, 7], 12) == wanted


def test_a_gguf_file_answers_as_the_same_weights_do_in_mlx_lm(tmp_path: Path) -> None:
    """GGUF's rotation works on neighbouring values."""
    engine, _ = _load(tiny_gguf(tmp_path / "tiny.gguf", kind="F32"))
    assert engine.info.batched
    same = tiny_model_dir(tmp_path / "same", rope_traditional=True)
    wanted = real.greedy(
        real.load_model(same)[0], [5, 9, 33, 7], 12, engine.vocabulary.eos_ids
    )
    assert _answer(engine, [5, 9, 33, 7], 12) == wanted


def test_a_family_that_cannot_share_a_step_says_why(tmp_path: Path) -> None:
    path = tiny_model_dir(tmp_path, model_type="gemma4_text", **FAMILIES["gemma4_text"])
    engine, _ = _load(path)
    assert not engine.info.batched
    assert engine.info.decode_note.startswith("rows cannot be decoded together: ")
    # A window of 8 tokens, once more for the end of a prompt; two heads, keys and
    # values of 16 floats.
    assert engine.plan.fixed_bytes_per_slot == 2 * 8 * 256
    model, _ = real.load_model(path)
    wanted = real.greedy(model, [5, 9, 33, 7] * 4, 10, engine.vocabulary.eos_ids)
    assert _answer(engine, [5, 9, 33, 7] * 4, 10) == wanted


def test_a_model_the_pool_does_not_suit_is_planned_with_its_own_caches(
    llama_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slot's caches may be larger than its text by 255 tokens."""
    from mlxceld.engine import probe

    verdict = probe.Verdict(False, False, "the pool does not suit this model: why")
    monkeypatch.setattr(probe, "probe", lambda *_, **__: verdict)
    engine, _ = _load(llama_dir)
    assert engine.info.decode_note == verdict.note
    assert not engine.info.batched
    assert engine.plan.fixed_bytes_per_slot == 255 * 768
    assert _answer(engine, [5, 9, 33], 3)
    assert engine.runner.kv_bytes == 256 * 768


@pytest.mark.parametrize(
    ("key_type", "value_type", "per_token"),
    [
        # Three layers, two heads of 32 keys and 32 values.
        ("f32", "auto", 3 * 2 * (32 + 32) * 4),
        ("f16", "bf16", 3 * 2 * (32 + 32) * 2),
        ("q8_0", "f16", 3 * 2 * ((32 + 2 * 4) + 32 * 2)),
        ("q8_0", "q8_0", 3 * 2 * 2 * (32 + 2 * 4)),
        ("q4_0", "q4_0", 3 * 2 * 2 * (16 + 2 * 4)),
    ],
)
def test_the_cache_types_are_in_the_plan_and_in_memory(
    key_type: str, value_type: str, per_token: int, tmp_path: Path
) -> None:
    path = tiny_model_dir(tmp_path, head_dim=32)
    engine, _ = _load(path, cache_type_k=key_type, cache_type_v=value_type)
    assert engine.plan.kv_bytes_per_token == per_token
    assert engine.runner.kv_bytes == engine.plan.kv_bytes == 2048 * per_token
    assert engine.info.batched
    assert len(_answer(engine, [5, 9, 33, 7], 12)) == 12


def test_attention_sinks_work_over_quantised_keys(tmp_path: Path) -> None:
    options = FAMILIES["gpt_oss"] | {"head_dim": 32}
    path = tiny_model_dir(tmp_path, model_type="gpt_oss", **options)
    engine, _ = _load(path, cache_type_k="q8_0", cache_type_v="q8_0")
    assert engine.info.batched
    # One layer in the pool; the two windows keep the model's precision.
    assert engine.plan.kv_bytes_per_token == 2 * 2 * (32 + 2 * 4)
    assert engine.plan.fixed_bytes_per_slot == 2 * 2 * 8 * 2 * (32 + 32) * 4
    assert len(_answer(engine, [5, 9, 33, 7], 12)) == 12


def test_heads_that_cannot_be_quantised_are_refused_with_their_size(
    llama_dir: Path,
) -> None:
    with pytest.raises(Refused) as caught:
        _load(llama_dir, cache_type_k="q4_0")
    (problem,) = caught.value.problems
    assert problem.where == str(llama_dir)
    assert problem.what == (
        "cache type: q4_0 needs heads of a multiple of 32, not of 16 values"
    )
    assert "f16" in problem.hint


def test_a_cache_type_is_never_dropped_in_silence(
    llama_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the pool does not suit a model there is nothing to store as asked."""
    from mlxceld.engine import probe

    verdict = probe.Verdict(False, False, "the pool does not suit this model: why")
    monkeypatch.setattr(probe, "probe", lambda *_, **__: verdict)
    with pytest.raises(Refused, match="cache type: the pool does not suit this model"):
        _load(llama_dir, cache_type_v="f16")


def test_what_does_not_fit_is_refused_with_the_numbers(llama_dir: Path) -> None:
    with pytest.raises(Refused) as caught:
        _load(llama_dir, Wish("legacy", 2048, 4), memory_limit=5 << 20)
    (problem,) = caught.value.problems
    assert "mode legacy with 4 slots of 2048 tokens needs" in problem.what
    assert "KV 6.0 MiB" in problem.what
    assert "more than the memory limit 5.0 MiB" in problem.what


def test_a_context_left_open_is_lowered_to_what_fits(llama_dir: Path) -> None:
    room = read_geometry(llama_dir, float32=True, chunk=256)
    # A cell, and a score for each of 256 tokens and 4 heads and a byte of the mask.
    per_token = 768 + 256 * (4 * 4 + 1)
    limit = room.weight_bytes + room.step_bytes(1, 0) + 1100 * per_token
    engine, _ = _load(llama_dir, Wish("legacy"), memory_limit=limit)
    assert engine.plan.slot_ctx == 1024
    assert engine.runner.kv_bytes == 1024 * 768
    assert len(engine.plan.notes) == 1


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        _load(tmp_path / "gone")
    assert caught.value.problems[0].where == str(tmp_path / "gone")
