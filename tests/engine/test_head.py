"""Logits for the rows that want them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.real import tiny_model  # noqa: F401  (loads MLX in the right order)

# isort: split
import mlx.core as mx
import mlx.nn as nn

from mlxceld.engine.head import Head


class Model(nn.Module):
    """Tokens `[n, 1]` to logits `[n, 1, 24]`, with a head of its own or tied."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(24, 64)
        self.body = nn.Linear(64, 64)
        if not tied:
            self.lm_head = nn.Linear(64, 24, bias=False)

    def __call__(self, tokens: mx.array) -> mx.array:
        hidden = self.body(self.embed_tokens(tokens))
        if "lm_head" in self:
            return self.lm_head(hidden)
        return self.embed_tokens.as_linear(hidden)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_the_last_rows_get_the_logits_they_get_among_all(
    tied: bool, packed: bool
) -> None:
    model = Model(tied=tied)
    if packed:
        nn.quantize(model, group_size=32, bits=8)
    tokens = mx.array([[3], [1], [4], [1], [5]])
    every = np.array(model(tokens))
    kinds = [type(module) for module in model.modules()]
    with Head(model).last(2):
        found = np.array(model(tokens))
    assert found.shape == (2, 1, 24)
    np.testing.assert_allclose(found, every[3:], atol=1e-5)
    assert [type(module) for module in model.modules()] == kinds
    np.testing.assert_array_equal(np.array(model(tokens)), every)


def test_after_a_failure_all_logits_are_made_again() -> None:
    model = Model(tied=False)
    with pytest.raises(KeyError), Head(model).last(1):
        raise KeyError
    assert model(mx.array([[1], [2]])).shape == (2, 1, 24)


def test_a_layer_of_another_class_makes_them_all() -> None:
    class Own(nn.Linear):
        pass

    model = Model(tied=False)
    model.lm_head.__class__ = Own
    with Head(model).last(1):
        assert model(mx.array([[1], [2]])).shape == (2, 1, 24)
