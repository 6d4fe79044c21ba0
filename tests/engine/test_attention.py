"""The one change to mlx-lm: a cache may answer attention itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine import real

# isort: split
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import KVCache

from mlxceld.engine import attention


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_loaded_models_module_resolves_attention_to_ours(
    family: str, tmp_path: Path
) -> None:
    loaded = real.tiny_model(tmp_path, family)
    module = sys.modules[type(loaded.model).__module__]
    assert module.__name__ == f"mlx_lm.models.{family}"
    ours = attention.scaled_dot_product_attention
    assert module.scaled_dot_product_attention is ours


def test_installing_again_does_nothing() -> None:
    attention.install()
    ours = base.scaled_dot_product_attention
    attention.install()
    assert base.scaled_dot_product_attention is ours


def test_a_cache_that_attends_gets_queries_scale_mask_and_sinks() -> None:
    class Attends:
        def attend(self, *given: Any) -> str:
            self.given = given
            return "answer"

    cache = Attends()
    answer = base.scaled_dot_product_attention(
        "q", "k", "v", cache=cache, scale=0.5, mask="m", sinks="s"
    )
    assert answer == "answer"
    assert cache.given == ("q", 0.5, "m", "s")


@pytest.mark.parametrize("cache", [None, KVCache()])
def test_any_other_cache_gets_softmax_attention_as_before(cache: Any) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 2, 3, 4)).astype(np.float32) for _ in range(3))
    found = base.scaled_dot_product_attention(
        mx.array(q), mx.array(k), mx.array(v), cache=cache, scale=0.5, mask=None
    )
    weights = np.exp(0.5 * q @ k.swapaxes(-1, -2))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(np.array(found), wanted, atol=1e-5)


def _python(*lines: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_a_model_imported_before_the_hook_is_refused_by_name() -> None:
    said = _python(
        "import mlx_lm.models.llama",
        "from mlxceld.engine import attention",
        "try: attention.install()",
        "except RuntimeError as error: print(error)",
    )
    assert said == "mlx_lm.models.llama imported before the attention hook"
