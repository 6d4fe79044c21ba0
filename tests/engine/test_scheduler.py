"""Who gets a slot when, what is remembered, what is read between two steps."""

from __future__ import annotations

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.scheduler import Limits
from mlxceld.plan import Plan
from tests.engine.driving import Bench, CellRunner, shared, solo, split, words

FILL = 1
"""The token that a scripted model repeats when it has nothing to say."""


# ---- admission ----


def test_requests_start_in_the_order_of_their_arrival() -> None:
    bench = Bench(split(1, 64))
    asked = [bench.ask(words(5), n_predict=3) for _ in range(4)]
    bench.run()
    started = [event.id for event in bench.said if isinstance(event, m.Started)]
    assert started == asked
    assert [bench.done(request).n_decoded for request in asked] == [3] * 4


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back() -> None:
    bench = Bench(split(2, 64), limits=Limits(queue_size=3))
    accepted = [bench.ask(words(5), n_predict=2) for _ in range(5)]
    refused = bench.failed(bench.ask(words(5)))
    assert (refused.code, refused.type) == (503, "unavailable_error")
    assert refused.retry_after == 1
    assert refused.message == "too many requests are waiting already, try again later"
    bench.turn()
    assert len(bench.scheduler.waiting) == 3
    assert bench.failed(bench.ask(words(5))).code == 503
    bench.run()
    assert all(bench.done(request).n_decoded == 2 for request in accepted)
    assert bench.answer(words(5), n_predict=2).n_decoded == 2


def test_without_a_queue_free_slots_still_take_requests() -> None:
    bench = Bench(split(1, 64), limits=Limits(queue_size=0))
    first = bench.ask(words(5), n_predict=2)
    assert bench.failed(bench.ask(words(5))).code == 503
    bench.run()
    assert bench.done(first).n_decoded == 2


def test_who_waits_for_a_busy_slot_lets_others_pass() -> None:
    bench = Bench(split(2, 64))
    first = bench.ask(words(5), id_slot=0, n_predict=20)
    waits = bench.ask(words(5), id_slot=0, n_predict=2)
    passes = bench.ask(words(5, "v"), n_predict=2)
    bench.turn(6)
    assert bench.ended(passes)
    assert bench.started(waits) is None
    bench.run()
    slots = [bench.done(request).slot for request in (first, waits, passes)]
    assert slots == [0, 0, 1]


def test_a_slot_that_does_not_exist_is_refused() -> None:
    """llama-server wraps around; a wrong number is told here."""
    bench = Bench(split(2, 64))
    failed = bench.failed(bench.ask(words(5), id_slot=2))
    assert (failed.code, failed.type) == (400, "invalid_request_error")
    assert failed.message == "Field 'id_slot': 2 is not one of the slots 0 to 1"


def test_who_waits_for_room_is_not_overtaken_by_small_requests() -> None:
    bench = Bench(shared(4, 100))
    first = bench.ask(words(60), n_predict=5)
    large = bench.ask(words(60), n_predict=2)
    small = bench.ask(words(3), n_predict=2)
    bench.turn(4)
    assert bench.started(large) is bench.started(small) is None
    bench.run()
    started = [event.id for event in bench.said if isinstance(event, m.Started)]
    assert started == [first, large, small]


def test_an_empty_prompt_is_refused() -> None:
    bench = Bench(split(1, 64))
    failed = bench.failed(bench.ask([]))
    assert (failed.code, failed.type) == (400, "invalid_request_error")
    assert failed.message == "Field 'prompt': it is empty"


def test_nothing_to_do_is_not_busy() -> None:
    bench = Bench(split(1, 64))
    assert not bench.scheduler.busy
    bench.ask(words(5), n_predict=1)
    assert bench.scheduler.busy
    bench.run()
    bench.turn(3)
    assert not bench.scheduler.busy


# ---- windows ----


@pytest.mark.parametrize("n_predict", [-1, -2, 10**9])
def test_without_a_limit_the_window_is_filled(n_predict: int) -> None:
    """A prompt of 8 in a window of 256, and a model that never ends."""
    done = Bench(split(1, 256)).answer(words(8), n_predict=n_predict)
    assert (done.n_decoded, done.stop_type, done.truncated) == (248, "limit", True)


@pytest.mark.parametrize("n_predict", [0, 1])
def test_no_token_and_one_token_are_one_token(n_predict: int) -> None:
    """As llama-server does: the prompt is read, and that yields a token."""
    done = Bench(split(1, 256)).answer(words(8), n_predict=n_predict)
    assert (done.n_decoded, done.stop_type, done.truncated) == (1, "limit", False)


@pytest.mark.parametrize(
    ("n_prompt", "n_decoded", "n_held"),
    [(2000, 48, 2047), (2046, 2, 2047), (2047, 1, 2047)],
)
@pytest.mark.parametrize(
    "plan", [split(2, 2048), shared(2, 2048), shared(2, 4096, 2048)]
)
def test_a_window_is_used_to_its_last_token(
    plan: Plan, n_prompt: int, n_decoded: int, n_held: int
) -> None:
    done = Bench(plan).answer([FILL] * n_prompt)
    assert (done.n_decoded, done.truncated, done.n_held) == (n_decoded, True, n_held)


@pytest.mark.parametrize("n_prompt", [2048, 2049, 5000])
def test_a_prompt_that_fills_the_window_is_refused_with_both_numbers(
    n_prompt: int,
) -> None:
    bench = Bench(shared(2, 4096, 2048))
    running = bench.ask(words(5), n_predict=3)
    assert bench.failed(bench.ask([FILL] * n_prompt)) == m.Failed(
        2,
        400,
        "exceed_context_size_error",
        f"request ({n_prompt} tokens) exceeds the available context size "
        "(2048 tokens), try increasing it",
        n_prompt_tokens=n_prompt,
        n_ctx=2048,
    )
    bench.run()
    assert bench.done(running).n_decoded == 3


# ---- what slots remember ----


def test_the_same_prompt_again_reads_its_last_token_alone() -> None:
    bench = Bench(split(2, 64))
    first = bench.answer(words(10), n_predict=3)
    second = bench.answer(words(10), n_predict=3)
    assert (first.n_cached, second.n_cached) == (0, 9)
    assert second.slot == first.slot
    assert [chunk[2:] for chunk in bench.scripted.chunks] == [
        (0, bench.words.encode([words(9)], add_special=False))
    ]


def test_the_beginning_of_a_remembered_prompt_reads_its_last_token_alone() -> None:
    bench = Bench(split(1, 64))
    bench.answer(words(10), n_predict=3)
    assert bench.answer(words(6), n_predict=3).n_cached == 5
    assert bench.answer(words(1), n_predict=3).n_cached == 0


def test_the_next_turn_of_a_conversation_reads_only_what_is_new() -> None:
    """The last token of an answer was never read, so it is read now."""
    bench = Bench(split(1, 64))
    first = bench.words.encode([words(10)], add_special=False)
    bench.answer(first, n_predict=4)
    assert bench.answer([*first, *[FILL] * 4, 7, 8], n_predict=1).n_cached == 13


def test_who_does_not_want_the_cache_reads_everything() -> None:
    bench = Bench(split(1, 64))
    bench.answer(words(10), n_predict=3)
    assert bench.answer(words(10), n_predict=3, cache_prompt=False).n_cached == 0
    assert bench.answer(words(10), n_predict=3).n_cached == 9


@pytest.mark.parametrize("pipelined", [True, False])
def test_state_that_cannot_go_back_goes_on_from_the_end_of_a_prompt(
    pipelined: bool,
) -> None:
    """The end of a prompt is before its last token: 2 of [5, 6, 7]."""
    runner = CellRunner(64, pipelined=pipelined, trimmable=False)
    bench = Bench(split(1, 64), runner=runner)
    turns = [([5, 6, 7], 0), ([5, 6, 7], 2), ([5, 6, 7, 8, 9], 2), ([5, 6, 7], 0)]
    for prompt, n_cached in turns:
        done = bench.answer(prompt, n_predict=4)
        assert done.n_cached == n_cached
        assert bench.tokens(done.id) == solo(prompt, 4)


def test_a_new_prompt_takes_the_slot_that_was_used_longest_ago() -> None:
    bench = Bench(split(3, 64))
    slots = [bench.answer(words(5, name), n_predict=1).slot for name in "abc"]
    assert sorted(slots) == [0, 1, 2]
    again = bench.answer(words(5, "a"), n_predict=1).slot
    assert again == slots[0]
    assert bench.answer(words(5, "d"), n_predict=1).slot == slots[1]
    assert bench.answer(words(5, "e"), n_predict=1).slot == slots[2]
    assert bench.answer(words(5, "f"), n_predict=1).slot == slots[0]


@pytest.mark.parametrize(
    ("similarity", "n_common", "n_cached"),
    [(0.1, 2, 0), (0.1, 3, 3), (0.5, 10, 0), (0.5, 11, 11), (0.0, 15, 0)],
)
def test_a_remembered_beginning_counts_above_the_threshold(
    similarity: float, n_common: int, n_cached: int
) -> None:
    """Of a prompt of 20 tokens; threshold 0 turns the choice off."""
    limits = Limits(slot_prompt_similarity=similarity)
    bench = Bench(split(3, 64), limits=limits)
    bench.answer(words(20, "a"), n_predict=1)
    beginning = " ".join(words(20, "a").split()[:n_common])
    prompt = f"{beginning} {words(20 - n_common, 'b')}"
    assert bench.answer(prompt, n_predict=1).n_cached == n_cached


def test_of_two_slots_the_one_that_remembers_more_is_taken() -> None:
    bench = Bench(split(3, 64))
    short = bench.answer(words(6, "a"), n_predict=1).slot
    taken = bench.answer(f"{words(4, 'a')} {words(16, 'b')}", id_slot=2, n_predict=1)
    assert (short, taken.slot) == (0, 2)
    assert bench.answer(f"{words(4, 'a')} {words(9, 'b')}", n_predict=1).slot == 2
    assert bench.answer(f"{words(6, 'a')} c", n_predict=1).slot == 0


def test_the_similar_slot_is_no_choice_while_it_is_busy() -> None:
    bench = Bench(split(2, 64))
    first = bench.ask(words(10), n_predict=20)
    bench.turn(4)
    second = bench.answer(words(10), n_predict=2)
    assert second.n_cached == 0
    assert second.slot != bench.done(first).slot


# ---- prompts between steps ----


def test_running_streams_get_a_token_between_two_chunks() -> None:
    bench = Bench(split(2, 256), limits=Limits(prefill_chunk=4))
    stream = bench.ask(words(5), n_predict=100)
    bench.turn(6)
    long = bench.ask(words(41, "v"), n_predict=2)
    bench.run()
    said = [
        event.id
        for event in bench.said
        if (isinstance(event, m.Delta) and event.id == stream)
        or (isinstance(event, m.Progress) and event.id == long)
    ]
    at = [index for index, who in enumerate(said) if who == long]
    # One when it starts, one for each of ten chunks, one at its first token.
    assert len(at) == 12
    gaps = [later - earlier for earlier, later in zip(at[1:], at[2:-1], strict=False)]
    assert gaps == [2] * 9


def test_progress_tells_how_much_of_a_prompt_has_been_read() -> None:
    bench = Bench(split(1, 64), limits=Limits(prefill_chunk=4))
    bench.answer(words(4), n_predict=1)
    request = bench.ask(words(14), n_predict=1)
    bench.run()
    told = [e for e in bench.of(request) if isinstance(e, m.Progress)]
    assert [(e.processed, e.total, e.cached) for e in told] == [
        (4, 14, 4),
        (8, 14, 4),
        (12, 14, 4),
        (13, 14, 4),
        (14, 14, 4),
    ]


def test_the_oldest_prompt_is_read_to_its_end_first() -> None:
    bench = Bench(split(2, 64), limits=Limits(prefill_chunk=4))
    bench.ask(words(9, "a"), n_predict=1)
    bench.ask(words(9, "b"), n_predict=1)
    bench.run()
    assert [chunk[0] for chunk in bench.scripted.chunks] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("seconds_per_token", "chunk"),
    [(1 / 512, 128), (1 / 8, 64), (1 / 4096, 512)],
    ids=["a quarter of a second", "never less than 64", "never more than the setting"],
)
def test_a_chunk_is_as_long_as_running_streams_can_bear(
    seconds_per_token: float, chunk: int
) -> None:
    bench = Bench(split(2, 4096), limits=Limits(prefill_chunk=512))
    bench.scripted.seconds_per_token = seconds_per_token
    bench.ask(words(129, "a"), n_predict=400)
    bench.turn(3)
    bench.ask(words(1025, "b"), n_predict=1)
    bench.turn(2)
    assert [len(tokens) for *_, tokens in bench.scripted.chunks[1:3]] == [chunk] * 2


def test_with_no_stream_to_hold_up_a_chunk_has_its_full_length() -> None:
    bench = Bench(split(2, 4096), limits=Limits(prefill_chunk=512))
    bench.scripted.seconds_per_token = 1 / 128
    bench.answer(words(129, "a"), n_predict=1)
    bench.answer(words(1025, "b"), n_predict=1)
    assert [len(tokens) for *_, tokens in bench.scripted.chunks] == [128, 512, 512]


def test_a_chunk_takes_no_longer_than_whoever_watches_will_wait() -> None:
    """At eight tokens a second: 64 to learn that, then ten seconds' worth of them."""
    limits = Limits(prefill_chunk=512, chunk_seconds=10.0)
    bench = Bench(split(1, 4096), limits=limits)
    bench.scripted.seconds_per_token = 1 / 8
    bench.answer(words(225, "a"), n_predict=1)
    assert [len(tokens) for *_, tokens in bench.scripted.chunks] == [64, 80, 80]


def test_all_decoding_slots_share_one_step() -> None:
    bench = Bench(split(4, 64))
    for name in "abcd":
        bench.ask(words(2, name), n_predict=10)
    bench.run()
    totals = bench.scheduler.tally.totals()
    assert max(len(rows) for rows in bench.scripted.steps) == 4
    # One prompt is read each turn, so they start one step after the other.
    assert (totals.decoded_rows, totals.decode_steps) == (40, 13)
