"""Logits for the rows of a step alone, when the step takes a prompt chunk along.

A model computes logits for every token it is given, and for a chunk nobody wants them:
with a large vocabulary and a small model that is a quarter of the work. The layer that
makes the logits is therefore told how many of the last rows are wanted. It has one of
two names in mlx-lm's models; one that has neither computes them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn

_PLAIN = (nn.Linear, nn.QuantizedLinear)
_EMBEDDINGS = (nn.Embedding, nn.QuantizedEmbedding)


class Head:
    """The layer of a model that makes its logits."""

    def __init__(self, model: nn.Module) -> None:
        named = dict(model.named_modules())
        self._layers = [
            module
            for name, module in named.items()
            if name.split(".")[-1] in ("lm_head", "embed_tokens")
            and type(module) in (*_PLAIN, *_EMBEDDINGS)
        ]

    @contextmanager
    def last(self, rows: int) -> Iterator[None]:
        """Have logits made for the last `rows` of the tokens `[n, 1]` alone."""
        kinds: list[Any] = [type(layer) for layer in self._layers]
        for layer, kind in zip(self._layers, kinds, strict=True):
            # The class alone differs: weights and settings are the layer's own.
            layer.__class__ = _last(kind, rows)
        try:
            yield
        finally:
            for layer, kind in zip(self._layers, kinds, strict=True):
                layer.__class__ = kind


@cache
def _last(kind: Any, rows: int) -> Any:
    """The class `kind` of layers, with logits for the last rows only."""
    name = "as_linear" if kind in _EMBEDDINGS else "__call__"
    whole = getattr(kind, name)

    def made(self: Any, x: mx.array) -> mx.array:
        logits: mx.array = whole(self, x[-rows:])
        return logits

    return type(kind.__name__, (kind,), {name: made})
