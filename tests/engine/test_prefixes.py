"""Which slot has read the beginning of a text, and how much of it counts."""

from __future__ import annotations

import pytest

from mlxceld.engine import prefixes
from mlxceld.engine.messages import Generate, Sampling
from mlxceld.engine.slot import Request, Slot, common_prefix
from tests.engine.driving import CellRunner
from tests.fake import Script, Words

WORDS = Words(Script())
RUNNER = CellRunner(0, pipelined=False)
TEXT = list(range(100, 200))


def asked(tokens: list[int], *, cache_prompt: bool = True) -> Request:
    message = Generate(id=1, prompt=[], sampling=Sampling(), cache_prompt=cache_prompt)
    return Request.create(message, tokens, 4096, WORDS, arrived=0.0, serial=1)


def running(
    index: int, tokens: list[int], n_held: int, *, cache_prompt: bool = True
) -> Slot:
    request = asked(tokens, cache_prompt=cache_prompt)
    return Slot(index, n_held, request=request, last=request)


def idle(index: int, tokens: list[int], *, cache_prompt: bool = True) -> Slot:
    last = asked(tokens, cache_prompt=cache_prompt)
    return Slot(index, len(tokens), tokens, last=last)


def longest(slot: Slot, *others: Slot) -> tuple[int, int] | None:
    """Source and number of tokens."""
    found = prefixes.longest([slot, *others], slot, RUNNER)
    return None if found is None else (found.source.id, found.n)


def test_an_idle_slot_gives_what_the_texts_have_in_common() -> None:
    slot = running(0, [*TEXT[:50], 1, 2], 0)
    assert longest(slot, idle(1, TEXT)) == (1, 50)


def test_the_last_token_is_read_by_everyone_for_himself() -> None:
    assert longest(running(0, TEXT[:60], 0), idle(1, TEXT)) == (1, 59)


def test_a_running_slot_gives_what_it_has_read_so_far() -> None:
    assert longest(running(0, TEXT, 0), running(1, TEXT, 40)) == (1, 40)


def test_the_token_of_a_step_on_its_way_is_not_given() -> None:
    """70 tokens are known and 70 cells are taken: the last one is being written."""
    slot = running(0, TEXT, 0)
    other = running(1, TEXT[:65], 70)
    assert other.request is not None
    other.request.output += TEXT[65:70]
    assert longest(slot, other) == (1, 69)


def test_the_slot_that_has_read_most_of_it_is_chosen() -> None:
    slot = running(0, TEXT, 0)
    others = idle(1, TEXT[:40]), running(2, TEXT, 80), idle(3, [*TEXT[:60], 1])
    assert longest(slot, *others) == (2, 80)


@pytest.mark.parametrize(("n", "found"), [(35, None), (36, (1, 36))])
def test_a_copy_has_to_save_16_tokens(n: int, found: tuple[int, int] | None) -> None:
    assert longest(running(0, TEXT, 20), idle(1, TEXT[:n])) == found


def test_either_side_may_opt_out() -> None:
    quiet = running(0, TEXT, 0, cache_prompt=False)
    assert longest(quiet, idle(1, TEXT)) is None
    slot = running(0, TEXT, 0)
    assert longest(slot, running(1, TEXT, 90, cache_prompt=False)) is None
    assert longest(slot, idle(1, TEXT, cache_prompt=False)) is None


def test_state_that_cannot_go_back_is_copied_where_it_was_marked() -> None:
    runner = CellRunner(0, pipelined=False, trimmable=False)
    runner.prefill(1, 0, 0, TEXT[:40])
    runner.mark(1, 40)
    slot = running(0, TEXT, 0)
    for n_held, n in ((40, 40), (90, 40), (39, None)):
        found = prefixes.longest([slot, running(1, TEXT, n_held)], slot, runner)
        assert (found and found.n) == n


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 512, 700])
def test_a_common_beginning_ends_where_the_texts_differ(n: int) -> None:
    one = list(range(700))
    assert common_prefix(one, [*one[:n], -1, *one]) == n
    assert common_prefix([*one[:n], -1, *one], one) == n
    assert common_prefix(one[:n], one) == n
    assert common_prefix(one, one[:n]) == n
