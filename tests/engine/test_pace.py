"""While a chunk is read, the host waits for the layer before the one it queues."""

from __future__ import annotations

import pytest

from tests.engine.real import tiny_model  # noqa: F401  (loads MLX in the right order)

# isort: split
import mlx.core as mx

from mlxceld.engine import pace
from mlxceld.engine.pool import Layer, LayerShape, SpanCache, Storage


def test_a_layer_is_queued_before_the_one_before_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[tuple[str, list[float]]] = []
    paced = pace.Pace()
    layers = [(mx.array(float(n)), mx.array(n + 0.5)) for n in range(3)]
    for name in ("async_eval", "eval"):
        monkeypatch.setattr(
            mx, name, lambda *arrays, n=name: done.append((n, [*map(float, arrays)]))
        )
    for keys, values in layers:
        paced.step(keys, values)
    assert done == [
        ("async_eval", [0.0, 0.5]),
        ("async_eval", [1.0, 1.5]),
        ("eval", [0.0]),
        ("async_eval", [2.0, 2.5]),
        ("eval", [1.0]),
    ]


def test_each_layer_of_a_chunk_keeps_to_the_pace() -> None:
    shape = LayerShape(2, Storage(4, mx.float32), Storage(4, mx.float32))
    paced: list[tuple[mx.array, ...]] = []

    class Watched(pace.Pace):
        def step(self, keys: mx.array, values: mx.array) -> None:
            paced.append((keys, values))

    keys, values = mx.ones((1, 2, 3, 4)), mx.zeros((1, 2, 3, 4))
    layer = Layer(shape, 8, cell_major=False)
    held = SpanCache(layer, 1, 0, Watched()).update_and_fetch(keys, values)
    # Not the pool's own arrays, nor views of them: those would be copied when written.
    assert [tuple(map(id, one)) for one in paced] == [(id(keys), id(values))]
    assert [side.shape for side in held] == [(1, 2, 3, 4)] * 2


def test_the_cpu_needs_none() -> None:
    with mx.stream(mx.cpu):
        assert mx.default_device() == mx.cpu
        assert pace.pace() is None
