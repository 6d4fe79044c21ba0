"""Counters only grow, and are told in the units of the messages."""

from __future__ import annotations

from mlxceld.engine.messages import Totals
from mlxceld.engine.totals import Tally


def test_nothing_has_been_counted_at_the_start() -> None:
    assert Tally().totals() == Totals()


def test_a_step_counts_its_rows_and_remembers_the_longest_slot() -> None:
    tally = Tally()
    tally.step(3, 40)
    tally.step(1, 17)
    totals = tally.totals()
    assert (totals.decode_steps, totals.decoded_rows, totals.max_tokens) == (2, 4, 40)


def test_prompt_chunks_add_up_in_milliseconds() -> None:
    tally = Tally()
    tally.read(512, 0.25)
    tally.read(88, 0.5)
    totals = tally.totals()
    assert (totals.prompt_tokens, totals.prompt_ms) == (600, 750.0)


def test_what_was_counted_by_hand_is_told_as_it_is() -> None:
    tally = Tally(
        cached_tokens=5,
        predicted_tokens=7,
        predicted_seconds=0.125,
        requests=4,
        failed=1,
        cancelled=2,
        preempted=3,
    )
    assert tally.totals() == Totals(
        cached_tokens=5,
        predicted_tokens=7,
        predicted_ms=125.0,
        requests=4,
        failed=1,
        cancelled=2,
        preempted=3,
    )
