"""Verdicts of recorded values, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlxceld.verify.record import Long, Memory, Poll, Record, Seen, Status, Stream
from mlxceld.verify.verdict import (
    Verdict,
    judge,
    measured,
    met,
    most_at_once,
    numbers,
    status,
)

SEEN = Seen(slots=4, listed=4, props_ctx=2048, slots_ctx=(2048,) * 4, models_ctx=2048)
FILL = Long(2040, 16, 200, 2040, 8, truncated=True, stop_type="limit", slot=3)
OVER = Long(
    2049,
    1,
    400,
    error="HTTP 400: request (2049 tokens) exceeds the available context size",
    kind="exceed_context_size_error",
    n_ctx=2048,
    n_prompt=2049,
)


def stream(index: int, first: float, end: float, sent: float = 0.0) -> Stream:
    """A stream of eleven tokens."""
    ticks = tuple(first + (end - first) * i / 10 for i in range(11))
    return Stream(index, sent, ticks, end, tokens=11, slot=3 - index)


TOGETHER = tuple(stream(i, 0.2 + i / 10, 2.0 + i / 10) for i in range(4))
LOOKS = tuple(Poll(1.0 + i / 10, 1.01 + i / 10, 4) for i in range(5))
GOOD = Record("http://host", SEEN, TOGETHER, LOOKS, fills=(FILL,), over=OVER)


def verdict(record: Record, name: str) -> Verdict:
    (found,) = (one for one in judge(record) if one.name == name)
    return found


def state(record: Record, name: str) -> str:
    return verdict(record, name).state


def test_a_good_record_has_no_wrong_verdict() -> None:
    found = {one.name: one.state for one in judge(GOOD)}
    assert found == {
        "overlap": "ok",
        "slots": "ok",
        "count": "ok",
        "numbers": "ok",
        "window": "ok",
        "refusal": "ok",
        "memory": "unknown",
    }
    assert status(judge(GOOD)) is Status.GOOD


def test_one_wrong_verdict_is_a_wrong_server() -> None:
    verdicts = [Verdict("a", "ok", ""), Verdict("b", "WRONG", "")]
    assert status(verdicts) is Status.WRONG
    assert status([Verdict("a", "unknown", "")]) is Status.GOOD


@pytest.mark.parametrize(
    ("spans", "most"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (1, 2)], 1),
        ([(0, 2), (1, 3), (2.5, 4)], 2),
        ([(0, 9), (1, 8), (2, 7), (3, 4), (5, 6)], 4),
    ],
)
def test_the_most_at_once(spans: list[tuple[float, float]], most: int) -> None:
    assert most_at_once(spans) == most


def test_first_tokens_are_seen_against_the_ends_of_the_others() -> None:
    streams = [stream(0, 0, 2), stream(1, 1, 3), stream(2, 2.5, 4)]
    # The first began before all ends; the last one after the end of the first.
    assert [met(one, streams) for one in streams] == [(2, 2), (2, 2), (1, 2)]


def test_streams_one_after_another_are_wrong() -> None:
    serial = tuple(stream(i, i * 1.0 + 0.1, i + 1.0) for i in range(4))
    found = verdict(replace(GOOD, streams=serial, polls=()), "overlap")
    assert found.state == "WRONG"
    assert found.text == "1 of 4 streams ran at once, 4 should have"


def test_an_end_that_comes_late_does_not_make_serial_streams_meet() -> None:
    serial = tuple(stream(i, i * 1.0, i + 1.05) for i in range(4))
    found = verdict(replace(GOOD, streams=serial), "overlap")
    assert found.text == "1 of 4 streams ran at once, 4 should have"


def test_two_pairs_on_four_slots_are_wrong() -> None:
    pairs = tuple(stream(i, i // 2 * 1.0, i // 2 + 0.9) for i in range(4))
    found = verdict(replace(GOOD, streams=pairs), "overlap")
    assert found.text == "2 of 4 streams ran at once, 4 should have"
    assert found.state == "WRONG"


def test_a_server_of_one_slot_need_not_run_two() -> None:
    one = replace(SEEN, slots=1, listed=1)
    serial = (stream(0, 0.0, 1.0), stream(1, 1.0, 2.0))
    assert state(replace(GOOD, seen=one, streams=serial), "overlap") == "ok"


def test_more_streams_at_once_than_slots_are_wrong() -> None:
    two = replace(SEEN, slots=2, listed=2)
    found = verdict(replace(GOOD, seen=two), "overlap")
    assert found.state == "WRONG"
    assert found.text == "4 streams ran at once on 2 slots"


def test_slots_that_work_for_others_excuse_streams_that_wait() -> None:
    serial = tuple(stream(i, i * 1.0 + 0.1, i + 1.0) for i in range(4))
    busy = replace(SEEN, busy=3)
    found = verdict(replace(GOOD, seen=busy, streams=serial), "overlap")
    assert found.state == "unknown"
    assert "3 slots were at work for others" in found.text


def test_streams_that_end_before_the_last_is_sent_say_nothing() -> None:
    short = tuple(stream(i, i + 0.01, i + 0.02, sent=i) for i in range(4))
    assert state(replace(GOOD, streams=short), "overlap") == "unknown"


def test_answers_in_one_piece_say_nothing() -> None:
    pieces = tuple(
        Stream(i, 0.0, (i + 1.0, i + 1.001), i + 1.001, slot=i) for i in range(4)
    )
    assert state(replace(GOOD, streams=pieces), "overlap") == "unknown"


def test_a_failed_stream_is_wrong_unless_it_had_no_slot() -> None:
    failed = Stream(4, 0.0, error="HTTP 503: the queue is full")
    record = replace(GOOD, streams=(*TOGETHER[:3], failed))
    found = verdict(record, "overlap")
    assert found.text == "1 of 4 streams failed: HTTP 503: the queue is full"
    assert found.state == "WRONG"
    record = replace(GOOD, streams=(*TOGETHER, failed))
    assert state(record, "overlap") == "unknown"


def test_a_view_is_blamed_only_when_it_was_looked_at_in_time() -> None:
    idle = tuple(replace(look, busy=1) for look in LOOKS)
    assert state(replace(GOOD, polls=idle), "slots") == "WRONG"
    assert state(replace(GOOD, polls=idle[:2]), "slots") == "unknown"
    # All four run from 0.5 to 1.82 at most, so that these looks are too late.
    late = tuple(Poll(1.9 + i / 100, 1.91 + i / 100, 3) for i in range(9))
    assert state(replace(GOOD, polls=late), "slots") == "unknown"
    assert state(replace(GOOD, polls=()), "slots") == "unknown"


def test_a_different_count_of_slots_is_wrong() -> None:
    found = verdict(replace(GOOD, seen=replace(SEEN, listed=3)), "count")
    assert found == Verdict("count", "WRONG", "/props tells 4 slots, /slots lists 3")
    found = verdict(replace(GOOD, seen=replace(SEEN, listed=None)), "count")
    assert found.state == "unknown"


def test_the_numbers_of_five_places_stand_side_by_side() -> None:
    assert dict(numbers(GOOD)) == {
        "/props": (2048,),
        "/slots": (2048,),
        "/v1/models": (2048,),
        "refusal": (2048,),
        "measured": (2048,),
    }


def test_one_number_that_differs_is_wrong() -> None:
    odd = replace(SEEN, slots_ctx=(2048, 2048, 2048, 8192))
    found = verdict(replace(GOOD, seen=odd), "numbers")
    assert found.state == "WRONG"
    assert found.text == (
        "n_ctx differs: /props 2048, /slots 2048 and 8192, /v1/models 2048, "
        "refusal 2048, measured 2048"
    )


def test_one_place_alone_says_nothing() -> None:
    bare = Record("http://host", Seen(slots=4, props_ctx=2048), TOGETHER)
    assert state(bare, "numbers") == "unknown"


def test_a_window_is_measured_where_it_stopped_the_answer() -> None:
    # 2000 tokens of a prompt and 48 of an answer are llama-server's 2048.
    assert measured(Long(2000, 100, 200, 2000, 48, True, "limit")) == 2048
    assert measured(FILL) == 2048
    assert measured(replace(FILL, predicted=16)) is None
    assert measured(replace(FILL, stop_type="eos")) is None
    assert measured(replace(FILL, evaluated=2000)) is None
    assert measured(replace(FILL, error="gone")) is None


@pytest.mark.parametrize(
    ("fill", "found", "said"),
    [
        (FILL, "ok", "a request got all of its 2048 tokens"),
        (replace(FILL, predicted=4), "WRONG", "a request got 2044 tokens"),
        (replace(FILL, predicted=16), "unknown", "the context is shifted"),
        (replace(FILL, predicted=16, truncated=False), "WRONG", "2056 tokens fitted"),
        (replace(FILL, evaluated=1020), "WRONG", "only 1020 were read"),
        (replace(FILL, evaluated=None), "unknown", "no counts"),
        (replace(FILL, predicted=3, stop_type="eos"), "unknown", "ended early (eos)"),
        (Long(2040, 16, 500, error="HTTP 500"), "WRONG", "failed, n_ctx is 2048"),
    ],
)
def test_what_a_filled_window_says(fill: Long, found: str, said: str) -> None:
    one = verdict(replace(GOOD, fills=(fill,)), "window")
    assert one.state == found
    assert said in one.text


def test_the_worst_of_several_windows_counts() -> None:
    cut = replace(FILL, evaluated=1020)
    early = replace(FILL, predicted=3, stop_type="eos")
    assert state(replace(GOOD, fills=(FILL, early, cut)), "window") == "WRONG"
    assert state(replace(GOOD, fills=(FILL, early)), "window") == "unknown"
    found = verdict(replace(GOOD, fills=(FILL, FILL)), "window")
    assert found.text == "2 requests got 2048 tokens each, one after another"


@pytest.mark.parametrize(
    ("over", "found", "said"),
    [
        (OVER, "ok", "HTTP 400, n_prompt_tokens 2049, n_ctx 2048"),
        (replace(OVER, n_ctx=8192), "WRONG", "n_ctx 8192"),
        (replace(OVER, n_prompt=7), "WRONG", "n_prompt_tokens 7"),
        (replace(OVER, status=422), "WRONG", "HTTP 422"),
        (replace(OVER, kind="invalid_request_error"), "WRONG", "HTTP 400"),
        (replace(OVER, n_ctx=None, n_prompt=None), "unknown", "is refused"),
        (replace(OVER, status=500), "WRONG", "is a failure"),
        (replace(OVER, status=200), "WRONG", "inside a stream of status 200"),
        (replace(OVER, status=0, error="reset"), "WRONG", "ended the connection"),
        (Long(2049, 1, 200, 2049, 1), "WRONG", "was answered, n_ctx is 2048"),
        (Long(2049, 1, 200, 1025, 1), "WRONG", "was cut to 1025 without a word"),
    ],
)
def test_what_becomes_of_one_token_too_many(over: Long, found: str, said: str) -> None:
    one = verdict(replace(GOOD, over=over), "refusal")
    assert one.state == found
    assert said in one.text


def test_long_requests_that_were_not_sent_say_why() -> None:
    record = replace(GOOD, fills=(), over=None, skipped="no route tells n_ctx")
    for name in ("window", "refusal"):
        assert verdict(record, name) == Verdict(name, "unknown", "no route tells n_ctx")


def test_memory_must_stay_within_its_plan_and_tokens_in_the_pool() -> None:
    grown = (Memory(1 << 20, 4 << 20, 0), Memory(3 << 20, 4 << 20, 900))
    pooled = replace(GOOD, seen=replace(SEEN, pool=8192), memory=grown)
    found = verdict(pooled, "memory")
    assert found == Verdict(
        "memory", "ok", "KV memory 1.0 MiB to 3.0 MiB, planned 4.0 MiB"
    )
    over = replace(pooled, memory=(*grown, Memory(5 << 20, 4 << 20, 1)))
    assert state(over, "memory") == "WRONG"
    over = replace(pooled, memory=(*grown, Memory(1, 4 << 20, 8193)))
    assert state(over, "memory") == "WRONG"
