"""Checks at load, on the real model and device, of what the engine relies on.

1. A decode step of two rows gives what mlx-lm's own caches give for each text alone.
   Families that fold attention into other operations, or share one layer's keys with
   another, fail here and are served one row at a time, or with caches of their own.
2. Keys and values that are not stored as the model makes them come back as they were,
   but for rounding, and two rows give what each gives alone.
3. Chunks of two prompts that are read as one give what each gives alone.
4. A step that is queued before the last one has been read still writes in place.
   Where it does not, every step is read before the next is queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.caches import CacheMap
from mlxceld.engine.messages import Generate, Sampling
from mlxceld.engine.pool import Layer, LayerShape
from mlxceld.engine.runner import Part, Row
from mlxceld.engine.sampling import Sampler
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
    together: bool = False
    """Whether chunks of several prompts may be read as one."""


def probe(
    model: Any,
    map_: CacheMap,
    n_vocab: int,
    *,
    cell_major: bool,
    stored: CacheMap | None = None,
) -> Verdict:
    """Compare single rows and two rows over a small pool with mlx-lm's own caches.

    `stored` is the map with the cache types that the user asked for.
    """
    stored = stored or map_
    prompts = [[(7 * i + 3 * n) % n_vocab for i in range(n)] for n in _LENGTHS]
    wanted = [_reference(model, prompt) for prompt in prompts]

    def runner_of(map_: CacheMap, *, batched: bool) -> ModelRunner:
        return ModelRunner(
            model,
            map_,
            Sampler(n_vocab, []),
            slots=len(prompts),
            cells=_CELLS,
            cell_major=cell_major,
            batched=batched,
            pipelined=False,
        )

    def logits(map_: CacheMap, *, batched: bool) -> mx.array:
        runner = runner_of(map_, batched=batched)
        rows = [_row(runner, slot, prompt) for slot, prompt in enumerate(prompts)]
        return runner.logits(rows, mx.array([prompt[-1] for prompt in prompts]))

    try:
        _compare(logits(map_, batched=False), wanted)
    except Exception as error:
        return Verdict(False, False, f"the pool does not suit this model: {error}")
    if stored != map_:
        try:
            for shape in set(stored.shapes):
                _store(shape, cell_major=cell_major)
            wanted = list(logits(stored, batched=False))
        except Exception as error:
            return Verdict(False, False, f"{error}")
    try:
        _compare(logits(stored, batched=True), wanted)
    except Exception as error:
        return Verdict(True, False, f"rows cannot be decoded together: {error}")
    return Verdict(
        True,
        True,
        together=_reads_together(runner_of(stored, batched=True), prompts, wanted),
    )


def _reads_together(
    runner: ModelRunner, prompts: list[list[int]], wanted: Sequence[mx.array]
) -> bool:
    """Whether two prompts, read as one in two chunks each, give the logits `wanted`."""
    if not runner.reads_together:
        return False
    ends = [len(prompt) - 1 for prompt in prompts]
    halves = [(n + 1) // 2 for n in ends]
    try:
        for begins, stops in (([0] * len(ends), halves), (halves, ends)):
            runner.prefill_together(
                [
                    Part(slot, _STARTS[slot], begin, prompts[slot][begin:stop])
                    for slot, (begin, stop) in enumerate(
                        zip(begins, stops, strict=True)
                    )
                ]
            )
        rows = [_last(slot, prompt) for slot, prompt in enumerate(prompts)]
        read = mx.array([prompt[-1] for prompt in prompts])
        _compare(runner.logits(rows, read), wanted)
        if runner.takes_along:
            # The first row's step reads the second half of the other's prompt anew.
            half, end = halves[1], ends[1]
            part = Part(1, _STARTS[1], half, prompts[1][half:end])
            _compare(runner.logits(rows[:1], read[:1], part), wanted[:1])
            _compare(runner.logits(rows[1:], read[1:]), wanted[1:])
    except Exception:  # Whatever the model makes of it: they are read one by one then.
        return False
    return True


def _store(shape: LayerShape, *, cell_major: bool) -> None:
    """Raise ValueError when written keys or values do not come back as they were."""
    layer = Layer(shape, _CELLS, cell_major=cell_major)
    start, n = _STARTS[0], _LENGTHS[1]
    written = []
    for storage in (shape.keys, shape.values):
        size = (1, shape.heads, n, storage.dim)
        written.append(mx.random.normal(size, key=mx.random.key(storage.dim)))
    layer.write_chunk(start, *(new[:, :, :-1] for new in written))
    last = [new[:, :, -1:] for new in written]
    layer.write_rows(mx.array([start + n - 1]), last[0], last[1])
    found = layer.view(start, start + n)
    for new, back, storage in zip(
        written, found, (shape.keys, shape.values), strict=True
    ):
        # Numbers of spread 1: those of a group lie within 12 of each other, those
        # that stay plain are below 8 and have at least 8 bits.
        allowed = 12 / (2**storage.bits - 1) if storage.bits else 8 / 2**8
        apart = mx.max(mx.abs(back.astype(mx.float32) - new)).item()
        if not apart <= allowed:
            raise ValueError(f"this device stores them {apart:.3g} wrong")


def _reference(model: Any, prompt: list[int]) -> mx.array:
    caches = make_prompt_cache(model)
    model(mx.array([prompt[:-1]]), cache=caches)
    return model(mx.array([prompt[-1:]]), cache=caches)[0, -1]


def _row(runner: ModelRunner, slot: int, prompt: list[int]) -> Row:
    """Read all of a prompt but its last token; the row that reads that one."""
    runner.prefill(slot, _STARTS[slot], 0, prompt[:-1])
    return _last(slot, prompt)


def _last(slot: int, prompt: list[int]) -> Row:
    """The row that reads a prompt's last token."""
    return Row(slot, _STARTS[slot], len(prompt) - 1, prompt[-1], 0.0, nobody())


def nobody(temperature: float = 0.0) -> Request:
    """A request of no client, whose text nobody reads."""
    message = Generate(0, [], Sampling(temperature=temperature))
    text = Text([], lambda _text, _special: [])
    return Request.create(message, [0], 64, text, arrived=0, serial=0)


def _compare(found: mx.array, wanted: Sequence[mx.array]) -> None:
    """Raise ValueError when logits differ by more than rounding.

    The yardstick is the spread of the logits: a wrong key or position moves them by
    about that much, rounding by a small part of it.
    """
    allowed = 0.02 if found.dtype == mx.float32 else 0.1
    for row, want in zip(found, wanted, strict=True):
        want = want.astype(mx.float32)
        spread = mx.std(want).item()
        apart = mx.max(mx.abs(row.astype(mx.float32) - want)).item()
        if not apart <= allowed * spread:
            raise ValueError(
                f"logits differ by {apart:.3g} where their spread is {spread:.3g}"
            )


def writes_in_place(runner: ModelRunner) -> bool:
    """Whether queued steps leave the pool where it is, judged by peak memory.

    Runs a few steps on cell 0 and on, which nobody uses yet. False when nothing is in
    the pool: caches that slots own are not promised to stay where they are.
    """
    if not runner.layer_bytes:
        return False

    def peak(*, queued: bool) -> int:
        request = nobody()
        mx.synchronize()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        token: int | None = 0
        step = None
        for position in range(min(4, runner.cells)):
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
