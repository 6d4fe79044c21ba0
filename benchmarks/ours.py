"""Our engine loop, without processes and text around it: scheduler, runner, sampler."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from benchmarks.measured import Measured
from benchmarks.models import afresh
from benchmarks.workloads import Workload
from mlxceld.engine import caches, linear
from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.messages import Delta, Done, Failed, Generate, Sampling, Up
from mlxceld.engine.runner import Part, Row
from mlxceld.engine.sampling import Sampler
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.engine.text import Text
from mlxceld.pacing import PACINGS
from mlxceld.plan import Geometry, Plan, Wish, make_plan


@dataclass
class Answers:
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
        self._runner.waited.append(time.perf_counter() - begin)
        return tokens

    def probabilities(self) -> Any:
        return self._pending.probabilities()


class TimedRunner(ModelRunner):
    """The daemon's runner with a clock."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.queued: list[float] = []
        """Seconds of building and queueing, step by step."""
        self.waited: list[float] = []
        """Seconds of waiting for the tokens."""

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Any:
        begin = time.perf_counter()
        pending = super().step(rows, part)
        self.queued.append(time.perf_counter() - begin)
        return _Timed(pending, self)

    def reset(self) -> None:
        self.queued.clear()
        self.waited.clear()


@dataclass
class Loop:
    """The engine's loop, ready for requests, and what it said."""

    scheduler: Scheduler
    runner: TimedRunner
    answers: Answers

    def ask(
        self, number: int, prompt: Sequence[int], n_predict: int, *, id_slot: int = -1
    ) -> None:
        """Submit a greedy request that ends with its limit."""
        asked = Generate(
            id=number,
            prompt=list(prompt),
            sampling=Sampling(seed=number, temperature=0.0),
            n_predict=n_predict,
            id_slot=id_slot,
        )
        self.scheduler.submit(asked, list(prompt))

    def fill(self, lengths: Sequence[int], n_predict: int) -> None:
        """Bring one row for each length, prompt tokens, to its first token.

        All prompts are beginnings of one text, longest first: one is read, the others
        are copied from it. What a decode step costs does not depend on what was read.
        """
        longest = max(lengths)
        text = [4 + (i * 7919) % 1000 for i in range(longest)]
        for number, n in enumerate(sorted(lengths, reverse=True)):
            self.ask(number, text[:n], n_predict)
        while len(self.answers.tokens) < len(lengths):
            self.turn()

    def turn(self) -> None:
        """What the engine process does between two looks at its inbox."""
        self.scheduler.advance()
        self.scheduler.read_chunk()


@contextmanager
def prepared(model: Any) -> Iterator[None]:
    """Make the model what the daemon makes of it at load, and then again what mlx-lm
    makes of it, for the other side."""
    if _cuda():
        linear.join_rows(model)
    try:
        yield
    finally:
        linear.part_rows(model)


def geometry(model: Any) -> Geometry:
    """What the plan knows of a loaded model's caches."""
    map_ = caches.measure(model)
    return Geometry(
        131072, map_.bytes_per_token, map_.fixed_bytes_per_slot, measured=True
    )


def build(
    model: Any, n_vocab: int, plan: Plan, *, chunk: int, queue: int = 128
) -> Loop:
    """The loop of a `prepared` model; `chunk` is the most tokens read at once."""
    gpu = mx.default_device().type == mx.DeviceType.gpu
    # What the daemon takes on this device.
    kind = "cuda" if _cuda() else "metal" if gpu else "cpu"
    runner = TimedRunner(
        model,
        caches.measure(model),
        Sampler(n_vocab, []),
        slots=plan.slots,
        cells=plan.cells,
        cell_major=_cuda(),
        batched=True,
        pipelined=gpu,
        grain=PACINGS[kind].grain,
    )
    answers = Answers()
    text = Text([b"x"] * n_vocab, lambda text, special: [], eos_ids=[])
    limits = Limits(prefill_chunk=chunk, queue_size=queue, pacing=PACINGS[kind])
    return Loop(Scheduler(plan, text, runner, answers, limits=limits), runner, answers)


def _cuda() -> bool:
    gpu = mx.default_device().type == mx.DeviceType.gpu
    return gpu and not mx.metal.is_available()


def run(
    model: Any, n_vocab: int, work: Workload, *, chunk: int, spare: int = 0
) -> Measured:
    """Serve the workload from a pool of just its size, and `spare` cells more."""
    with prepared(model):
        return _run(model, n_vocab, work, chunk, spare)


def _run(model: Any, n_vocab: int, work: Workload, chunk: int, spare: int) -> Measured:
    # Cells for what runs at once, and for the slack that spans take when they grow.
    most = sorted((len(j.prompt) + j.n_predict for j in work.jobs), reverse=True)
    pool = sum(most[: work.rows]) + 256 * work.rows + spare
    wish = Wish("llama-compat", pool, work.rows, kv_unified=True)
    plan = make_plan(wish, geometry(model))
    afresh()
    loop = build(model, n_vocab, plan, chunk=chunk, queue=len(work.jobs))
    scheduler, runner, answers = loop.scheduler, loop.runner, loop.answers
    coming = list(enumerate(work.jobs))
    turn = 0
    begin = time.perf_counter()
    decoding: float | None = None
    given = 0
    end = begin
    while coming or scheduler.busy:
        while coming and coming[0][1].arrives <= turn:
            number, job = coming.pop(0)
            loop.ask(number, job.prompt, job.n_predict)
        loop.turn()
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
    steps = max(len(runner.queued), 1)
    return Measured(
        tokens=counted,
        seconds=end - decoding,
        prompt_tokens=sum(len(job.prompt) for job in work.jobs),
        prompt_seconds=decoding - begin,
        peak_bytes=mx.get_peak_memory(),
        answers=[answers.tokens[number] for number in range(len(work.jobs))],
        host_ms=1e3 * sum(runner.queued) / steps,
        wait_ms=1e3 * sum(runner.waited) / steps,
    )
