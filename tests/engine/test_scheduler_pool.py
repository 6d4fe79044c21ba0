"""Slots that draw on one pool: nobody loses an answer, nobody changes another's.

Every token of `CellRunner` depends on all cells of its span, and `solo` works out the
answer without any cells: the two agree only if no cell was ever lost or mixed up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.engine import ledger
from mlxceld.engine import messages as m
from mlxceld.engine.scheduler import Limits
from mlxceld.engine.slot import Request
from mlxceld.pacing import PACINGS
from mlxceld.plan import Plan
from tests.engine.driving import Bench, CellRunner, shared, solo, split, words

PIPELINED = pytest.mark.parametrize("pipelined", [True, False])


def sampling(seed: int, *, ignore_eos: bool = True) -> m.Sampling:
    return m.Sampling(seed=seed, ignore_eos=ignore_eos)


def bench_of(plan: Plan, *, pipelined: bool, chunk: int = 8) -> Bench:
    runner = CellRunner(plan.cells, pipelined=pipelined)
    return Bench(plan, runner=runner, limits=Limits(prefill_chunk=chunk))


@PIPELINED
def test_two_requests_that_outgrow_the_pool_both_get_their_whole_answers(
    pipelined: bool,
) -> None:
    """Each may use all 64 cells; together they start with 40 and want 128."""
    bench = bench_of(shared(2, 64), pipelined=pipelined)
    prompts = [list(range(2, 22)), list(range(30, 50))]
    asked = [
        bench.ask(prompt, sampling=sampling(seed))
        for seed, prompt in enumerate(prompts)
    ]
    bench.run()
    for seed, (prompt, request) in enumerate(zip(prompts, asked, strict=True)):
        expected = solo(prompt, 44, seed=seed, ignore_eos=True)
        assert bench.tokens(request) == expected
        assert bench.done(request).truncated
    assert bench.scheduler.tally.totals().preempted == 1


@PIPELINED
def test_the_youngest_gives_way_and_the_oldest_ends_first(pipelined: bool) -> None:
    bench = bench_of(shared(3, 60), pipelined=pipelined)
    asked = [bench.ask([n] * 10, n_predict=40, sampling=sampling(n)) for n in (2, 3, 4)]
    bench.run()
    ends = [event.id for event in bench.said if isinstance(event, m.Done)]
    assert ends == asked
    for n, request in zip((2, 3, 4), asked, strict=True):
        assert bench.tokens(request) == solo([n] * 10, 40, seed=n, ignore_eos=True)


@PIPELINED
def test_who_gave_way_comes_before_those_that_still_wait(pipelined: bool) -> None:
    bench = bench_of(shared(2, 64), pipelined=pipelined)
    first = bench.ask([2] * 20, sampling=sampling(2))
    second = bench.ask([3] * 20, sampling=sampling(3))
    small = bench.ask([4, 4], n_predict=1)
    while not bench.ended(first):
        assert bench.started(small) is None
        bench.turn()
    assert bench.scheduler.tally.preempted == 1
    bench.run()
    assert bench.tokens(second) == solo([3] * 20, 44, seed=3, ignore_eos=True)
    assert bench.done(small).n_decoded == 1


@PIPELINED
def test_four_streams_in_a_pool_that_remembers_two_others(pipelined: bool) -> None:
    """1024 cells, two finished prompts of 300, then four times 100 + 400."""
    plan = shared(4, 1024)
    bench = bench_of(plan, pipelined=pipelined, chunk=512)
    for n in (2, 3):
        bench.answer([n] * 300, n_predict=1)
    asked = [
        bench.ask([n] * 100, n_predict=400, sampling=sampling(n)) for n in range(4, 8)
    ]
    bench.run(lambda: _within(bench, plan))
    for n, request in zip(range(4, 8), asked, strict=True):
        expected = solo([n] * 100, 400, seed=n, ignore_eos=True)
        assert bench.tokens(request) == expected
    assert bench.scheduler.snapshot().n_live == 0
    assert bench.answer([9] * 100, n_predict=2).n_decoded == 2


def test_idle_slots_forget_least_recently_used_first_and_no_more_than_needed() -> None:
    bench = Bench(shared(4, 100))
    for name in "abc":
        bench.answer(words(30, name), n_predict=1)
    # 90 cells are remembered; 40 more need 30 of them: those of the first.
    bench.answer(words(35, "d"), n_predict=5)
    remembered = [slot.n_held for slot in bench.scheduler.slots]
    assert remembered == [0, 30, 30, 39]
    assert bench.scheduler.snapshot().totals.evicted == 1
    assert bench.answer(words(30, "b"), n_predict=1).n_cached == 29


def test_nothing_is_forgotten_while_there_is_room() -> None:
    bench = Bench(shared(4, 200))
    for name in "abc":
        bench.answer(words(30, name), n_predict=5)
    assert [slot.n_held for slot in bench.scheduler.slots] == [34, 34, 34, 0]
    assert bench.scheduler.snapshot().totals.evicted == 0


def test_remembered_cells_of_its_own_are_not_charged_twice() -> None:
    """A second turn that begins with the first has room beside nobody else."""
    bench = Bench(shared(4, 1024))
    first = bench.words.encode([words(600)], add_special=False)
    bench.answer(first, n_predict=50)
    second = bench.answer([*first, *[1] * 50, *range(2, 102)], n_predict=3)
    assert (second.n_prompt, second.n_cached) == (750, 649)


def test_a_prompt_that_can_never_fit_disturbs_nobody() -> None:
    bench = bench_of(shared(4, 1024), pipelined=True)
    request = bench.ask([2, 3], n_predict=30, sampling=sampling(1))
    bench.turn(5)
    failed = bench.failed(bench.ask([5] * 2000))
    assert (failed.code, failed.n_prompt_tokens, failed.n_ctx) == (400, 2000, 1024)
    bench.run()
    assert bench.tokens(request) == solo([2, 3], 30, seed=1, ignore_eos=True)


def test_a_request_that_waits_after_it_gave_way_can_be_cancelled() -> None:
    bench = bench_of(shared(2, 64), pipelined=True)
    first = bench.ask([2] * 20, sampling=sampling(1))
    second = bench.ask([3] * 20, sampling=sampling(2))
    while not bench.scheduler.tally.preempted:
        bench.turn()
    told = len(bench.of(second))
    bench.scheduler.cancel(second)
    bench.run()
    assert len(bench.of(second)) == told
    assert len(bench.tokens(first)) == 44


def test_a_token_from_before_an_interruption_is_not_told_twice() -> None:
    """Three rows decode; the last chunk of an old prompt takes the cell of the
    youngest request, whose first token is on its way; then the old one is cancelled
    and the youngest comes back into its old slot at once."""
    bench = bench_of(shared(5, 100), pipelined=True, chunk=100)
    for n in (2, 3, 4):
        bench.ask([n, n], n_predict=60, sampling=sampling(n))
    bench.turn(8)
    room = 100 - ledger.spoken_for(bench.scheduler.slots)
    old = bench.ask([7] * (room - 3), n_predict=5)
    young = bench.ask([9], n_predict=5, sampling=sampling(9))
    bench.turn()
    assert bench.scheduler.tally.preempted == 1
    bench.scheduler.cancel(old)
    bench.run()
    assert bench.tokens(young) == solo([9], 5, seed=9, ignore_eos=True)


# ---- whatever comes and goes ----


@dataclass(frozen=True)
class Asked:
    """A request of the random mixes."""

    arrives: int
    """The turn before which it is submitted."""
    prompt: tuple[int, ...]
    n_predict: int
    seed: int
    cache_prompt: bool
    id_slot: int
    cancelled: int | None
    """The turn before which its client goes away."""


TEXTS = (
    tuple(range(2, 46)),
    (*range(2, 27), *range(40, 59)),
    (2, 3, 4, *range(40, 81)),
    tuple(range(50, 82)),
)
"""Prompts are beginnings of these, so that slots often remember a part of them."""

ASKED = st.builds(
    Asked,
    arrives=st.integers(0, 40),
    prompt=st.builds(
        lambda text, n: text[:n], st.sampled_from(TEXTS), st.integers(1, 39)
    ),
    n_predict=st.integers(-1, 40),
    seed=st.integers(0, 3),
    cache_prompt=st.sampled_from([True, True, True, False]),
    id_slot=st.sampled_from([-1, -1, -1, 0, 1]),
    cancelled=st.none() | st.none() | st.integers(1, 90),
)

PLANS = st.sampled_from(
    [shared(2, 40), shared(3, 48), shared(5, 64, 48), shared(4, 700, 48), split(3, 40)]
)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    plan=PLANS,
    mix=st.lists(ASKED, min_size=1, max_size=9),
    pipelined=st.booleans(),
    trimmable=st.sampled_from([True, True, True, False]),
    takes_along=st.booleans(),
    chunk=st.sampled_from([1, 5, 512]),
    device=st.sampled_from(["cpu", "cuda"]),
    overflow=st.sampled_from(["preempt", "preempt", "error"]),
)
def test_every_answer_is_that_of_a_request_alone_and_told_once(
    plan: Plan,
    mix: list[Asked],
    pipelined: bool,
    trimmable: bool,
    takes_along: bool,
    chunk: int,
    device: str,
    overflow: str,
) -> None:
    runner = CellRunner(plan.cells, pipelined=pipelined, trimmable=trimmable)
    runner.takes_along = takes_along and trimmable and not pipelined
    # Short enough for these texts to meet it: chunks of 5 end at multiples of 4.
    pacing = replace(PACINGS[device], grain=4 if device == "cuda" else 1)
    limits = Limits(prefill_chunk=chunk, overflow=overflow, pacing=pacing)
    bench = Bench(plan, runner=runner, limits=limits)
    ids: dict[Asked, list[int]] = {}
    gone: set[int] = set()
    for turn in range(20_000):
        for asked in mix:
            if asked.arrives == turn:
                request = bench.ask(
                    asked.prompt,
                    n_predict=asked.n_predict,
                    sampling=sampling(asked.seed, ignore_eos=False),
                    cache_prompt=asked.cache_prompt,
                    id_slot=asked.id_slot,
                )
                ids.setdefault(asked, []).append(request)
        for asked in mix:
            if asked.cancelled == turn:
                for request in ids.get(asked, []):
                    if not bench.ended(request):
                        bench.scheduler.cancel(request)
                        gone.add(request)
        if turn > 40 and not bench.scheduler.busy:
            break
        oldest = _oldest(bench)
        before = None if oldest is None else _progress(bench, oldest)
        bench.turn()
        _within(bench, plan)
        if oldest is not None and _oldest(bench) is not oldest:
            # It has ended, or one that waited for its slot came in, and is older.
            first = _oldest(bench)
            older = first is not None and first.serial < oldest.serial
            assert older or bench.ended(oldest.id)
        elif oldest is not None:
            ahead = _progress(bench, oldest) != before
            assert ahead or oldest.issued >= oldest.limit
    else:
        raise AssertionError("the scheduler never came to rest")
    for asked, requests in ids.items():
        room = plan.slot_ctx - len(asked.prompt)
        limit = room if asked.n_predict < 0 else min(max(1, asked.n_predict), room)
        alone = solo(asked.prompt, limit, seed=asked.seed)
        for request in requests:
            told = bench.tokens(request)
            if request in gone:
                assert told == alone[: len(told)]
                assert not bench.ended(request)
            elif overflow == "error" and _overflown(bench, request):
                assert told == alone[: len(told)]
                assert plan.shared
            else:
                assert told == alone
                assert bench.done(request).n_decoded == len(alone)
                assert bench.of(request)[-1] == bench.done(request)
                assert bench.done(request).n_cached < len(asked.prompt)
    assert bench.scheduler.snapshot().n_live == 0
    assert all(slot.request is None for slot in bench.scheduler.slots)


def _overflown(bench: Bench, request: int) -> bool:
    """Whether it ended because the pool was short, and was told so once."""
    if not any(isinstance(event, m.Failed) for event in bench.of(request)):
        return False
    failed = bench.failed(request)
    assert (failed.code, failed.message) == (500, "Context size has been exceeded.")
    return True


def _oldest(bench: Bench) -> Request | None:
    """The oldest request that has a slot."""
    running = [slot.request for slot in bench.scheduler.slots if slot.request]
    return min(running, key=lambda request: request.serial, default=None)


def _progress(bench: Bench, request: Request) -> int:
    """Cells that the request holds."""
    [slot] = [slot for slot in bench.scheduler.slots if slot.request is request]
    return slot.n_held


def _within(bench: Bench, plan: Plan) -> None:
    """The promises about memory, checked after every turn."""
    slots, spans = bench.scheduler.slots, bench.scheduler._room.spans
    assert bench.scheduler.snapshot().n_live <= plan.pool
    assert all(slot.n_held <= spans.capacity(slot.id) for slot in slots)
    assert sum(slot.n_held for slot in slots) <= plan.cells
    assert all(slot.n_held < plan.slot_ctx for slot in slots)
