"""Our engine loop, without processes and text around it: scheduler, runner, sampler."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from benchmarks.measured import Measured
from benchmarks.workloads import Workload
from mlxceld.engine import caches, linear
from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.messages import Delta, Done, Failed, Generate, Sampling, Up
from mlxceld.engine.runner import Row
from mlxceld.engine.sampling import Sampler
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.engine.text import Text
from mlxceld.plan import Geometry, Wish, make_plan


@dataclass
class _Answers:
    """What the front would be told."""

    tokens: dict[int, list[int]] = field(default_factory=dict)

    def __call__(self, message: Up) -> None:
        if isinstance(message, Failed):
            raise RuntimeError(message.message)
        if isinstance(message, Delta | Done):
            self.tokens.setdefault(message.id, []).extend(message.tokens)


class _Timed:
    """A step whose reading is timed: the time the host waits for the device."""

    def __init__(self, pending: Any, runner: TimedRunner) -> None:
        self._pending = pending
        self._runner = runner

    def read(self) -> list[int]:
        begin = time.perf_counter()
        tokens: list[int] = self._pending.read()
        self._runner.waited += time.perf_counter() - begin
        return tokens

    def probabilities(self) -> Any:
        return self._pending.probabilities()


class TimedRunner(ModelRunner):
    """The daemon's runner with a clock."""

    queued = 0.0
    """Seconds of building and queueing steps."""
    waited = 0.0
    steps = 0

    def step(self, rows: Sequence[Row]) -> Any:
        begin = time.perf_counter()
        pending = super().step(rows)
        self.queued += time.perf_counter() - begin
        self.steps += 1
        return _Timed(pending, self)

    def reset(self) -> None:
        self.queued = self.waited = 0.0
        self.steps = 0


def run(
    model: Any, n_vocab: int, work: Workload, *, chunk: int, spare: int = 0
) -> Measured:
    """Serve the workload from a pool of just its size, and `spare` cells more."""
    gpu = mx.default_device().type == mx.DeviceType.gpu
    cuda = gpu and not mx.metal.is_available()
    if cuda:
        # As the daemon does at load; the other side gets the model as mlx-lm made it.
        linear.join_rows(model)
    try:
        return _run(model, n_vocab, work, chunk, spare, gpu=gpu, cell_major=cuda)
    finally:
        linear.part_rows(model)


def _run(
    model: Any,
    n_vocab: int,
    work: Workload,
    chunk: int,
    spare: int,
    *,
    gpu: bool,
    cell_major: bool,
) -> Measured:
    map_ = caches.measure(model)
    geometry = Geometry(131072, map_.bytes_per_token, map_.fixed_bytes_per_slot)
    # Cells for what runs at once, and for the slack that spans take when they grow.
    most = sorted((len(j.prompt) + j.n_predict for j in work.jobs), reverse=True)
    pool = sum(most[: work.rows]) + 256 * work.rows + spare
    wish = Wish("llama-compat", pool, work.rows, kv_unified=True)
    plan = make_plan(wish, geometry)
    mx.clear_cache()
    mx.reset_peak_memory()
    runner = TimedRunner(
        model,
        map_,
        Sampler(n_vocab, []),
        slots=plan.slots,
        cells=plan.cells,
        cell_major=cell_major,
        batched=True,
        pipelined=gpu,
    )
    answers = _Answers()
    text = Text([b"x"] * n_vocab, lambda text, special: [], eos_ids=[])
    limits = Limits(prefill_chunk=chunk, queue_size=len(work.jobs))
    scheduler = Scheduler(plan, text, runner, answers, limits=limits)
    coming = list(enumerate(work.jobs))
    turn = 0
    begin = time.perf_counter()
    decoding: float | None = None
    given = 0
    end = begin
    while coming or scheduler.busy:
        while coming and coming[0][1].arrives <= turn:
            number, job = coming.pop(0)
            asked = Generate(
                id=number,
                prompt=list(job.prompt),
                sampling=Sampling(seed=number, temperature=0.0),
                n_predict=job.n_predict,
            )
            scheduler.submit(asked, list(job.prompt))
        scheduler.advance()
        scheduler.read_chunk()
        turn += 1
        told = scheduler.tally.predicted_tokens
        if decoding is None and (
            not work.steady or len(answers.tokens) == len(work.jobs)
        ):
            # Every row has a token: from here on nothing but decode steps runs.
            decoding, given = (time.perf_counter(), told) if work.steady else (begin, 0)
            runner.reset()
        if decoding is not None and not (
            work.steady and any(slot.request is None for slot in scheduler.slots)
        ):
            end = time.perf_counter()
            counted = told - given
    assert decoding is not None
    steps = max(runner.steps, 1)
    return Measured(
        tokens=counted,
        seconds=end - decoding,
        prompt_tokens=sum(len(job.prompt) for job in work.jobs),
        prompt_seconds=decoding - begin,
        peak_bytes=mx.get_peak_memory(),
        answers=[answers.tokens[number] for number in range(len(work.jobs))],
        host_ms=1e3 * runner.queued / steps,
        wait_ms=1e3 * runner.waited / steps,
    )
