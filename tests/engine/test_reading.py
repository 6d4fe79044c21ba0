"""Chunks bounded by time, on a clock that the model moves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.runner import Part, Row
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.pacing import PACINGS
from mlxceld.plan import Wish
from tests.engine import real
from tests.engine.driving import Bench, CellRunner, Clock, Ready, Timed, split

GAP = 0.1
LIMITS = Limits(512, token_gap=GAP, pacing=replace(PACINGS["cpu"], least=16))
"""A step of `Timed` takes 40 milliseconds, a token of a prompt one: what is left of the
gap are 60 tokens."""

ENDLESS = m.Sampling(ignore_eos=True)


class Later(Ready):
    """A step on the device: reading it waits for it."""

    def __init__(self, tokens: list[int], clock: Clock, at: float) -> None:
        super().__init__(tokens)
        self._clock, self._at = clock, at

    def read(self) -> list[int]:
        self._clock.now = max(self._clock.now, self._at)
        return self.tokens


class Queued(Timed):
    """The same with a device that works through a queue beside the host."""

    def __init__(self, cells: int) -> None:
        super().__init__(cells)
        self.pipelined = True
        self._free = 0.0

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Later:
        tokens = CellRunner.step(self, rows, part).tokens
        self._free = max(self._free, self.clock.now) + self.seconds
        return Later(tokens, self.clock, self._free)

    def wait_for_steps(self) -> None:
        self.clock.now = max(self.clock.now, self._free)


def tokens(n: int, first: int = 100) -> list[int]:
    return [first + i for i in range(n)]


def streaming(runner: Timed, limits: Limits = LIMITS) -> tuple[Bench, list[float]]:
    """A bench with a running stream, and the times at which its tokens come."""
    bench = runner.bench(split(2, 10_000), limits)
    stream = bench.ask(tokens(101, 9000), n_predict=5000, sampling=ENDLESS)
    times: list[float] = []
    say = bench.scheduler._emit

    def emit(message: m.Up) -> None:
        say(message)
        if isinstance(message, m.Delta) and message.id == stream:
            times.append(bench.clock.now)

    bench.scheduler._answers._emit = emit
    bench.turn(6)
    runner.prefilled.clear()
    times.clear()
    return bench, times


def read(runner: Timed) -> list[int]:
    """The lengths of the chunks so far."""
    return [n for _, n in runner.prefilled]


@pytest.mark.parametrize("kind", [Timed, Queued])
def test_a_chunk_gets_what_a_step_leaves_of_the_gap(kind: type[Timed]) -> None:
    runner = kind(20_000)
    bench, times = streaming(runner)
    bench.ask(tokens(1025), n_predict=1)
    bench.turn(24)
    assert read(runner) == [60] * 17 + [4]
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert max(gaps) == pytest.approx(GAP)


def test_a_slow_down_is_followed_within_one_chunk() -> None:
    runner = Timed(20_000)
    bench, _ = streaming(runner)
    bench.ask(tokens(1025), n_predict=1)
    bench.turn(3)
    runner.token *= 2
    bench.turn(3)
    assert read(runner) == [60] * 4 + [30] * 2
    runner.seconds = 0.08
    bench.turn(2)
    # What was left of the time for one chunk: 20 milliseconds, too few for more.
    assert read(runner)[6:] == [16] * 2


def test_a_speed_up_is_followed_by_halves() -> None:
    runner = Timed(20_000)
    bench, _ = streaming(runner)
    bench.ask(tokens(1025), n_predict=1)
    bench.turn(2)
    runner.token /= 2
    bench.turn(3)
    # 1, then 0.75 and 0.625 milliseconds a token.
    assert read(runner) == [60] * 3 + [80, 96]


@pytest.mark.parametrize(
    ("device", "least"), [("cpu", 64), ("metal", 64), ("cuda", 256)]
)
def test_a_prompt_is_read_even_where_steps_take_all_the_time(
    device: str, least: int
) -> None:
    runner = Timed(20_000)
    runner.seconds = 0.2
    bench, _ = streaming(runner, replace(LIMITS, pacing=PACINGS[device]))
    bench.ask(tokens(1025), n_predict=1)
    bench.turn(3)
    assert read(runner) == [least] * 3


def test_a_chunk_that_is_set_smaller_than_the_least_stays_so() -> None:
    runner = Timed(20_000)
    runner.seconds = 0.2
    bench, _ = streaming(runner, replace(LIMITS, prefill_chunk=10))
    bench.ask(tokens(1025), n_predict=1)
    bench.turn(3)
    assert read(runner) == [10] * 3


@pytest.mark.parametrize(
    ("device", "chunk"), [("cpu", 420), ("cuda", 256), ("metal", 120)]
)
def test_the_gap_is_that_of_the_device_where_none_is_set(
    device: str, chunk: int
) -> None:
    """250 or 100 milliseconds less 40, at half a millisecond for a token; on CUDA 256
    is the least."""
    runner = Timed(20_000)
    runner.token /= 2
    bench, _ = streaming(runner, Limits(512, pacing=PACINGS[device]))
    bench.ask(tokens(1025), n_predict=1)
    bench.turn(2)
    assert read(runner) == [chunk] * 2


def test_chunks_end_where_the_device_wants_them_to() -> None:
    """At multiples of 256: 232 after 24 that were copied, then what 300 leaves."""
    runner = Timed(20_000)
    limits = Limits(300, pacing=PACINGS["cuda"])
    bench = runner.bench(split(2, 10_000), limits)
    bench.answer(tokens(24), n_predict=1, id_slot=1)
    runner.prefilled.clear()
    bench.ask([*tokens(24), *tokens(700, 5000)], n_predict=1, id_slot=0)
    bench.run()
    assert read(runner) == [232, 256, 211]


def test_a_chunk_set_smaller_than_the_grain_is_left_as_it_is() -> None:
    runner = Timed(20_000)
    bench = runner.bench(split(1, 10_000), Limits(50, pacing=PACINGS["cuda"]))
    bench.ask(tokens(201), n_predict=1)
    bench.run()
    assert read(runner) == [50] * 4


def test_no_gap_at_all_is_no_bound() -> None:
    runner = Timed(20_000)
    bench, _ = streaming(runner, replace(LIMITS, token_gap=0.0))
    bench.ask(tokens(1025), n_predict=1)
    bench.turn(2)
    assert read(runner) == [512] * 2


def test_another_gap_holds_from_the_next_chunk_on() -> None:
    runner = Timed(20_000)
    bench, _ = streaming(runner)
    bench.ask(tokens(1025), n_predict=1)
    bench.turn(2)
    told = m.Load(m.ModelSource(), Wish(), token_gap=0.2)
    bench.scheduler.limits = bench.scheduler.limits.with_bounds(told)
    bench.turn(2)
    assert read(runner) == [60, 60, 160, 160]


def test_with_nobody_to_hold_up_chunks_have_their_full_length() -> None:
    runner = Timed(20_000)
    bench = runner.bench(split(2, 10_000), LIMITS)
    bench.ask(tokens(1025), n_predict=1)
    bench.run()
    assert read(runner) == [512, 512]


@pytest.mark.parametrize("kind", [Timed, Queued])
def test_the_gap_holds_while_reading_gets_dearer_with_what_is_held(
    kind: type[Timed],
) -> None:
    """8192 tokens, of which the last ones cost four times what the first do."""
    runner = kind(40_000)
    runner.token /= 2
    bench, times = streaming(runner)
    runner.token_held = 3 * runner.token / 8192
    request = bench.ask(tokens(8193), n_predict=1)
    while not bench.ended(request):
        bench.turn()
    assert sum(read(runner)) == 8192
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert len(gaps) > 100
    assert max(gaps) <= 1.05 * GAP
    # Nor is time given away: most chunks use what there is.
    assert sorted(gaps)[len(gaps) // 2] >= 0.95 * GAP


# ---- on a real model ----


@pytest.mark.parametrize("along", [False, True])
def test_streams_flow_while_a_long_prompt_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    along: bool,
) -> None:
    """8192 tokens beside a stream: between two of its tokens lies one chunk at most,
    and their times leave room for a busy machine."""
    monkeypatch.setattr(real.ModelRunner, "takes_along", along)
    model = real.tiny_model(
        tmp_path_factory,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    plan = model.plan(Wish("per-seq", None, 2, ctx_size_per_seq=8400))
    runner = model.runner(plan.slots, plan.cells)
    chunks: list[float] = []
    prefill, step = runner.prefill, runner.step

    def timed(slot: int, start: int, position: int, tokens: Sequence[int]) -> None:
        began = time.monotonic()
        prefill(slot, start, position, tokens)
        chunks.append(time.monotonic() - began)

    def taking(rows: Sequence[Row], part: Part | None = None) -> Any:
        began = time.monotonic()
        pending = step(rows, part)
        if part is not None:
            pending.read()
            chunks.append(time.monotonic() - began)
        return pending

    runner.prefill = timed  # type: ignore[method-assign]
    runner.step = taking  # type: ignore[method-assign]
    came: list[tuple[float, int]] = []

    def emit(message: m.Up) -> None:
        if isinstance(message, m.Delta) and message.id == 1:
            came.append((time.monotonic(), len(chunks)))

    limits = Limits(prefill_chunk=512, token_gap=0.1, chunk_seconds=10.0)
    scheduler = Scheduler(plan, real.WORDS, runner, emit, limits=limits)
    scheduler.submit(*real.ask(1, tokens(101, 3), 8000))
    while len(came) < 20:
        scheduler.advance()
        scheduler.read_chunk()
    scheduler.submit(*real.ask(2, [3 + i % 300 for i in range(8193)], 1))
    first, begun = len(came), len(chunks)
    while any(slot.prefilling for slot in scheduler.slots) or scheduler.waiting:
        scheduler.advance()
        scheduler.read_chunk()
    assert len(chunks) - begun >= 16
    times = came[first - 1 :]
    assert all(b - a <= 1 for (_, a), (_, b) in zip(times, times[1:], strict=False))
    gaps = [b - a for (a, _), (b, _) in zip(times, times[1:], strict=False)]
    assert max(gaps) < 3 * median(gaps) + max(chunks) + 0.2
