"""When the pool is short for those who run, and when the queue takes too long."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.scheduler import Limits
from mlxceld.plan import Plan
from tests.engine.driving import Bench, CellRunner, shared, solo, split, words

PIPELINED = pytest.mark.parametrize("pipelined", [True, False])
EXCEEDED = (500, "server_error", "Context size has been exceeded.")


def bench_of(
    plan: Plan, *, overflow: str, pipelined: bool = True, chunk: int = 128
) -> Bench:
    runner = CellRunner(plan.cells, pipelined=pipelined)
    limits = Limits(prefill_chunk=chunk, overflow=overflow)
    return Bench(plan, runner=runner, limits=limits)


def ask(bench: Bench, n: int, n_prompt: int, n_predict: int) -> int:
    """A prompt of `n` again and again, an answer without an end."""
    rules = m.Sampling(seed=n, ignore_eos=True)
    return bench.ask([n] * n_prompt, n_predict=n_predict, sampling=rules)


def failure(failed: m.Failed) -> tuple[int, str, str]:
    return failed.code, failed.type, failed.message


@PIPELINED
def test_with_error_all_who_run_end_together_and_the_next_one_is_served(
    pipelined: bool,
) -> None:
    """Four times 100 + 400 tokens in 1024 cells; each comes to about 156."""
    bench = bench_of(shared(4, 1024), overflow="error", pipelined=pipelined)
    asked = [ask(bench, n, 100, 400) for n in range(4)]
    bench.run(lambda: _within(bench, 1024))
    assert [failure(bench.failed(request)) for request in asked] == [EXCEEDED] * 4
    for n, request in enumerate(asked):
        told = bench.tokens(request)
        assert 150 < len(told) < 160
        assert told == solo([n] * 100, len(told), seed=n, ignore_eos=True)
    assert [slot.n_held for slot in bench.scheduler.slots] == [0] * 4
    totals = bench.scheduler.snapshot().totals
    assert (totals.failed, totals.preempted) == (4, 0)
    fifth = ask(bench, 9, 100, 400)
    bench.run()
    assert bench.tokens(fifth) == solo([9] * 100, 400, seed=9, ignore_eos=True)


@PIPELINED
def test_with_error_idle_slots_forget_before_anybody_fails(pipelined: bool) -> None:
    bench = bench_of(shared(4, 1024), overflow="error", pipelined=pipelined)
    for n in (7, 8):
        bench.answer([n] * 400, n_predict=1)
    request = ask(bench, 1, 100, 900)
    bench.run()
    assert bench.done(request).n_decoded == 900
    assert bench.scheduler.tally.failed == 0


def test_with_error_those_who_wait_go_on() -> None:
    bench = bench_of(shared(2, 64), overflow="error")
    running = [ask(bench, n, 20, 40) for n in (1, 2)]
    waiting = ask(bench, 3, 20, 40)
    bench.run()
    assert [failure(bench.failed(request)) for request in running] == [EXCEEDED] * 2
    assert bench.tokens(waiting) == solo([3] * 20, 40, seed=3, ignore_eos=True)


def test_with_error_a_prompt_that_is_being_read_ends_too() -> None:
    """llama-server does not choose a victim: every busy slot is cleared."""
    bench = bench_of(shared(3, 200), overflow="error", chunk=8)
    decoding = [ask(bench, n, 30, 100) for n in (1, 2)]
    bench.turn(10)
    reading = ask(bench, 3, 120, 1)
    bench.run()
    assert bench.tokens(reading) == []
    assert {failure(bench.failed(r)) for r in (*decoding, reading)} == {EXCEEDED}


def test_with_error_one_that_outgrows_its_window_ends_with_its_length() -> None:
    bench = bench_of(shared(2, 64), overflow="error")
    done = bench.answer([1] * 20, n_predict=-1, sampling=m.Sampling(ignore_eos=True))
    assert (done.stop_type, done.truncated, done.n_decoded) == ("limit", True, 44)


@pytest.mark.parametrize("overflow", ["preempt", "error"])
def test_with_split_slots_nobody_is_ever_in_the_way(overflow: str) -> None:
    bench = bench_of(split(4, 256), overflow=overflow)
    asked = [ask(bench, n, 100, 400) for n in range(4)]
    bench.run()
    assert [bench.done(request).n_decoded for request in asked] == [156] * 4
    assert bench.scheduler.tally.preempted == 0


# ---- putting back ----


@dataclass
class Watch:
    """What /slots and the queue said about every request, turn by turn."""

    bench: Bench
    order: list[list[int]] = field(default_factory=list)

    def __call__(self) -> None:
        scheduler = self.bench.scheduler
        self.order.append([request.id for request in scheduler.waiting])
        for state in scheduler.snapshot().slots:
            assert 0 <= state.n_processed + state.n_cached <= state.n_prompt
            if not state.processing:
                assert (state.n_decoded, state.has_next_token) == (0, False)
            else:
                assert state.n_held <= state.n_prompt + state.n_decoded + 1
                assert state.n_decoded == len(self.bench.tokens(state.task))


@PIPELINED
def test_who_is_put_back_keeps_his_place_and_the_counters_stay_true(
    pipelined: bool,
) -> None:
    """Five times 170 tokens in 200 cells: they come back in the order of arrival."""
    bench = bench_of(shared(3, 200), overflow="preempt", pipelined=pipelined)
    asked = [ask(bench, n, 20, 150) for n in range(1, 6)]
    watch = Watch(bench)
    bench.run(watch)
    assert bench.scheduler.tally.preempted >= 2
    assert all(waiting == sorted(waiting) for waiting in watch.order)
    ends = [event.id for event in bench.said if isinstance(event, m.Done)]
    assert ends == asked
    for n, request in enumerate(asked, start=1):
        assert bench.tokens(request) == solo([n] * 20, 150, seed=n, ignore_eos=True)


def test_who_is_put_back_while_his_prompt_is_read_counts_anew_what_was_cached() -> None:
    """40 tokens were found in the slot, which gave way before the rest was read."""
    bench = bench_of(shared(3, 200), overflow="preempt", chunk=4)
    bench.answer([3] * 40, id_slot=1, n_predict=1)
    old = [ask(bench, n, 30, 60) for n in (1, 2)]
    bench.turn(18)
    young = bench.ask([*[3] * 40, *[4] * 60], id_slot=1, n_predict=4)
    bench.turn()
    started = bench.started(young)
    assert started is not None
    assert started.n_cached == 40
    while not bench.scheduler.tally.preempted:
        bench.turn()
    bench.run()
    assert bench.done(young).n_cached == 0
    assert bench.tokens(young) == solo([*[3] * 40, *[4] * 60], 4)
    for n, request in enumerate(old, start=1):
        assert bench.tokens(request) == solo([n] * 30, 60, seed=n, ignore_eos=True)


def test_who_was_put_back_and_leaves_is_forgotten_at_once() -> None:
    bench = bench_of(shared(2, 64), overflow="preempt")
    first, second = ask(bench, 1, 20, 40), ask(bench, 2, 20, 40)
    while not bench.scheduler.tally.preempted:
        bench.turn()
    bench.scheduler.cancel(second)
    assert bench.scheduler.snapshot().waiting == 0
    assert bench.scheduler.snapshot().totals.cancelled == 1
    third = ask(bench, 3, 2, 3)
    bench.run()
    assert bench.done(first).n_decoded == 40
    assert bench.done(third).n_decoded == 3
    assert not bench.ended(second)


# ---- the deadline of the queue ----


def late(seconds: float, plan: Plan) -> Bench:
    return Bench(plan, limits=Limits(queue_timeout=seconds))


def test_who_has_waited_too_long_is_told_to_come_again() -> None:
    bench = late(2.5, split(1, 64))
    first = bench.ask(words(3), n_predict=40)
    second = bench.ask(words(3, "v"), n_predict=1)
    bench.turn()
    bench.clock.pass_(2.4)
    third = bench.ask(words(3, "u"), n_predict=1)
    bench.turn()
    assert not bench.ended(second)
    bench.clock.pass_(0.1)
    bench.turn()
    failed = bench.failed(second)
    assert (failed.code, failed.type) == (503, "unavailable_error")
    assert failed.message == ("no slot became free within 2.5 seconds, try again later")
    assert failed.retry_after == 1
    assert bench.started(second) is None
    bench.run()
    assert (bench.done(first).n_decoded, bench.done(third).n_decoded) == (40, 1)
    assert bench.scheduler.tally.failed == 1


def test_without_a_deadline_a_request_waits_as_long_as_it_takes() -> None:
    bench = late(0, split(1, 64))
    bench.ask(words(3), n_predict=40)
    second = bench.ask(words(3, "v"), n_predict=1)
    bench.turn()
    bench.clock.pass_(1e6)
    bench.run()
    assert bench.done(second).n_decoded == 1


def test_a_slot_that_is_free_at_the_deadline_is_still_taken() -> None:
    bench = late(2, split(1, 64))
    request = bench.ask(words(3), n_predict=1)
    bench.clock.pass_(3)
    bench.run()
    assert bench.done(request).n_decoded == 1


def test_who_has_started_and_was_put_back_waits_beyond_the_deadline() -> None:
    runner = CellRunner(64, pipelined=True)
    bench = Bench(shared(2, 64), runner=runner, limits=Limits(queue_timeout=2))
    first, second = ask(bench, 1, 20, 40), ask(bench, 2, 20, 40)
    while not bench.scheduler.tally.preempted:
        bench.turn()
    bench.clock.pass_(100)
    bench.run()
    for n, request in ((1, first), (2, second)):
        assert bench.tokens(request) == solo([n] * 20, 40, seed=n, ignore_eos=True)


def _within(bench: Bench, pool: int) -> None:
    assert bench.scheduler.snapshot().n_live <= pool
