"""The queue: who comes next, and that nobody else is looked at to know it."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.engine.messages import Failed, Generate, Sampling
from mlxceld.engine.scheduler import Limits
from mlxceld.engine.slot import Request
from mlxceld.engine.waiting import Waiting
from tests.engine.driving import Bench, shared, split
from tests.fake import Script, Words

WORDS = Words(Script())


def request(number: int, id_slot: int = -1) -> Request:
    message = Generate(id=number, prompt=[], sampling=Sampling(), id_slot=id_slot)
    return Request.create(message, [1, 2], 64, WORDS, arrived=0.0, serial=number)


def queue_of(*wishes: int) -> Waiting:
    """Requests 0, 1, 2 ... for the slots named; -1 is any."""
    queue = Waiting()
    for number, wish in enumerate(wishes):
        queue.add(request(number, wish))
    return queue


def ids(queue: Waiting) -> list[int]:
    return [one.id for one in queue]


def first(queue: Waiting, *idle: int) -> int | None:
    found = queue.first(idle)
    return None if found is None else found.id


# ---- who comes next ----


def test_those_who_take_any_slot_come_in_order_of_arrival() -> None:
    queue = queue_of(-1, -1, -1)
    for expected in (0, 1, 2):
        assert first(queue, 0) == expected
        queue.take(expected)
    assert first(queue, 0) is None


def test_who_waits_for_a_busy_slot_is_passed_by_and_keeps_the_place() -> None:
    queue = queue_of(0, -1, 0, 1)
    assert first(queue, 1) == 1
    assert first(queue, 0, 1) == 0
    queue.take(0)
    queue.take(1)
    assert first(queue, 0, 1) == 2
    assert first(queue, 1) == 3
    assert first(queue, 2) is None


def test_any_negative_slot_means_any() -> None:
    assert first(queue_of(-7), 3) == 0


def test_whoever_was_put_back_comes_before_all_others_the_last_one_first() -> None:
    queue = queue_of(-1, 0, -1)
    for number, wish in ((7, -1), (8, 0), (9, -1)):
        queue.put_back(request(number, wish))
    assert ids(queue) == [9, 8, 7, 0, 1, 2]
    assert first(queue, 0) == 9
    queue.take(9)
    assert (first(queue, 0), first(queue, 1)) == (8, 7)


def test_one_that_is_cancelled_leaves_the_others_in_their_order() -> None:
    queue = queue_of(-1, 0, -1, 0, -1)
    gone = queue.take(2)
    assert gone is not None
    assert (gone.id, ids(queue), len(queue)) == (2, [0, 1, 3, 4], 4)
    assert queue.take(2) is queue.take(99) is None
    assert len(queue) == 4


def test_who_has_started_once_has_no_deadline_any_more() -> None:
    queue = queue_of(-1, 0)
    queue.put_back(request(7))
    found = []
    while (longest := queue.longest) is not None:
        found.append(longest.id)
        queue.take(longest.id)
    assert found == [0, 1]
    assert ids(queue) == [7]


ACTS = st.one_of(
    st.tuples(st.just("add"), st.integers(-1, 2)),
    st.tuples(st.just("seat"), st.sets(st.integers(0, 2))),
    st.tuples(st.just("back"), st.integers(0, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ACTS, max_size=40))
def test_the_order_is_that_of_a_list_that_is_walked(acts: list[Any]) -> None:
    queue, plain = Waiting(), []
    seated: list[Request] = []
    number = 0
    for act, argument in acts:
        if act == "add":
            number += 1
            one = request(number, argument)
            queue.add(one)
            plain.append(one)
        elif act == "seat":
            free = {-1, *argument}
            wanted = next((r for r in plain if r.message.id_slot in free), None)
            assert queue.first(argument) is wanted
            if wanted is not None:
                assert queue.take(wanted.id) is wanted
                plain.remove(wanted)
                seated.append(wanted)
        elif act == "back" and argument < len(seated):
            one = seated.pop(argument)
            queue.put_back(one)
            plain.insert(0, one)
        elif act == "cancel" and argument < len(plain):
            one = plain.pop(argument)
            assert queue.take(one.id) is one
        assert list(queue) == plain
        assert len(queue) == len(plain)


# ---- seating ----


def test_each_slot_that_becomes_idle_goes_to_the_first_who_may_have_it() -> None:
    bench = Bench(split(2, 64))
    running = {slot: bench.ask([1, 2], id_slot=slot, n_predict=60) for slot in (0, 1)}
    bench.turn(2)
    zero, any_, one, last = (
        bench.ask([1, 2], id_slot=wish, n_predict=60) for wish in (0, -1, 1, -1)
    )

    def freed(slot: int) -> int:
        """Who gets the slot when the one in it leaves."""
        bench.scheduler.cancel(running[slot])
        bench.turn()
        request = bench.scheduler.slots[slot].request
        assert request is not None
        running[slot] = request.id
        return request.id

    assert [freed(slot) for slot in (1, 1, 0, 1)] == [any_, one, zero, last]


def test_one_for_an_idle_slot_that_needs_room_holds_up_those_behind() -> None:
    bench = Bench(shared(3, 100))
    bench.ask([1] * 60, id_slot=0, n_predict=20)
    large = bench.ask([2] * 60, id_slot=1, n_predict=1)
    small = bench.ask([3] * 3, n_predict=1)
    bench.turn(5)
    assert bench.started(large) is bench.started(small) is None
    bench.scheduler.cancel(large)
    bench.turn()
    assert bench.started(small) is not None


def test_a_deadline_that_is_set_while_they_wait_holds_for_all() -> None:
    bench = Bench(split(1, 64))
    bench.ask([1, 2], n_predict=50)
    bench.turn()
    late = [bench.ask([1, 2], id_slot=wish) for wish in (-1, 0, -1)]
    bench.clock.pass_(3)
    soon = bench.ask([1, 2])
    bench.turn()
    assert not any(map(bench.ended, late))
    bench.scheduler.limits = Limits(queue_timeout=2.0)
    bench.turn()
    failed = [event.id for event in bench.said if isinstance(event, Failed)]
    assert failed == late
    assert not bench.ended(soon)


# ---- what a long queue costs ----


def work(do: Callable[[], object]) -> tuple[int, int]:
    """Python instructions that `do` and all it calls carry out, and bytes it takes."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    tracemalloc.start()
    try:
        do()
        return count, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def crowded(n: int) -> Bench:
    """Two slots decode while `n` requests wait, a third of them for slot 0."""
    limits = Limits(queue_size=n, queue_timeout=60.0)
    bench = Bench(split(2, 64), limits=limits)
    for _ in range(2):
        bench.ask([1, 2, 3], n_predict=40)
    bench.turn(4)
    for number in range(n):
        bench.ask([1, 2, 3], id_slot=-1 if number % 3 else 0)
    bench.turn(4)
    assert len(bench.scheduler.waiting) == n
    return bench


@pytest.fixture(scope="module")
def crowds() -> tuple[Bench, Bench]:
    """Five wait, and ten thousand."""
    return crowded(5), crowded(10_000)


KILOBYTES = 32 << 10
"""What a list of ten thousand is above, and a step of two rows below."""


def test_a_step_does_the_same_work_however_many_wait(
    crowds: tuple[Bench, Bench],
) -> None:
    few, many = (work(bench.turn) for bench in crowds)
    assert few[0] == many[0]
    assert max(few[1], many[1]) < KILOBYTES


def test_a_look_at_the_state_does_the_same_work_however_many_wait(
    crowds: tuple[Bench, Bench],
) -> None:
    few, many = (work(bench.scheduler.snapshot) for bench in crowds)
    assert few[0] == many[0]
    assert max(few[1], many[1]) < KILOBYTES


def test_who_waits_is_cancelled_without_a_walk(crowds: tuple[Bench, Bench]) -> None:
    few, many = (
        work(lambda bench=bench: bench.scheduler.cancel(bench._ids - 1))  # type: ignore[misc]
        for bench in crowds
    )
    assert few[0] == many[0]
    assert max(few[1], many[1]) < KILOBYTES


def test_a_slot_is_given_to_the_next_without_a_walk(
    crowds: tuple[Bench, Bench],
) -> None:
    """The one in slot 1 leaves; the head of the queue wants slot 0, which is busy."""

    def change(bench: Bench) -> None:
        running = bench.scheduler.slots[1].request
        assert running is not None
        bench.scheduler.cancel(running.id)
        bench.scheduler.advance()
        assert bench.scheduler.slots[1].request is not None

    few, many = (work(lambda b=bench: change(b)) for bench in crowds)  # type: ignore[misc]
    assert few[0] == many[0]
    assert max(few[1], many[1]) < KILOBYTES
