"""Chunks that are filled up to a multiple of the grain read what is theirs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine import real
from tests.engine.families import FAMILIES

# isort: split
import mlx.core as mx

from mlxceld.engine import batch
from mlxceld.engine.probe import nobody
from mlxceld.engine.runner import Part, Row

GRAIN, CELLS = 8, 40


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> real.Model:
    return real.tiny_model(tmp_path_factory)


def seen(model: real.Model, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the tokens that the model is given from now on."""
    shapes: list[tuple[int, ...]] = []

    class Watched:
        def __call__(self, tokens: mx.array, **rest: Any) -> mx.array:
            shapes.append(tokens.shape)
            return inner(tokens, **rest)

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

    inner = model.model
    monkeypatch.setattr(model, "model", Watched())
    return shapes


def next_logits(runner: batch.ModelRunner, start: int, tokens: list[int]) -> np.ndarray:
    """What the model says after the tokens, all but the last of them read before."""
    row = Row(0, start, len(tokens) - 1, tokens[-1], 0.0, nobody())
    return np.array(runner.logits([row], mx.array([tokens[-1]])))


def test_a_chunk_is_filled_up_and_the_answer_is_that_without(
    llama: real.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = list(range(5, 19))
    plain = llama.runner(1, CELLS)
    plain.prefill(0, 3, 0, tokens[:10])
    plain.prefill(0, 3, 10, tokens[10:13])
    shapes = seen(llama, monkeypatch)
    filled = llama.runner(1, CELLS, grain=GRAIN)
    filled.prefill(0, 3, 0, tokens[:10])
    filled.prefill(0, 3, 10, tokens[10:13])
    # To 16, and from there what is left of those 16.
    assert shapes == [(1, 16), (1, 6)]
    np.testing.assert_allclose(
        next_logits(filled, 3, tokens), next_logits(plain, 3, tokens), atol=1e-4
    )


def test_what_is_no_number_behind_a_chunk_does_not_reach_it(
    llama: real.Model,
) -> None:
    """Cells of others are seen with weight 0, and 0 times NaN is NaN."""
    tokens = list(range(5, 16))
    plain = llama.runner(2, CELLS)
    plain.prefill(0, 3, 0, tokens[:10])
    spoilt = llama.runner(2, CELLS, grain=GRAIN, cell_major=True)
    for layer in spoilt._pool.layers:
        keys, _ = layer.view(0, CELLS)
        none = mx.full(keys.shape, float("nan"))
        layer.write_chunk(0, none, none)
    spoilt.prefill(0, 3, 0, tokens[:10])
    np.testing.assert_allclose(
        next_logits(spoilt, 3, tokens), next_logits(plain, 3, tokens), atol=1e-4
    )


def test_what_fills_a_chunk_up_is_not_written(llama: real.Model) -> None:
    runner = llama.runner(2, CELLS, grain=GRAIN)
    runner.prefill(1, 20, 0, [7] * 8)
    neighbour = runner.export(1, 20, 8)
    # Five tokens end where the neighbour begins.
    runner.prefill(0, 15, 0, [9] * 5)
    same = runner.export(1, 20, 8)
    for was, is_ in zip(neighbour.layers, same.layers, strict=True):
        for before, after in zip(was[0] + was[1], is_[0] + is_[1], strict=True):
            assert mx.array_equal(before, after)


def test_at_the_end_of_the_pool_a_chunk_stays_as_it_is(
    llama: real.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = seen(llama, monkeypatch)
    runner = llama.runner(1, CELLS, grain=GRAIN)
    runner.prefill(0, CELLS - 16, 0, [4] * 13)
    runner.prefill(0, CELLS - 13, 0, [4] * 13)
    assert shapes == [(1, 16), (1, 13)]


def test_a_model_with_state_is_given_no_tokens_but_the_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = real.tiny_model(tmp_path, "mamba2", **FAMILIES["mamba2"])
    shapes = seen(loaded, monkeypatch)
    loaded.runner(1, CELLS, grain=GRAIN).prefill(0, 0, 0, [4] * 13)
    assert shapes == [(1, 13)]


def test_chunks_of_several_prompts_are_filled_up_together(
    llama: real.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [list(range(5, 16)), list(range(30, 37))]
    wanted = []
    for text in texts:
        alone = llama.runner(1, CELLS)
        alone.prefill(0, 0, 0, text[:-1])
        wanted.append(next_logits(alone, 0, text))
    shapes = seen(llama, monkeypatch)
    runner = llama.runner(2, CELLS, grain=GRAIN)
    # The second one's filling would reach past the end of the pool.
    starts = [2, CELLS - 8]
    parts = [
        Part(slot, start, 0, text[:-1])
        for slot, (start, text) in enumerate(zip(starts, texts, strict=True))
    ]
    runner.prefill_together(parts)
    assert shapes == [(2, 32)]
    for start, text, want in zip(starts, texts, wanted, strict=True):
        np.testing.assert_allclose(next_logits(runner, start, text), want, atol=1e-4)
