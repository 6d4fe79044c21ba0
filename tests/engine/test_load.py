"""From an order to an engine that is ready: loaded, measured, planned and probed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.load import load
from mlxceld.engine.main import Engine
from mlxceld.engine.scheduler import Scheduler
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
    path = tiny_model_dir(tmp_path, model_type="gemma3_text", **FAMILIES["gemma3_text"])
    engine, _ = _load(path)
    assert not engine.info.batched
    assert not engine.runner.trimmable
    assert engine.info.decode_note == (
        "the model keeps state beside plain KV caches: one row at a time"
    )
    # Two windows of 8 tokens, two heads, keys and values of 16 floats.
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


def test_what_does_not_fit_is_refused_with_the_numbers(llama_dir: Path) -> None:
    with pytest.raises(Refused) as caught:
        _load(llama_dir, Wish("legacy", 2048, 4), memory_limit=5 << 20)
    (problem,) = caught.value.problems
    assert "mode legacy with 4 slots of 2048 tokens needs" in problem.what
    assert "KV 6.0 MiB" in problem.what
    assert "more than the memory limit 5.0 MiB" in problem.what


def test_a_context_left_open_is_lowered_to_what_fits(llama_dir: Path) -> None:
    room = _load(llama_dir)[0].plan
    limit = room.weight_bytes + room.work_bytes + 1100 * 768
    engine, _ = _load(llama_dir, Wish("legacy"), memory_limit=limit)
    assert engine.plan.slot_ctx == 1024
    assert engine.runner.kv_bytes == 1024 * 768
    assert len(engine.plan.notes) == 1


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        _load(tmp_path / "gone")
    assert caught.value.problems[0].where == str(tmp_path / "gone")
