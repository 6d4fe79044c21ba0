"""How answers end: by themselves, cancelled, or by a fault that is not their own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.runner import Part, Row
from mlxceld.engine.scheduler import Limits
from tests.engine.driving import Bench, Clock, Slow, split, words
from tests.fake import Script, Step, Words

# ---- steps on their way ----


@pytest.mark.parametrize(("pipelined", "steps"), [(True, 5), (False, 4)])
def test_an_answer_that_ends_while_a_step_is_on_its_way_ends_once(
    pipelined: bool, steps: int
) -> None:
    bench = Bench(split(1, 64), script=Script(answers={"w0": ["a", "b", "c"]}))
    bench.scripted.pipelined = pipelined
    request = bench.ask(words(4))
    bench.run()
    done = bench.done(request)
    assert (bench.text(request), done.stop_type) == ("abc", "eos")
    assert (done.n_decoded, done.n_held) == (4, 7)
    assert len(bench.scripted.steps) == steps
    assert bench.scheduler.slots[0].n_held == 7
    assert bench.scheduler.tally.totals().predicted_tokens == 4


def test_a_limit_is_known_before_the_step_and_wastes_none() -> None:
    bench = Bench(split(1, 64))
    bench.answer(words(4), n_predict=3)
    assert len(bench.scripted.steps) == 3


def test_a_new_request_never_gets_a_token_of_the_one_before() -> None:
    script = Script(answers={"a": ["one"] * 9, "b": ["two"] * 3})
    bench = Bench(split(1, 64), script=script)
    first = bench.ask("a", n_predict=9)
    bench.turn(4)
    bench.scheduler.cancel(first)
    second = bench.ask("b")
    bench.run()
    assert bench.text(second) == "twotwotwo"


# ---- text ----


@pytest.mark.parametrize("pipelined", [True, False])
def test_a_stop_string_across_token_borders_ends_the_text_before_it(
    pipelined: bool,
) -> None:
    pieces = ["The ", "quick br", "own f", "ox ju", "mps"]
    bench = Bench(split(1, 64), script=Script(answers={"tell": pieces}))
    bench.scripted.pipelined = pipelined
    request = bench.ask("tell me", stop=["own fox"])
    bench.run()
    done = bench.done(request)
    assert bench.text(request) == "The quick br"
    assert (done.stop_type, done.stopping_word) == ("word", "own fox")


@pytest.mark.parametrize("stop", [[], [""]])
def test_an_empty_stop_string_stops_nothing(stop: list[str]) -> None:
    pieces = ["The ", "quick br", "own f", "ox ju", "mps"]
    bench = Bench(split(1, 64), script=Script(answers={"tell": pieces}))
    request = bench.ask("tell me", stop=stop)
    bench.run()
    assert bench.text(request) == "The quick brown fox jumps"
    assert bench.done(request).stop_type == "eos"


def test_characters_cut_at_every_byte_come_out_whole_in_both_rows() -> None:
    texts = {"one": "Příliš žluťoučký kůň", "two": "안녕 👋🏽 하세요"}
    answers = {
        first: [chr(byte) for byte in text.encode()] for first, text in texts.items()
    }
    bench = Bench(split(2, 256), script=Script(answers=answers))
    asked = {first: bench.ask(first) for first in texts}
    bench.run()
    for first, request in asked.items():
        assert bench.text(request) == texts[first]
        said = [e for e in bench.of(request) if isinstance(e, m.Delta | m.Done)]
        assert not any("\ufffd" in event.text for event in said)


# ---- cancelling ----


def test_a_request_cancelled_in_the_queue_never_starts() -> None:
    bench = Bench(split(1, 64))
    first = bench.ask(words(5, "a"), n_predict=5)
    queued = bench.ask(words(5, "b"), n_predict=5)
    last = bench.ask(words(5, "c"), n_predict=5)
    bench.turn(2)
    bench.scheduler.cancel(queued)
    assert bench.scheduler.snapshot().waiting == 1
    bench.run()
    assert bench.of(queued) == []
    assert bench.done(first).n_decoded == bench.done(last).n_decoded == 5
    assert bench.scheduler.tally.totals().cancelled == 1


def test_a_prompt_cancelled_while_it_is_read_is_read_no_further() -> None:
    bench = Bench(split(1, 256), limits=Limits(prefill_chunk=8))
    request = bench.ask(words(100), n_predict=5)
    bench.turn(3)
    told = len(bench.of(request))
    bench.scheduler.cancel(request)
    assert bench.scheduler.snapshot().n_live == 0
    assert not bench.scheduler.busy
    bench.turn(3)
    assert len(bench.scripted.chunks) == 3
    assert len(bench.of(request)) == told
    # What was read is not lost to the next one.
    assert bench.answer(words(100), n_predict=1).n_cached == 24


def test_an_answer_cancelled_half_way_is_told_no_further() -> None:
    bench = Bench(split(1, 256))
    request = bench.ask(words(5), n_predict=100)
    bench.turn(8)
    told, steps = len(bench.of(request)), len(bench.scripted.steps)
    bench.scheduler.cancel(request)
    bench.run()
    assert len(bench.of(request)) == told
    assert len(bench.scripted.steps) == steps
    assert not bench.scheduler.snapshot().slots[0].processing
    assert bench.answer(words(5), n_predict=2).n_cached == 4


def test_cancelling_what_is_unknown_or_over_changes_nothing() -> None:
    bench = Bench(split(1, 64))
    done = bench.answer(words(5), n_predict=2)
    bench.scheduler.cancel(done.id)
    bench.scheduler.cancel(999)
    assert bench.scheduler.tally.totals().cancelled == 0
    assert bench.answer(words(5), n_predict=2).n_cached == 4


# ---- faults ----


@pytest.mark.parametrize("pipelined", [True, False])
def test_a_fault_in_a_prompt_ends_that_request_alone(pipelined: bool) -> None:
    bench = Bench(split(3, 64), script=Script(fail_prefill="bad"))
    bench.scripted.pipelined = pipelined
    first = bench.ask(words(5), n_predict=20)
    bench.turn(4)
    bad = bench.ask("bad prompt", n_predict=5)
    later = bench.ask(words(5, "v"), n_predict=20)
    bench.run()
    failed = bench.failed(bad)
    assert (failed.code, failed.type) == (500, "server_error")
    assert failed.message == "scripted fault in prefill"
    assert bench.done(first).n_decoded == bench.done(later).n_decoded == 20
    assert bench.scheduler.tally.totals().failed == 1


def test_what_a_failed_slot_holds_is_not_trusted() -> None:
    bench = Bench(split(1, 64), script=Script(fail_step="bad"))
    bench.ask(f"bad {words(9)}", n_predict=9)
    bench.run()
    assert bench.scheduler.slots[0].n_held == 0
    again = bench.ask(f"bad {words(9)}", n_predict=1)
    bench.run()
    assert bench.done(again).n_cached == 0


@pytest.mark.parametrize("pipelined", [True, False])
def test_a_fault_in_a_step_ends_the_requests_of_that_step_and_no_others(
    pipelined: bool,
) -> None:
    bench = Bench(split(2, 64), script=Script(fail_step="bad"))
    bench.scripted.pipelined = pipelined
    bad = bench.ask("bad prompt", n_predict=9)
    beside = bench.ask(words(5), n_predict=30)
    waiting = bench.ask(words(5, "v"), n_predict=4)
    bench.run()
    assert bench.failed(bad).message == "scripted fault in a step"
    assert len(bench.tokens(bad)) == 3
    assert bench.failed(beside).code == 500
    assert bench.done(waiting).n_decoded == 4
    assert not bench.scheduler.busy


class Refusing(Slow):
    """Raises when the step is queued, not when it is read."""

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Step:
        if len(self.steps) == 3:
            self.steps.append([])
            raise RuntimeError("the device said no")
        return super().step(rows, part)


def test_a_step_that_cannot_be_queued_ends_its_requests_and_the_next_one_works() -> (
    None
):
    known = Words(Script())
    runner = Refusing(Script(), known, Clock())
    bench = Bench(split(1, 64), runner=runner, vocabulary=known)
    request = bench.ask([5, 6], n_predict=9)
    bench.run()
    assert bench.failed(request).message == "the device said no"
    # The tokens that were still on their way are nobody's.
    assert len(bench.tokens(request)) == 2
    assert bench.answer([5, 6], n_predict=9).n_decoded == 9


class Brittle(Words):
    """A vocabulary that cannot tell the text of one token."""

    broken = -1

    def piece(self, token: int, special: bool = False) -> bytes:
        if token == self.broken and not special:
            raise ValueError("no such text")
        return super().piece(token, special)


def test_a_fault_in_the_text_of_one_row_ends_that_row_only() -> None:
    script = Script(answers={"bad": ["a", "b", "c"]})
    known = Brittle(script)
    known.broken = known.script_ids["bad"][1]
    bench = Bench(split(2, 64), runner=Slow(script, known, Clock()), vocabulary=known)
    bad = bench.ask(known.encode(["bad"], add_special=False))
    good = bench.ask(known.encode([words(4)], add_special=False), n_predict=9)
    bench.run()
    assert bench.failed(bad).message == "no such text"
    assert bench.text(bad) == "a"
    assert bench.done(good).n_decoded == 9


# ---- what the status routes see ----


def test_a_slot_is_busy_from_admission_on_and_its_counters_only_grow() -> None:
    bench = Bench(split(1, 256), limits=Limits(prefill_chunk=10))
    first = bench.ask(words(50), n_predict=20)
    queued = bench.ask(words(5, "v"), n_predict=1)
    seen: list[m.SlotState] = []

    def look() -> None:
        snapshot = bench.scheduler.snapshot()
        if not bench.ended(first):
            assert snapshot.waiting == 1
            seen.extend(snapshot.slots)

    bench.run(look)
    assert all(state.processing and state.task == first for state in seen)
    for name in ("n_processed", "n_decoded", "n_held"):
        counts = [getattr(state, name) for state in seen]
        assert counts == sorted(counts)
    assert {state.n_processed for state in seen} >= {10, 20, 30, 40, 49, 50}
    assert seen[-1].n_decoded == 19
    assert bench.scheduler.snapshot().slots == [m.SlotState(0, task=queued, n_held=5)]


def test_the_counters_add_up() -> None:
    bench = Bench(split(2, 64))
    bench.answer(words(10), n_predict=4)
    bench.answer(words(10), n_predict=6)
    bench.failed(bench.ask([]))
    totals = bench.scheduler.snapshot().totals
    assert (totals.requests, totals.failed, totals.cancelled) == (3, 1, 0)
    assert (totals.prompt_tokens, totals.cached_tokens) == (11, 9)
    assert (totals.predicted_tokens, totals.decode_steps) == (10, 10)
    assert totals.max_tokens == 15


def test_times_come_from_the_clock() -> None:
    bench = Bench(split(1, 256))
    bench.scripted.seconds_per_token = 0.5
    bench.ask(words(9, "a"), n_predict=1)
    second = bench.ask(words(5, "b"), n_predict=1)
    bench.run()
    assert bench.done(second).timings == m.Timings(4000.0, 2000.0, 0.0)
    assert bench.scheduler.snapshot().totals.prompt_ms == 6000.0
