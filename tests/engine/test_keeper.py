"""Texts that leave their slot and come back: right answers, true counts, kept bounds.

`CellRunner`'s tokens depend on every cell, so an answer is right only when the text
came back whole; `solo` works the answers out without cells.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.engine import messages as m
from mlxceld.engine.runner import Saved
from mlxceld.engine.scheduler import Limits
from mlxceld.plan import Plan
from tests.engine.driving import Bench, CellRunner, Kept, shared, solo, split, words
from tests.fake import Script

GREEDY = m.Sampling(ignore_eos=True)


def with_ram(plan: Plan, nbytes: int) -> Plan:
    """`CellRunner`'s texts take a byte for each token."""
    return replace(plan, cache_ram_bytes=nbytes, kv_bytes_per_token=1)


def bench_of(plan: Plan, *, trimmable: bool = True, pipelined: bool = True) -> Bench:
    runner = CellRunner(plan.cells, pipelined=pipelined, trimmable=trimmable)
    return Bench(plan, runner=runner, limits=Limits(prefill_chunk=32))


def text(seed: int, n: int) -> list[int]:
    return [random.Random(seed).randrange(2, 61) for _ in range(n)]


def ask(bench: Bench, prompt: list[int], n: int = 5, **fields: object) -> m.Done:
    """An answer, which must be the one that the prompt gets alone."""
    done = bench.answer(prompt, n_predict=n, sampling=GREEDY, **fields)
    assert bench.tokens(done.id) == solo(prompt, n, ignore_eos=True)
    return done


@pytest.mark.parametrize("plan", [split(1, 256), shared(1, 256)], ids=["own", "shared"])
@pytest.mark.parametrize("trimmable", [True, False])
def test_a_prompt_whose_slot_went_to_another_comes_back(
    plan: Plan, trimmable: bool
) -> None:
    bench = bench_of(with_ram(plan, 1000), trimmable=trimmable)
    first, other = text(1, 60), text(2, 50)
    assert ask(bench, first).n_cached == 0
    assert ask(bench, other).n_cached == 0
    # What can be trimmed is kept with its answer, state as it was after the prompt.
    kept = 64 if trimmable else 59
    assert bench.scheduler.snapshot().saved_bytes == kept
    assert ask(bench, [*first, 7]).n_cached == (60 if trimmable else 59)
    assert ask(bench, [*other, 9]).n_cached == (50 if trimmable else 49)


def test_without_memory_for_it_nothing_is_kept() -> None:
    bench = bench_of(with_ram(split(1, 256), 0))
    first = text(1, 60)
    ask(bench, first)
    ask(bench, text(2, 60))
    assert ask(bench, first).n_cached == 0
    assert bench.scheduler.snapshot().saved_prompts == 0


def test_a_conversation_that_goes_on_is_not_copied_each_time() -> None:
    """More than half of what the slot remembers stays in use."""
    bench = bench_of(with_ram(split(1, 256), 1000))
    prompt = text(1, 60)
    for turn in range(4):
        ask(bench, prompt)
        prompt = [*prompt, *text(10 + turn, 10)]
    assert bench.scheduler.snapshot().saved_prompts == 0


def test_idle_slots_are_kept_when_their_cells_are_needed() -> None:
    bench = bench_of(with_ram(shared(3, 200), 1000))
    first, second = text(1, 60), text(2, 60)
    ask(bench, first)
    ask(bench, second)
    ask(bench, text(3, 120))
    assert bench.scheduler.snapshot().saved_prompts >= 1
    assert ask(bench, [*first, 5]).n_cached == 60
    assert ask(bench, [*second, 5]).n_cached == 60


def test_a_longer_kept_text_gives_its_beginning_and_stays() -> None:
    bench = bench_of(with_ram(split(1, 256), 1000))
    system = text(1, 80)
    ask(bench, [*system, *text(2, 60)])
    ask(bench, text(3, 60))
    assert ask(bench, [*system, *text(4, 20)]).n_cached == 80
    ask(bench, text(5, 60))
    assert ask(bench, [*system, *text(2, 60), 3]).n_cached == 140


def test_what_would_not_fit_beside_running_requests_is_read_anew() -> None:
    """A text of 104 tokens is restored as a whole: beside 110 live ones it cannot."""
    bench = bench_of(with_ram(shared(2, 200), 1000))
    long = text(1, 100)
    ask(bench, long)
    ask(bench, text(2, 150))
    running = bench.ask(text(3, 80), n_predict=60, sampling=GREEDY)
    bench.turn(40)
    assert not bench.ended(running)
    request = bench.ask([*long[:50], 5], n_predict=3, sampling=GREEDY)
    bench.run()
    assert bench.done(request).n_cached == 0
    assert bench.tokens(request) == solo([*long[:50], 5], 3, ignore_eos=True)
    assert bench.tokens(running) == solo(text(3, 80), 60, ignore_eos=True)


def test_a_request_that_opts_out_neither_takes_nor_leaves_anything() -> None:
    bench = bench_of(with_ram(split(1, 256), 1000))
    first, secret = text(1, 60), text(2, 60)
    ask(bench, first)
    assert ask(bench, secret, cache_prompt=False).n_cached == 0
    assert ask(bench, first, cache_prompt=False).n_cached == 0
    ask(bench, text(3, 60))
    assert bench.scheduler.snapshot().saved_prompts == 1
    assert ask(bench, secret).n_cached == 0


class Failing(CellRunner):
    """Copies in or out of the pool fail on demand."""

    broken = ""

    def export(self, slot: int, start: int, n: int) -> Kept:
        if self.broken == "export":
            raise RuntimeError("no memory")
        return super().export(slot, start, n)

    def restore(self, slot: int, start: int, saved: Saved) -> None:
        if self.broken == "restore":
            self.cells[start : start + 10] = [0] * 10
            raise RuntimeError("no memory")
        super().restore(slot, start, saved)


@pytest.mark.parametrize("broken", ["export", "restore"])
def test_a_copy_that_fails_costs_nobody_an_answer(broken: str) -> None:
    plan = with_ram(split(1, 256), 1000)
    runner = Failing(plan.cells, pipelined=True)
    bench = Bench(plan, runner=runner)
    ask(bench, text(1, 60))
    runner.broken = broken
    ask(bench, text(2, 60))
    assert ask(bench, text(1, 60)).n_cached == 0
    runner.broken = ""
    assert ask(bench, [*text(1, 60), 4]).n_cached == 60


@pytest.mark.parametrize("cancelled", [False, True])
def test_thirty_prompts_never_take_more_than_the_bound(cancelled: bool) -> None:
    """200 KiB each and 1 MiB: five fit, and the newest five are there."""
    plan = replace(split(2, 1024), kv_bytes_per_token=1024, cache_ram_bytes=1 << 20)
    bench = Bench(plan, script=Script())
    most = 0

    def watch() -> None:
        nonlocal most
        most = max(most, bench.scheduler.snapshot().saved_bytes)

    for index in range(30):
        request = bench.ask(words(200, f"p{index}."), n_predict=3)
        if cancelled:
            bench.turn(2)
            bench.scheduler.cancel(request)
        bench.run(watch)
        watch()
    assert most <= 1 << 20
    assert most >= 4 * 200 * 1024
    assert bench.scheduler.snapshot().saved_prompts == 5


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(30, 70), st.integers(0, 12)),
        min_size=3,
        max_size=12,
    ),
    st.integers(0, 250),
    st.booleans(),
    st.booleans(),
    st.sampled_from([split(2, 128), shared(3, 160)]),
)
def test_answers_are_right_and_the_bound_holds_whatever_comes_and_goes(
    coming: list[tuple[int, int, int]],
    limit: int,
    trimmable: bool,
    pipelined: bool,
    plan: Plan,
) -> None:
    bench = bench_of(with_ram(plan, limit), trimmable=trimmable, pipelined=pipelined)

    def watch() -> None:
        assert bench.scheduler.snapshot().saved_bytes <= limit

    asked = {}
    for family, n, turns in coming:
        prompt = [*text(family, 80)[:n], family + 2]
        request = bench.ask(prompt, n_predict=6, sampling=GREEDY)
        asked[request] = prompt
        for _ in range(turns):
            bench.turn()
            watch()
    bench.run(watch)
    for request, prompt in asked.items():
        assert bench.tokens(request) == solo(prompt, 6, ignore_eos=True)
