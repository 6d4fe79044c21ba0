"""Who holds what, who fits, and who has to make room."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.engine import ledger
from mlxceld.engine.messages import Generate, Sampling
from mlxceld.engine.slot import Request, Slot
from tests.fake import Script, Words

WORDS = Words(Script())


def idle(index: int, n_held: int, used: int) -> Slot:
    return Slot(index, n_held, list(range(n_held)), used=used)


def running(index: int, n_held: int, n_tokens: int, serial: int) -> Slot:
    message = Generate(id=serial, prompt=[], sampling=Sampling())
    prompt = list(range(n_tokens))
    request = Request.create(message, prompt, 4096, WORDS, arrived=0.0, serial=serial)
    return Slot(index, n_held, request=request)


def test_live_tokens_are_those_of_running_requests_alone() -> None:
    slots = [idle(0, 500, 1), running(1, 30, 40, 1), running(2, 7, 7, 2), idle(3, 0, 0)]
    assert ledger.live(slots) == 37


def test_a_running_request_claims_its_whole_prompt_and_the_next_token() -> None:
    assert ledger.spoken_for([running(0, 10, 100, 1)]) == 101
    assert ledger.spoken_for([running(0, 120, 120, 1), idle(1, 99, 1)]) == 121


@pytest.mark.parametrize(("n_tokens", "fits"), [(898, True), (899, False)])
def test_a_request_fits_when_all_prompts_and_next_tokens_do(
    n_tokens: int, fits: bool
) -> None:
    # 100 + 1 are spoken for; a prompt of 898 and its next token fill up 1000.
    slots = [running(0, 10, 100, 1), idle(1, 500, 1)]
    assert ledger.fits(n_tokens, slots, 1000) is fits


def test_nobody_gives_way_while_there_is_room() -> None:
    slots = [running(0, 10, 10, 1), idle(1, 40, 1)]
    assert ledger.to_evict(slots, [10, 40], slots[0], 60, 100) == []


def test_idle_slots_give_way_least_recently_used_first_and_only_as_many_as_needed() -> (
    None
):
    slots = [running(0, 0, 50, 1), idle(1, 30, 9), idle(2, 30, 3), idle(3, 30, 5)]
    claims = [0, 30, 30, 30]

    def evicted(n: int) -> list[int] | None:
        chosen = ledger.to_evict(slots, claims, slots[0], n, 100)
        return None if chosen is None else [slot.id for slot in chosen]

    assert evicted(10) == []
    assert evicted(11) == [2]
    assert evicted(40) == [2]
    assert evicted(41) == [2, 3]
    assert evicted(100) == [2, 3, 1]
    assert evicted(101) is None


def test_an_idle_slot_that_remembers_nothing_is_not_worth_clearing() -> None:
    slots = [running(0, 0, 50, 1), idle(1, 0, 1), idle(2, 60, 2)]
    assert ledger.to_evict(slots, [0, 0, 60], slots[0], 50, 100) == [slots[2]]


def test_the_cells_of_the_asking_slot_are_not_counted_twice() -> None:
    slots = [running(0, 60, 80, 1), idle(1, 20, 1)]
    assert ledger.to_evict(slots, [60, 20], slots[0], 80, 100) == []


def test_running_slots_are_never_cleared() -> None:
    slots = [running(0, 10, 10, 1), running(1, 90, 90, 2), idle(2, 0, 0)]
    assert ledger.to_evict(slots, [10, 90, 0], slots[0], 11, 100) is None


def test_the_youngest_running_request_gives_way() -> None:
    slots = [
        running(0, 1, 1, 5),
        running(1, 1, 1, 8),
        idle(2, 9, 9),
        running(3, 1, 1, 2),
    ]
    assert ledger.to_preempt(slots) is slots[1]


@st.composite
def houses(draw: st.DrawFn) -> tuple[list[Slot], int]:
    """Slots whose tokens fit into the pool, and the pool."""
    slots: list[Slot] = []
    for index in range(draw(st.integers(1, 6))):
        n = draw(st.integers(0, 60))
        if draw(st.booleans()):
            slots.append(running(index, n, draw(st.integers(1, 80)), index + 1))
        else:
            slots.append(idle(index, n, draw(st.integers(0, 9))))
    return slots, sum(slot.n_held for slot in slots) + draw(st.integers(0, 50))


@settings(derandomize=True, deadline=None)
@given(houses(), st.integers(0, 400))
def test_room_is_made_exactly_when_the_running_ones_leave_it(
    house: tuple[list[Slot], int], n: int
) -> None:
    slots, pool = house
    claims = [slot.n_held for slot in slots]
    kept = sum(slot.n_held for slot in slots[1:] if slot.request is not None)
    found = ledger.to_evict(slots, claims, slots[0], n, pool)
    if kept + n > pool:
        assert found is None
        return
    assert found is not None
    assert slots[0] not in found
    assert all(slot.request is None and slot.n_held for slot in found)
    left = sum(slot.n_held for slot in slots[1:] if slot not in found)
    assert left + n <= pool
    if found:
        # The last one was needed, and nobody who stays was used before it.
        assert left + found[-1].n_held + n > pool
        stay = [s for s in slots[1:] if s.request is None and s.n_held]
        used = [slot.used for slot in stay if slot not in found]
        assert all(found[-1].used <= other for other in used)


@settings(derandomize=True, deadline=None)
@given(houses(), st.integers(1, 200), st.integers(1, 400))
def test_who_is_let_in_can_be_read_to_the_end_beside_all_others(
    house: tuple[list[Slot], int], n_tokens: int, pool: int
) -> None:
    slots, _ = house
    if ledger.fits(n_tokens, slots, pool):
        everyone = [*slots, running(9, 0, n_tokens, 99)]
        read = [s.request.n_tokens for s in everyone if s.request is not None]
        assert sum(n + 1 for n in read) <= pool
        assert ledger.live(everyone) <= pool
