"""A prompt that begins like another one is not computed twice, and nobody waits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.engine import messages as m
from mlxceld.engine.scheduler import Limits
from mlxceld.plan import Plan
from tests.engine.driving import Bench, CellRunner, shared, solo, split

PIPELINED = pytest.mark.parametrize("pipelined", [True, False])
PLANS = pytest.mark.parametrize(
    "plan", [split(4, 1600), shared(4, 8192)], ids=["split", "shared"]
)

PREFIX = [2 + n % 57 for n in range(1500)]


def bench_of(plan: Plan, *, pipelined: bool = True, chunk: int = 256) -> Bench:
    runner = CellRunner(plan.cells, pipelined=pipelined)
    return Bench(plan, runner=runner, limits=Limits(prefill_chunk=chunk))


def read(bench: Bench) -> int:
    """Prompt tokens that were computed, the last one of each prompt included."""
    return bench.scheduler.tally.prompt_tokens


@PLANS
@PIPELINED
def test_eight_requests_on_four_slots_compute_their_common_beginning_once(
    plan: Plan, pipelined: bool
) -> None:
    bench = bench_of(plan, pipelined=pipelined)
    prompts = [[*PREFIX, 30 + n, *[n] * n] for n in range(8)]
    asked = [
        bench.ask(prompt, n_predict=20, sampling=m.Sampling(seed=n, ignore_eos=True))
        for n, prompt in enumerate(prompts)
    ]
    bench.run()
    for n, (prompt, request) in enumerate(zip(prompts, asked, strict=True)):
        assert bench.tokens(request) == solo(prompt, 20, seed=n, ignore_eos=True)
    ends = sum(1 + n for n in range(8))
    assert read(bench) == 1500 + ends
    cached = [bench.done(request).n_cached for request in asked]
    assert cached == [0] + [1500] * 7
    assert bench.scheduler.tally.cached_tokens == 7 * 1500


def test_a_request_that_waits_tells_of_a_copy_when_it_is_made() -> None:
    bench = bench_of(split(2, 1600))
    bench.ask([*PREFIX, 9], n_predict=1)
    second = bench.ask([*PREFIX, 8, 8, 8], n_predict=1)
    bench.run()
    progress = [e for e in bench.of(second) if isinstance(e, m.Progress)]
    assert [(e.processed, e.cached) for e in progress] == [
        (0, 0),
        (1500, 1500),
        (1502, 1500),
        (1503, 1500),
    ]
    # The whole prompt but its last token was there, so not one chunk is read.
    third = bench.answer([*PREFIX[:900], 1], n_predict=1)
    assert third.n_cached == 900


@PIPELINED
def test_a_copy_of_a_running_answer_takes_only_what_is_known(pipelined: bool) -> None:
    """The other request is in the middle of its answer, a step on its way."""
    bench = bench_of(split(2, 1600), pipelined=pipelined)
    rules = m.Sampling(seed=1, ignore_eos=True)
    first = bench.ask(PREFIX, n_predict=90, sampling=rules)
    while len(bench.tokens(first)) < 40:
        bench.turn()
    prompt = [*PREFIX, *bench.tokens(first)]
    second = bench.ask(prompt, n_predict=10, sampling=rules)
    bench.run()
    assert bench.tokens(first) == solo(PREFIX, 90, seed=1, ignore_eos=True)
    assert bench.tokens(second) == solo(prompt, 10, seed=1, ignore_eos=True)
    assert bench.done(second).n_cached >= 1500 + 38


def test_when_the_first_leaves_the_second_goes_on_from_what_was_read() -> None:
    bench = bench_of(split(2, 1600), chunk=100)
    first = bench.ask([*PREFIX, 9], n_predict=5)
    second = bench.ask([*PREFIX, 8], n_predict=5)
    bench.turn(4)
    bench.scheduler.cancel(first)
    bench.run()
    assert bench.done(second).n_cached == 400
    assert bench.tokens(second) == solo([*PREFIX, 8], 5)
    assert read(bench) == 1500 + 1


def test_an_older_one_that_comes_later_takes_over_and_gives_back() -> None:
    """The first waits for slot 0 while the second, younger, reads the same text."""
    bench = bench_of(split(2, 1600), chunk=100)
    busy = bench.ask([7], id_slot=0, n_predict=5, sampling=m.Sampling(ignore_eos=True))
    bench.turn()
    older = bench.ask([*PREFIX, 9], id_slot=0, n_predict=5)
    younger = bench.ask([*PREFIX, 8], n_predict=5)
    bench.run()
    assert bench.ended(busy)
    for request, end in ((older, 9), (younger, 8)):
        assert bench.tokens(request) == solo([*PREFIX, end], 5)
    assert read(bench) == 1 + 1500 + 2


def test_who_opts_out_neither_takes_nor_gives() -> None:
    bench = bench_of(split(3, 1600))
    quiet = bench.ask([*PREFIX, 9], n_predict=60, cache_prompt=False)
    second = bench.ask([*PREFIX, 8], n_predict=60)
    third = bench.ask([*PREFIX, 7], n_predict=5, cache_prompt=False)
    bench.run()
    assert [bench.done(r).n_cached for r in (quiet, second, third)] == [0, 0, 0]
    assert read(bench) == 3 * 1501


def test_a_pin_to_another_slot_copies_from_the_one_that_remembers() -> None:
    bench = bench_of(split(2, 1600))
    first = bench.answer([*PREFIX, 9], n_predict=1)
    pinned = bench.answer([*PREFIX, 8], id_slot=1 - first.slot, n_predict=5)
    assert (pinned.slot, pinned.n_cached) == (1 - first.slot, 1500)
    assert bench.tokens(pinned.id) == solo([*PREFIX, 8], 5)


def test_state_that_cannot_go_back_is_copied_for_the_same_prompt() -> None:
    runner = CellRunner(3200, pipelined=True, trimmable=False)
    bench = Bench(split(2, 1600), runner=runner, limits=Limits(prefill_chunk=256))
    asked = [bench.ask([*PREFIX, 9], n_predict=8) for _ in range(2)]
    bench.run()
    for request in asked:
        assert bench.tokens(request) == solo([*PREFIX, 9], 8)
    assert [bench.done(request).n_cached for request in asked] == [0, 1500]


def test_in_a_shared_pool_every_slot_pays_for_its_own_copy() -> None:
    """Two times 301 and the answers fit into 700, the third has to wait."""
    bench = bench_of(shared(3, 700))
    asked = [bench.ask([*PREFIX[:300], 9 + n], n_predict=20) for n in range(3)]
    most = 0

    def watch() -> None:
        nonlocal most
        most = max(most, bench.scheduler.snapshot().n_live)

    bench.run(watch)
    assert 600 < most <= 700
    assert [bench.done(r).n_cached for r in asked] == [0, 300, 300]
    assert bench.tokens(asked[2]) == solo([*PREFIX[:300], 11], 20)


class Broken(CellRunner):
    """A runner that cannot copy."""

    def copy(
        self, source: int, target: int, source_start: int, target_start: int, n: int
    ) -> None:
        raise RuntimeError("no copy")


class Counting(CellRunner):
    """A runner that remembers what it copied."""

    def __init__(self, cells: int) -> None:
        super().__init__(cells, pipelined=True)
        self.copied: list[int] = []

    def copy(
        self, source: int, target: int, source_start: int, target_start: int, n: int
    ) -> None:
        self.copied.append(n)
        super().copy(source, target, source_start, target_start, n)


def test_a_fault_while_copying_ends_that_request_alone() -> None:
    runner = Broken(3200, pipelined=True)
    bench = Bench(split(2, 1600), runner=runner)
    first = bench.ask([*PREFIX, 9], n_predict=5)
    second = bench.ask([*PREFIX, 8], n_predict=5)
    bench.run()
    assert bench.failed(second).code == 500
    assert bench.tokens(first) == solo([*PREFIX, 9], 5)
    assert bench.answer([5, 6], n_predict=1).n_decoded == 1


def test_a_text_that_gave_way_to_its_own_copy_is_read_again() -> None:
    """Slot 0 remembers 60 tokens, and slot 1 has no room for them beside it."""
    runner = Counting(100)
    bench = Bench(shared(2, 100), runner=runner)
    bench.answer([*PREFIX[:60], 9], id_slot=0, n_predict=1)
    done = bench.answer([*PREFIX[:60], 8], id_slot=1, n_predict=5)
    assert runner.copied == []
    assert done.n_cached == 0
    assert bench.tokens(done.id) == solo([*PREFIX[:60], 8], 5)


# ---- whatever comes and goes ----

ASKED = st.tuples(
    st.integers(0, 30),  # the turn before which it arrives
    st.integers(10, 60),  # tokens of the common beginning
    st.integers(0, 12),  # tokens of its own
    st.integers(1, 30),  # length of the answer
    st.none() | st.integers(1, 60),  # the turn before which its client leaves
    st.sampled_from([True, True, True, False]),  # cache_prompt
)
PLANS_OF_MIXES = [split(3, 110), shared(2, 110), shared(3, 150), shared(4, 400)]


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    plan=st.sampled_from(PLANS_OF_MIXES),
    mix=st.lists(ASKED, min_size=2, max_size=8),
    pipelined=st.booleans(),
    trimmable=st.sampled_from([True, True, False]),
    chunk=st.sampled_from([1, 7, 64]),
)
def test_copied_or_read_every_answer_is_that_of_a_request_alone(
    plan: Plan,
    mix: list[tuple[int, int, int, int, int | None, bool]],
    pipelined: bool,
    trimmable: bool,
    chunk: int,
) -> None:
    runner = CellRunner(plan.cells, pipelined=pipelined, trimmable=trimmable)
    bench = Bench(plan, runner=runner, limits=Limits(prefill_chunk=chunk))
    asked: dict[int, tuple[int, list[int], int]] = {}
    leaves: dict[int, int] = {}
    gone: set[int] = set()
    for turn in range(10_000):
        for n, (arrives, common, own, n_predict, left, cached) in enumerate(mix):
            if arrives == turn:
                prompt = [*PREFIX[:common], *[50 + n] * own]
                request = bench.ask(
                    prompt,
                    n_predict=n_predict,
                    sampling=m.Sampling(seed=n),
                    cache_prompt=cached,
                )
                asked[request] = (n, prompt, n_predict)
                if left is not None:
                    leaves[request] = max(left, turn)
        for request, when in leaves.items():
            if when == turn and not bench.ended(request):
                bench.scheduler.cancel(request)
                gone.add(request)
        if turn > 30 and not bench.scheduler.busy:
            break
        bench.turn()
        assert bench.scheduler.snapshot().n_live <= plan.pool
    for request, (seed, prompt, n_predict) in asked.items():
        alone = solo(prompt, n_predict, seed=seed)
        told = bench.tokens(request)
        if request in gone:
            assert told == alone[: len(told)]
            continue
        assert told == alone
        assert bench.done(request).n_cached < len(prompt)
        if not mix[seed][-1]:
            assert bench.done(request).n_cached == 0
