"""Rows of a step through quantised layers, together and apart."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.real import tiny_model  # noqa: F401  (loads MLX in the right order)

# isort: split
import mlx.core as mx
import mlx.nn as nn

from mlxceld.engine import linear


def layers(columns: int, *, bias: bool = False) -> nn.Module:
    """A quantised linear layer and a quantised embedding with the same columns."""
    mx.random.seed(5)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, columns, bias=bias)
            self.words = nn.Embedding(columns, 64)

    model = Model()
    nn.quantize(model, group_size=32, bits=4)
    return model


def matrices(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what is multiplied from now on."""
    seen: list[tuple[int, ...]] = []
    multiply = mx.quantized_matmul

    def watched(x: mx.array, *rest: object, **options: object) -> mx.array:
        seen.append(x.shape)
        return multiply(x, *rest, **options)

    monkeypatch.setattr(mx, "quantized_matmul", watched)
    return seen


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [2, 7, 8, 9])
def test_rows_together_give_what_they_give_apart(
    monkeypatch: pytest.MonkeyPatch, rows: int, bias: bool
) -> None:
    monkeypatch.setattr(linear, "_PAYS", 0)
    model = layers(96, bias=bias)
    x = mx.random.normal((rows, 1, 64))
    wanted = np.array(model.head(x)), np.array(model.words.as_linear(x))
    linear.join_rows(model)
    seen = matrices(monkeypatch)
    found = np.array(model.head(x)), np.array(model.words.as_linear(x))
    assert seen == [(max(rows, 8), 64)] * 2
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == (rows, 1, 96)
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_one_row_a_prompt_and_few_columns_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = layers(96)
    linear.join_rows(model)
    seen = matrices(monkeypatch)
    model.head(mx.zeros((1, 1, 64)))
    model.head(mx.zeros((1, 9, 64)))
    model.head(mx.zeros((9, 1, 64)))
    assert seen == [(1, 1, 64), (1, 9, 64), (9, 1, 64)]


@pytest.mark.parametrize("bias", [False, True])
def test_chunks_of_several_prompts_are_one_matrix(
    monkeypatch: pytest.MonkeyPatch, bias: bool
) -> None:
    model = layers(96, bias=bias)
    x = mx.random.normal((3, 5, 64))
    wanted = np.array(model.head(x))
    linear.join_rows(model)
    seen = matrices(monkeypatch)
    found = np.array(model.head(x))
    assert seen == [(15, 64)]
    assert found.shape == (3, 5, 96)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(("rows", "shape"), [(3, (3, 1, 64)), (4, (8, 64))])
def test_it_depends_on_rows_and_columns_whether_they_go_together(
    monkeypatch: pytest.MonkeyPatch, rows: int, shape: tuple[int, ...]
) -> None:
    model = layers(10_000)
    linear.join_rows(model)
    seen = matrices(monkeypatch)
    model.head(mx.zeros((rows, 1, 64)))
    assert seen == [shape]


def test_the_layers_can_be_given_back() -> None:
    model = layers(96)
    linear.join_rows(model)
    assert type(model.head) is linear.RowsLinear
    linear.part_rows(model)
    assert type(model.head) is nn.QuantizedLinear
    assert type(model.words) is nn.QuantizedEmbedding


def test_layers_of_other_classes_are_left_alone() -> None:
    class Own(nn.QuantizedLinear):
        pass

    model = layers(96)
    model.head.__class__ = Own
    linear.join_rows(model)
    assert type(model.head) is Own
