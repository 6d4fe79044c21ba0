"""The checks at load: which families may share a step, and how a fault shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine import real
from tests.engine.families import ALONE, FAMILIES, READ_TOGETHER, TOGETHER

# isort: split
import mlx.core as mx
from mlx_lm.models import llama

from mlxceld.engine.batch import ModelRunner, Step
from mlxceld.engine.chunkrows import ChunkRows
from mlxceld.engine.pool import Layer
from mlxceld.engine.probe import Verdict, probe, writes_in_place
from mlxceld.engine.rows import StepRows
from mlxceld.engine.runner import Part, Row
from tests.tiny import VOCAB_SIZE


def _probe(loaded: real.Model, *, cell_major: bool = False) -> Verdict:
    return probe(loaded.model, loaded.map, VOCAB_SIZE, cell_major=cell_major)


@pytest.mark.parametrize("cell_major", [False, True])
@pytest.mark.parametrize("family", TOGETHER)
def test_rows_of_most_families_are_decoded_together(
    family: str, cell_major: bool, tmp_path: Path
) -> None:
    loaded = real.tiny_model(tmp_path, family, **FAMILIES[family])
    verdict = _probe(loaded, cell_major=cell_major)
    assert verdict == Verdict(True, True, together=family in READ_TOGETHER)


@pytest.mark.parametrize("family", ALONE)
def test_a_family_that_reckons_with_its_cache_itself_is_found_out(
    family: str, tmp_path: Path
) -> None:
    verdict = _probe(real.tiny_model(tmp_path, family, **FAMILIES[family]))
    assert (verdict.pooled, verdict.batched) == (True, False)
    assert not verdict.together
    assert verdict.note.startswith("rows cannot be decoded together: ")


def test_half_precision_rounding_is_no_fault(tmp_path: Path) -> None:
    loaded = real.tiny_model(tmp_path)
    loaded.model.set_dtype(mx.float16)
    loaded.map = real.caches.measure(loaded.model)
    assert _probe(loaded) == Verdict(True, True, together=True)


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0", "q4_0"])
@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_another_cache_type_changes_no_verdict(
    family: str, kind: str, tmp_path: Path
) -> None:
    """Attention sinks included."""
    loaded = real.tiny_model(tmp_path, family, **(FAMILIES[family] | {"head_dim": 32}))
    for cell_major in (False, True):
        verdict = probe(
            loaded.model,
            loaded.map,
            VOCAB_SIZE,
            cell_major=cell_major,
            stored=loaded.map.stored_as(kind, kind),
        )
        assert verdict == Verdict(True, True, together=family == "llama")


def test_a_device_that_stores_wrongly_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the last cell of a view were another."""
    held = Layer.held
    monkeypatch.setattr(
        Layer, "held", lambda layer, start, end: held(layer, start + 1, end + 1)
    )
    loaded = real.tiny_model(tmp_path, head_dim=32)
    monkeypatch.setattr("mlxceld.engine.probe._compare", lambda *_: None)
    stored = loaded.map.stored_as("q8_0", "q8_0")
    verdict = probe(
        loaded.model, loaded.map, VOCAB_SIZE, cell_major=False, stored=stored
    )
    assert not verdict.pooled
    assert verdict.note.startswith("this device stores them ")


def test_a_model_with_nothing_in_the_pool_is_not_queued(tmp_path: Path) -> None:
    loaded = real.tiny_model(tmp_path, "mamba2", **FAMILIES["mamba2"])
    assert not writes_in_place(loaded.runner(2, 64))


def test_no_cell_past_the_end_of_a_small_pool_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = real.tiny_model(tmp_path).runner(1, 2)
    written: list[int] = []
    step = runner.step

    def watched(rows: Sequence[Row], part: Part | None = None) -> Step:
        written.extend(row.start + row.position for row in rows)
        return step(rows, part)

    monkeypatch.setattr(runner, "step", watched)
    writes_in_place(runner)
    assert set(written) == {0, 1}


def _breaking(spoil: Any) -> Any:
    """The attention function of a family with a mind of its own."""

    def attention(
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        cache: Any,
        scale: float,
        mask: Any,
    ) -> mx.array:
        return spoil(queries, keys, values, cache, scale, mask)

    return attention


def test_a_matrix_product_with_the_fetched_keys_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right over a cache that fetches the whole text, wrong over a row's one token."""

    def product(
        q: mx.array, k: mx.array, v: mx.array, _cache: Any, scale: float, mask: Any
    ) -> mx.array:
        k, v = mx.repeat(k, 2, axis=1), mx.repeat(v, 2, axis=1)
        scores = (q * scale) @ k.swapaxes(-1, -2)
        if mask is not None:
            seen = mx.tril(mx.ones(scores.shape[-2:]), scores.shape[-1] - q.shape[2])
            scores = mx.where(seen > 0, scores, -1e9)
        return mx.softmax(scores, axis=-1) @ v

    loaded = real.tiny_model(tmp_path)
    monkeypatch.setattr(llama, "scaled_dot_product_attention", _breaking(product))
    verdict = _probe(loaded)
    assert (verdict.pooled, verdict.batched) == (True, False)
    assert "logits differ by" in verdict.note


def test_a_row_that_sees_one_token_too_few_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short(StepRows):
        def __init__(self, starts: Sequence[int], positions: Sequence[int]) -> None:
            super().__init__(starts, positions)
            self.spans = [(start + 1, end) for start, end in self.spans]

    monkeypatch.setattr("mlxceld.engine.batch.StepRows", Short)
    verdict = _probe(real.tiny_model(tmp_path))
    assert (verdict.pooled, verdict.batched) == (True, False)


def test_a_model_that_reads_its_cache_beyond_the_contract_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads(
        q: mx.array, k: mx.array, v: mx.array, cache: Any, scale: float, mask: Any
    ) -> mx.array:
        size = cache.keys.shape[2]
        assert size >= k.shape[2]
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask)

    loaded = real.tiny_model(tmp_path)
    monkeypatch.setattr(llama, "scaled_dot_product_attention", _breaking(reads))
    verdict = _probe(loaded)
    assert (verdict.pooled, verdict.batched) == (False, False)
    assert verdict.note.startswith("the pool does not suit this model: ")


@pytest.mark.parametrize("end", [0, 1])
def test_a_chunk_read_beside_another_that_is_written_too_short_is_caught(
    end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the last token of one prompt's chunks were filling."""

    class Short(ChunkRows):
        def __init__(
            self, layer: Layer, parts: Sequence[Part], *shared: Any, **more: Any
        ) -> None:
            short = parts[end]
            spoilt = [*short.tokens[:-1]] or [0]
            parts = list(parts)
            parts[end] = replace(short, start=short.start + 1, tokens=spoilt)
            super().__init__(layer, parts, *shared, **more)

    monkeypatch.setattr("mlxceld.engine.batch.ChunkRows", Short)
    verdict = _probe(real.tiny_model(tmp_path))
    assert (verdict.pooled, verdict.batched, verdict.together) == (True, True, False)


def test_a_model_that_fails_at_chunks_of_several_prompts_reads_them_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_runner: Any, _parts: Any) -> None:
        raise ValueError("not of this shape")

    monkeypatch.setattr(ModelRunner, "prefill_together", fails)
    assert _probe(real.tiny_model(tmp_path)) == Verdict(True, True)


def test_steps_that_are_read_at_once_count_as_in_place(tmp_path: Path) -> None:
    loaded = real.tiny_model(tmp_path)
    assert writes_in_place(loaded.runner(2, 32768))


def test_a_queue_of_steps_that_copies_a_layer_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner that keeps a view alive from step to step makes MLX copy the layer."""
    loaded = real.tiny_model(tmp_path)
    runner = loaded.runner(2, 32768)
    step = runner.step
    kept: list[Any] = []

    def holding(rows: Any, *more: Any) -> Any:
        if rows[0].token is None:
            kept.append(runner._pool.layers[0].view(0, 8))
        return step(rows, *more)

    monkeypatch.setattr(runner, "step", holding)
    assert not writes_in_place(runner)
