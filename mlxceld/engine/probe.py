"""Checks at load, on the real model and device, of what the engine relies on.

1. A decode step of two rows gives what mlx-lm's own caches give for each text alone.
   Families that fold attention into other operations, or share one layer's keys with
   another, fail here and are served one row at a time, or with caches of their own.
2. A step that is queued before the last one has been read still writes in place.
   Where it does not, every step is read before the next is queued.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.caches import CacheMap
from mlxceld.engine.messages import Generate, Sampling
from mlxceld.engine.pool import Pool, RowsCache, SpanCache, StepRows
from mlxceld.engine.runner import Row
from mlxceld.engine.slot import Request
from mlxceld.engine.text import Text

_LENGTHS = (3, 11)
_STARTS = (7, 20)
_CELLS = 32


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the probe allows; `note` says why something is not."""

    pooled: bool
    batched: bool
    note: str = ""


def probe(model: Any, map_: CacheMap, n_vocab: int, *, cell_major: bool) -> Verdict:
    """Compare rows over a small pool with mlx-lm's own caches."""
    if not map_.all_pooled:
        return Verdict(
            True,
            False,
            "the model keeps state beside plain KV caches: one row at a time",
        )
    prompts = [[(7 * i + 3 * n) % n_vocab for i in range(n)] for n in _LENGTHS]
    wanted = [_reference(model, prompt) for prompt in prompts]
    try:
        alone = [_alone(model, map_, p, s, cell_major) for p, s in _texts(prompts)]
        for found, want in zip(alone, wanted, strict=True):
            _compare(found, want)
    except Exception as error:
        return Verdict(False, False, f"the pool does not suit this model: {error}")
    try:
        for found, want in zip(
            _rows(model, map_, prompts, cell_major), wanted, strict=True
        ):
            _compare(found, want)
    except Exception as error:
        return Verdict(True, False, f"rows cannot be decoded together: {error}")
    return Verdict(True, True)


def _texts(prompts: list[list[int]]) -> list[tuple[list[int], int]]:
    return list(zip(prompts, _STARTS, strict=True))


def _reference(model: Any, prompt: list[int]) -> mx.array:
    caches = make_prompt_cache(model)
    model(mx.array([prompt[:-1]]), cache=caches)
    return model(mx.array([prompt[-1:]]), cache=caches)[0, -1]


def _pool(map_: CacheMap, cell_major: bool) -> Pool:
    return Pool(list(map_.pooled.values()), _CELLS, cell_major=cell_major)


def _read(model: Any, pool: Pool, prompt: list[int], start: int) -> None:
    spans = [SpanCache(layer, start, 0) for layer in pool.layers]
    model(mx.array([prompt[:-1]]), cache=spans)
    for layer in pool.layers:
        layer.settle(start)


def _alone(
    model: Any, map_: CacheMap, prompt: list[int], start: int, cell_major: bool
) -> mx.array:
    pool = _pool(map_, cell_major)
    _read(model, pool, prompt, start)
    spans = [SpanCache(layer, start, len(prompt) - 1) for layer in pool.layers]
    return model(mx.array([prompt[-1:]]), cache=spans)[0, -1]


def _rows(
    model: Any, map_: CacheMap, prompts: list[list[int]], cell_major: bool
) -> mx.array:
    pool = _pool(map_, cell_major)
    for prompt, start in _texts(prompts):
        _read(model, pool, prompt, start)
    where = StepRows(_STARTS, [len(prompt) - 1 for prompt in prompts])
    rows = [RowsCache(layer, where) for layer in pool.layers]
    return model(mx.array([prompt[-1:] for prompt in prompts]), cache=rows)[:, -1]


def _compare(found: mx.array, want: mx.array) -> None:
    """Raise ValueError when logits differ by more than rounding.

    The yardstick is the spread of the logits: a wrong key or position moves them by
    about that much, rounding by a small part of it.
    """
    want = want.astype(mx.float32)
    spread = mx.std(want).item()
    apart = mx.max(mx.abs(found.astype(mx.float32) - want)).item()
    allowed = 0.02 if found.dtype == mx.float32 else 0.1
    if not apart <= allowed * spread:
        raise ValueError(
            f"logits differ by {apart:.3g} where their spread is {spread:.3g}"
        )


def writes_in_place(runner: ModelRunner, text: Text) -> bool:
    """Whether queued steps leave the pool where it is, judged by peak memory.

    Runs a few steps on cell 0 and on, which nobody uses yet.
    """

    def peak(*, queued: bool) -> int:
        request = Request.create(
            Generate(0, [], Sampling(temperature=0)), [0], 64, text, arrived=0, serial=0
        )
        mx.synchronize()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        token: int | None = 0
        step = None
        for position in range(4):
            step = runner.step([Row(0, 0, position, token, 0.0, request)])
            if queued:
                token = None
            else:
                step.read()
        assert step is not None
        step.read()
        return int(mx.get_peak_memory() - before)

    peak(queued=False)
    return peak(queued=True) - peak(queued=False) < runner.layer_bytes / 2
