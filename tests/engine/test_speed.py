"""What a token costs, learned from chunks whose times are made up."""

from __future__ import annotations

import pytest

from mlxceld.engine.speed import Speed


def _speed(held: int = 0) -> Speed:
    """A hundredth of a second for each token after `held` others."""
    speed = Speed()
    speed.learn(held, 100, 1.0, 100)
    return speed


def test_nothing_is_known_before_the_first_chunk() -> None:
    assert Speed().tokens(0, 1.0) is None


@pytest.mark.parametrize(
    ("seconds", "n"), [(1.0, 100), (0.25, 25), (0.019, 1), (0.0, 0)]
)
def test_tokens_follow_from_time(seconds: float, n: int) -> None:
    assert _speed().tokens(0, seconds) == n


def test_a_slow_down_counts_in_full_at_once_and_a_speed_up_by_half() -> None:
    speed = _speed()
    speed.learn(0, 100, 2.0, 100)
    assert speed.tokens(0, 1.0) == 50
    speed.learn(0, 100, 1.0, 100)
    # Half way from 20 to 10 milliseconds.
    assert speed.tokens(0, 3.0) == 200


def test_the_end_of_a_prompt_does_not_tell_how_long_a_chunk_takes() -> None:
    speed = _speed()
    speed.learn(0, 4, 0.2, 100)
    assert speed.tokens(0, 1.0) == 100


def test_an_end_that_takes_as_long_as_two_chunks_tells_of_a_slow_down() -> None:
    speed = _speed()
    speed.learn(0, 4, 2.0, 100)
    assert speed.tokens(0, 1.0) == 50


def test_an_end_that_is_cheap_tells_of_a_speed_up() -> None:
    speed = _speed()
    speed.learn(0, 4, 0.02, 100)
    assert speed.tokens(0, 3.0) == 400


def test_what_is_read_far_on_is_dearer_and_does_not_slow_beginnings_down() -> None:
    speed = _speed()
    speed.learn(2048, 100, 4.0, 100)
    assert speed.tokens(2048, 1.0) == speed.tokens(4095, 1.0) == 25
    assert speed.tokens(0, 1.0) == speed.tokens(1023, 1.0) == 100


@pytest.mark.parametrize(
    ("held", "n"), [(1024, 100), (2048, 66), (4096, 44), (16384, 19)]
)
def test_a_length_not_read_at_before_is_taken_to_be_dearer(held: int, n: int) -> None:
    """By half for each doubling: 15, 22.5, 33.75 and 75.9 milliseconds a token."""
    assert _speed().tokens(held, 1.5) == n


def test_beginnings_are_taken_to_cost_what_later_text_does() -> None:
    assert _speed(held=4096).tokens(0, 1.0) == 100


def test_a_slower_machine_is_slower_at_every_length() -> None:
    speed = _speed()
    speed.learn(2048, 100, 4.0, 100)
    speed.learn(2048, 100, 8.0, 100)
    assert speed.tokens(0, 1.0) == 50


def test_a_clock_that_stands_still_means_very_fast() -> None:
    speed = Speed()
    speed.learn(0, 100, 0.0, 100)
    found = speed.tokens(0, 0.1)
    assert found is not None
    assert found > 1_000_000
