"""A chunk that rides with a step: both get what they would have got alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.engine import real
from tests.engine.families import FAMILIES

# isort: split
import mlx.core as mx

from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.probe import nobody
from mlxceld.engine.runner import Part, Row

CELLS = 96
TEXTS = [[5, 9, 2, 6, 5], [3, 5, 8], [9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4]]
STARTS = [60, 4, 30]
"""Of the two rows, and of the text that is read beside them."""


def row(slot: int) -> Row:
    text = TEXTS[slot]
    return Row(slot, STARTS[slot], len(text) - 1, text[-1], 0.0, nobody())


def runner_with_rows(model: real.Model) -> ModelRunner:
    """Read of the first two texts all but the last tokens, of the third four."""
    runner = model.runner(3, CELLS)
    for slot in (0, 1):
        runner.prefill(slot, STARTS[slot], 0, TEXTS[slot][:-1])
    runner.prefill(2, STARTS[2], 0, TEXTS[2][:4])
    return runner


FOLLOWING = Part(2, STARTS[2], 4, TEXTS[2][4:-1])


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "qwen3_moe"])
def test_a_step_with_a_chunk_is_the_step_and_the_chunk(
    family: str, tmp_path: Path
) -> None:
    model = real.tiny_model(tmp_path, family, **FAMILIES[family])
    apart = runner_with_rows(model)
    assert apart.takes_along
    read = mx.array([TEXTS[0][-1], TEXTS[1][-1]])
    wanted = np.array(apart.logits([row(0), row(1)], read))
    apart.prefill(2, STARTS[2], 4, list(FOLLOWING.tokens))
    after = np.array(apart.logits([row(2)], mx.array([TEXTS[2][-1]])))

    mixed = runner_with_rows(model)
    found = np.array(mixed.logits([row(0), row(1)], read, FOLLOWING))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    # What the chunk has left in the pool is what a chunk by itself leaves.
    found = np.array(mixed.logits([row(2)], mx.array([TEXTS[2][-1]])))
    np.testing.assert_allclose(found, after, atol=1e-4)


def test_a_step_samples_its_rows_and_not_the_chunk(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model = real.tiny_model(tmp_path_factory)
    tokens = runner_with_rows(model).step([row(0), row(1)], FOLLOWING).read()
    assert tokens == runner_with_rows(model).step([row(0), row(1)]).read()


def test_models_with_state_take_no_chunk_along(tmp_path: Path) -> None:
    loaded = real.tiny_model(tmp_path, "mamba2", **FAMILIES["mamba2"])
    assert not loaded.runner(1, 16).takes_along
