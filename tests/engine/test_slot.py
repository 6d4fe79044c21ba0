"""The small rules of one request: its limits, its chance, its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.engine.messages import Generate, Sampling, Timings
from mlxceld.engine.slot import Request, Slot
from tests.fake import Script, Words

WORDS = Words(Script())


def request(
    prompt: list[int], n_ctx: int = 256, *, seed: int = 0, **fields: Any
) -> Request:
    message = Generate(id=1, prompt=[], sampling=Sampling(seed=seed), **fields)
    return Request.create(message, prompt, n_ctx, WORDS, arrived=10.0, serial=1)


@pytest.mark.parametrize(
    ("n_predict", "limit", "truncated"),
    [
        (-1, 248, True),
        (-2, 248, True),
        (10**9, 248, True),
        (249, 248, True),
        (248, 248, False),
        (5, 5, False),
        (1, 1, False),
        (0, 1, False),
    ],
)
def test_the_window_and_n_predict_limit_an_answer(
    n_predict: int, limit: int, truncated: bool
) -> None:
    """Eight of 256 tokens are the prompt. Negative is no limit, 0 gives one token."""
    found = request([1] * 8, n_predict=n_predict)
    assert (found.limit, found.truncated) == (limit, truncated)


@pytest.mark.parametrize(("n_prompt", "limit"), [(2000, 48), (2046, 2), (2047, 1)])
def test_the_last_tokens_of_a_window_can_be_used(n_prompt: int, limit: int) -> None:
    """As measured on llama-server with a window of 2048."""
    found = request([1] * n_prompt, 2048)
    assert (found.limit, found.truncated) == (limit, True)


@pytest.mark.parametrize(
    ("n_predict", "remaining"), [(-1, -1), (-2, -1), (0, 0), (1, 0), (5, 3)]
)
def test_what_n_predict_still_allows(n_predict: int, remaining: int) -> None:
    found = request([1], n_predict=n_predict)
    found.output = [4, 4]
    assert found.n_remain == remaining


@pytest.mark.parametrize(
    ("n", "tokens"),
    [
        (0, []),
        (1, [9]),
        (2, [8, 9]),
        (3, [3, 8, 9]),
        (4, [2, 3, 8, 9]),
        (5, [1, 2, 3, 8, 9]),
        (6, [1, 2, 3, 8, 9]),
        (-1, [1, 2, 3, 8, 9]),
    ],
)
def test_the_window_of_the_penalties_reaches_back_into_the_prompt(
    n: int, tokens: list[int]
) -> None:
    found = request([1, 2, 3])
    found.output = [8, 9]
    assert found.recent(n) == tokens


def test_before_the_first_token_the_window_lies_in_the_prompt() -> None:
    assert request([1, 2, 3]).recent(2) == [2, 3]


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=12), st.integers(0, 2**63))
def test_chance_depends_on_the_seed_and_the_place_alone(
    places: list[int], seed: int
) -> None:
    """Whatever was drawn before: a request that was interrupted samples the same."""
    expected = np.random.Generator(np.random.Philox(key=seed)).random(301)
    found = request([1], seed=seed)
    assert [found.uniform(place) for place in places] == [expected[p] for p in places]


def test_different_seeds_draw_differently() -> None:
    assert request([1], seed=1).uniform(0) != request([1], seed=2).uniform(0)


def test_a_request_that_never_started_has_only_waited() -> None:
    assert request([1]).timings(12.0) == Timings(2000.0, 0.0, 0.0)


def test_times_are_split_at_the_start_and_at_the_first_token() -> None:
    found = request([1])
    found.started = 10.5
    assert found.timings(11.0) == Timings(500.0, 500.0, 0.0)
    found.first_token = 11.0
    assert found.timings(14.0) == Timings(500.0, 500.0, 3000.0)


def test_a_slot_reads_all_of_a_prompt_but_its_last_token() -> None:
    slot = Slot(0, request=request([1, 2, 3]))
    seen = []
    for slot.n_held in (0, 1, 2, 3):
        seen.append(slot.prefilling)
    assert seen == [True, True, False, False]


def test_a_prompt_of_one_token_needs_no_chunk() -> None:
    assert not Slot(0, request=request([1])).prefilling


def test_a_resumed_request_reads_its_own_answer_again() -> None:
    found = request([1, 2])
    found.output = [3, 4]
    assert found.tokens == [1, 2, 3, 4]
    assert Slot(0, 2, request=found).prefilling
    assert not Slot(0, 3, request=found).prefilling


def test_an_idle_slot_is_not_reading() -> None:
    assert not Slot(0, 5).prefilling


@pytest.mark.parametrize(
    ("tokens", "n"),
    [([], 0), ([9], 0), ([1], 1), ([1, 2, 9], 2), ([1, 2, 3], 3), ([1, 2, 3, 4], 3)],
)
def test_a_slot_knows_how_much_of_a_prompt_it_remembers(
    tokens: list[int], n: int
) -> None:
    assert Slot(0, 3, [1, 2, 3]).common_prefix(tokens) == n
