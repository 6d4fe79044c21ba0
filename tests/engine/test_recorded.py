"""Steps that are recorded once: what they compute, and what they leave to others.

The kernel is for CUDA; here a plain attention over the same arrays stands in for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.engine.real import tiny_model  # noqa: F401  (loads MLX in the right order)

# isort: split
import mlx.core as mx
from mlx_lm.models import llama

from mlxceld.engine import ragged, recorded
from mlxceld.engine.pool import LayerShape, Pool, SpanCache, Storage
from mlxceld.engine.recorded import RecordedStep
from mlxceld.engine.rows import PoolRows, StepRows

CELLS, DIM, KV_HEADS, LAYERS = 96, 64, 2, 2
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1], [8]]
STARTS = [40, 5, 20]


def stand_in(
    queries: mx.array,
    new: tuple[mx.array, mx.array],
    pool: tuple[mx.array, mx.array],
    spans: ragged.Spans,
    scale: float,
) -> mx.array:
    """What the kernel returns, from a masked look at the whole pool.

    It writes nothing, so that one step is all that it is good for.
    """
    starts, ends = spans.array[0], spans.array[0] + spans.array[1]
    cell = mx.arange(CELLS)[None]
    seen = (cell >= starts[:, None]) & (cell < ends[:, None])
    sides = []
    for held, fresh in zip(pool, new, strict=True):
        held[ends - 1] = fresh[:, :, 0]
        sides.append(mx.repeat(held.swapaxes(0, 1)[None], queries.shape[0], axis=0))
    return mx.fast.scaled_dot_product_attention(
        queries, *sides, scale=scale, mask=seen[:, None, None]
    )


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ragged, "available", lambda: True)
    monkeypatch.setattr(ragged, "attend", stand_in)
    with mx.stream(mx.cpu):
        yield


@pytest.fixture(scope="module")
def model() -> Any:
    mx.random.seed(5)
    arguments = llama.ModelArgs(
        model_type="llama",
        hidden_size=128,
        num_hidden_layers=LAYERS,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=KV_HEADS,
        head_dim=DIM,
        rms_norm_eps=1e-5,
        vocab_size=32,
        tie_word_embeddings=True,
    )
    return llama.Model(arguments)


def filled(model: Any, storage: Storage | None = None) -> Pool:
    """A pool which holds all of the prompts but their last tokens."""
    side = storage or Storage(DIM, mx.float32)
    pool = Pool([LayerShape(KV_HEADS, side, side)] * LAYERS, CELLS, cell_major=True)
    for start, prompt in zip(STARTS, PROMPTS, strict=True):
        if prompt[:-1]:
            caches = [SpanCache(layer, start, 0) for layer in pool.layers]
            mx.eval(model(mx.array([prompt[:-1]]), cache=caches))
    return pool


def positions() -> list[int]:
    return [len(prompt) - 1 for prompt in PROMPTS]


def lasts() -> mx.array:
    return mx.array([prompt[-1] for prompt in PROMPTS])


def alone(model: Any) -> np.ndarray:
    """Logits after each prompt, computed without any cache."""
    return np.stack([np.array(model(mx.array([p]))[0, -1]) for p in PROMPTS])


def test_a_recorded_step_gives_each_row_what_its_text_alone_gives(model: Any) -> None:
    step = RecordedStep(model, filled(model))
    assert step.possible
    found = step(STARTS, positions(), lasts())
    assert found is not None
    np.testing.assert_allclose(np.array(found), alone(model), atol=1e-4)


def test_other_places_and_tokens_need_no_other_recording(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = RecordedStep(model, filled(model))
    step(STARTS, positions(), lasts())
    monkeypatch.setattr(ragged, "attend", lambda *_: pytest.fail("recorded again"))
    # The rows in another order: everything that differs comes in as numbers.
    back = [2, 1, 0]
    found = step(
        [STARTS[row] for row in back],
        [positions()[row] for row in back],
        lasts()[mx.array(back)],
    )
    assert found is not None
    np.testing.assert_allclose(np.array(found), alone(model)[back], atol=1e-4)


def test_more_rows_and_longer_ones_are_recorded_anew(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grids: list[ragged.Grid] = []

    def attend(*args: Any) -> mx.array:
        grids.append(args[3].grid)
        return stand_in(*args)

    monkeypatch.setattr(ragged, "attend", attend)
    step = RecordedStep(model, filled(model))
    read = mx.array([1, 2])
    for starts, held in ([[0], [3]], [[0], [60]], [[0], [64]], [[0, 5], [3, 3]]):
        step(starts, held, read[: len(starts)])
    fine, finer = ragged.Grid(64, 1), ragged.Grid(64, 2)
    # Once for each layer; 61 cells fit where 4 did, 65 need a second block.
    assert grids == [fine] * LAYERS + [finer] * LAYERS + [fine] * LAYERS


def test_only_so_many_recordings_are_kept(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []

    def attend(*args: Any) -> mx.array:
        rows.append(args[0].shape[0])
        return stand_in(*args)

    monkeypatch.setattr(ragged, "attend", attend)
    monkeypatch.setattr(recorded, "_MOST", 2)
    step = RecordedStep(model, filled(model))
    for n in (1, 2, 1, 3, 1, 2):
        step([0, 5, 9][:n], [3] * n, mx.array([1] * n))
    # Three rows took the place of two, which were used longest ago.
    assert rows[::LAYERS] == [1, 2, 3, 2]


def test_as_many_streams_as_there_can_be_are_recorded(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 rows of a model that shares no keys among its heads, of which it has 64."""
    monkeypatch.setattr(ragged, "attend", lambda queries, *_: queries)
    heads, rows = 64, 256
    side = Storage(DIM, mx.float32)
    pool = Pool([LayerShape(heads, side, side)], rows, cell_major=True)

    def wide(tokens: mx.array, cache: list[Any]) -> mx.array:
        new = mx.zeros((tokens.shape[0], heads, 1, DIM))
        cache[0].update_and_fetch(new, new)
        return cache[0].attend(new, 1.0, None, None)[:, 0]

    step = RecordedStep(wide, pool)
    assert step(list(range(rows)), [0] * rows, mx.zeros((rows,), mx.int32)) is not None
    assert step.possible


def test_a_window_sees_the_last_tokens_of_each_row(model: Any) -> None:
    class Windowed:
        """The model with a window of three tokens in every layer."""

        def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
            for layer in cache:
                attend, mask = layer.attend, layer.make_mask(1, window_size=3)
                layer.attend = lambda q, s, m, k, a=attend, w=mask: a(q, s, w, k)
            return model(tokens, cache=cache)

    pool = filled(model)
    step = RecordedStep(Windowed(), pool)
    found = step(STARTS, positions(), lasts())
    rows = StepRows(STARTS, positions())
    rows.together = False
    wanted = Windowed()(lasts()[:, None], [PoolRows(one, rows) for one in pool.layers])
    np.testing.assert_allclose(np.array(found), np.array(wanted[:, -1]), atol=1e-4)


def test_packed_keys_are_left_to_the_row_wise_path(model: Any) -> None:
    pool = filled(model, Storage.of(DIM, mx.float32, "q8_0"))
    assert not RecordedStep(model, pool).possible


def test_keys_of_another_type_than_the_models_are_left_to_it_too(model: Any) -> None:
    step = RecordedStep(model, filled(model, Storage(DIM, mx.float16)))
    assert step.possible
    assert step(STARTS, positions(), lasts()) is None
    assert not step.possible


def test_a_model_that_looks_at_values_is_not_recorded(model: Any) -> None:
    def curious(tokens: mx.array, cache: list[Any]) -> mx.array:
        assert tokens[0, 0].item() >= 0
        return model(tokens, cache=cache)

    step = RecordedStep(curious, filled(model))
    assert step(STARTS, positions(), lasts()) is None
    assert not step.possible


def test_a_model_that_attends_by_itself_is_not_recorded(model: Any) -> None:
    def own(tokens: mx.array, cache: list[Any]) -> mx.array:
        shape = (tokens.shape[0], KV_HEADS, 1, DIM)
        for layer in cache:
            layer.update_and_fetch(mx.zeros(shape), mx.zeros(shape))
        return mx.zeros((*tokens.shape, 32))

    assert RecordedStep(own, filled(model))(STARTS, positions(), lasts()) is None


def test_a_fault_of_a_step_that_was_recorded_is_not_taken_for_a_trait_of_the_model(
    model: Any,
) -> None:
    step = RecordedStep(model, filled(model))
    step(STARTS, positions(), lasts())
    with pytest.raises(TypeError):
        step(STARTS, positions(), None)  # type: ignore[arg-type]
    assert step.possible
