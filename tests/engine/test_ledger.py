"""Who holds what, who fits, and who has to make room."""

from __future__ import annotations

import pytest

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
