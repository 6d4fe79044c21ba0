"""Models with random weights in the shapes of real ones: nothing has to be fetched.

What a token costs depends on shapes and types, not on what the weights say.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

# isort: off
from mlxceld.engine import blas

blas.load_blas()
import mlx.core as mx
# isort: on

import mlx.nn as nn

from mlxceld.engine import attention

# Before any of mlx-lm's models is imported. mlx-lm's own caches behave as before.
attention.install()

from mlx_lm.models import llama


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a llama-like model that its cost depends on."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    n_vocab: int


SHAPES = {
    "tiny": Shape(128, 4, 8, 4, 384, 1024),
    "135m": Shape(576, 30, 9, 3, 1536, 49152),
    "1.2b": Shape(2048, 16, 32, 8, 8192, 128256),
    "8b": Shape(4096, 32, 32, 8, 14336, 128256),
}
"""Those of SmolLM2-135M, Llama-3.2-1B and Llama-3.1-8B; tiny is for trying out."""


def afresh() -> None:
    """Let go of what the last run left behind, and count the peak from here on.

    An engine's objects know each other in circles: without a collection its caches
    would lie beside those of the next run.
    """
    gc.collect()
    mx.clear_cache()
    mx.reset_peak_memory()


def build(name: str, device: mx.Device) -> Any:
    """A model of one of `SHAPES` on `device`.

    As the daemon would load it: 4 bits in groups of 64 and float16 on a GPU, float32
    on the CPU. Weights are made layer by layer, so that the memory of the quantised
    model and of one plain layer is enough.
    """
    shape = SHAPES[name]
    mx.set_default_device(device)
    mx.random.seed(1)
    model = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            intermediate_size=shape.feed_forward,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            rms_norm_eps=1e-5,
            vocab_size=shape.n_vocab,
            max_position_embeddings=131072,
            rope_theta=500000.0,
            tie_word_embeddings=True,
        )
    )
    if device.type == mx.DeviceType.gpu:
        model.set_dtype(mx.float16)
        nn.quantize(model, group_size=64, bits=4)
    for layer in model.model.layers:
        mx.eval(layer.parameters())
        mx.clear_cache()
    mx.eval(model.parameters())
    mx.clear_cache()
    return model
