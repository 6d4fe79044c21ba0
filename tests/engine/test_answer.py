"""From tokens to text: what is sent when, and why an answer ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlxceld.engine.answer import Answers
from mlxceld.engine.messages import (
    Delta,
    Done,
    Generate,
    Progress,
    Sampling,
    SlotState,
    Timings,
    TokenProbability,
)
from mlxceld.engine.runner import Probability
from mlxceld.engine.slot import Request, Slot
from mlxceld.engine.totals import Tally
from tests.fake import EOS, Script, Words


class Table:
    """One slot, one request, and what was said about it."""

    def __init__(
        self, n_prompt: int = 3, n_ctx: int = 64, *, sampling: Sampling, **fields: Any
    ) -> None:
        self.words = Words(Script())
        self.said: list[Any] = []
        self.tally = Tally()
        self.progress: list[Progress] = []
        self.answers = Answers(self.words, self._hear, self.tally)
        message = Generate(id=5, prompt=[], sampling=sampling, **fields)
        self.request = Request.create(
            message, [1] * n_prompt, n_ctx, self.words, arrived=0.0, serial=1
        )
        self.request.started = 1.0
        self.request.n_cached = 1
        self.slot = Slot(2, n_prompt, request=self.request, last=self.request)

    def _hear(self, event: Any) -> None:
        (self.progress if isinstance(event, Progress) else self.said).append(event)

    def feed(self, *pieces: bytes, now: float = 2.0) -> bool:
        """Take each piece as one token; whether the last one ended the answer."""
        ended = False
        for piece in pieces:
            token = self.words.add(piece)
            ended = self.answers.take(self.slot, self.request, token, now)
        return ended

    def end(self, now: float = 2.0) -> bool:
        return self.answers.take(self.slot, self.request, EOS, now)

    def texts(self) -> list[str]:
        return [event.text for event in self.said]


def table(n_prompt: int = 3, n_ctx: int = 64, **fields: Any) -> Table:
    fields.setdefault("sampling", Sampling())
    return Table(n_prompt, n_ctx, **fields)


def test_each_token_is_told_at_once_with_its_number() -> None:
    t = table()
    assert not t.feed(b"Hello", b" world")
    first, second = t.said
    assert isinstance(first, Delta)
    assert (first.id, first.text, first.n_decoded) == (5, "Hello", 1)
    assert (second.text, second.n_decoded) == (" world", 2)
    assert first.tokens + second.tokens == t.request.output


def test_the_end_token_ends_the_answer_and_has_no_text() -> None:
    t = table()
    t.feed(b"Hi", now=2.0)
    assert t.end(now=5.0)
    assert t.said[-1] == Done(
        id=5,
        slot=2,
        text="",
        tokens=[EOS],
        stop_type="eos",
        stopping_word="",
        truncated=False,
        n_prompt=3,
        n_cached=1,
        n_decoded=2,
        n_held=4,
        timings=Timings(queue_ms=1000.0, prompt_ms=1000.0, predicted_ms=3000.0),
    )


def test_an_ignored_end_token_is_a_token_like_any_other() -> None:
    t = table(sampling=Sampling(ignore_eos=True))
    assert not t.end()
    assert t.texts() == [""]
    assert not t.feed(b"on")
    assert t.texts() == ["", "on"]


def test_n_predict_ends_an_answer_that_is_not_truncated() -> None:
    t = table(n_predict=2)
    assert not t.feed(b"a")
    assert t.feed(b"b")
    assert (t.said[-1].stop_type, t.said[-1].truncated) == ("limit", False)
    assert t.texts() == ["a", "b"]


def test_the_window_ends_an_answer_that_is_truncated() -> None:
    t = table(n_prompt=62)
    assert not t.feed(b"a")
    assert t.feed(b"b")
    assert (t.said[-1].stop_type, t.said[-1].truncated) == ("limit", True)
    assert t.said[-1].n_held == 63


def test_an_end_token_on_the_last_place_is_an_end_and_no_limit() -> None:
    t = table(n_predict=1)
    assert t.end()
    assert t.said[-1].stop_type == "eos"


def test_a_stop_string_across_tokens_ends_the_text_before_it() -> None:
    t = table(stop=["own fox"])
    assert not t.feed(b"The ", b"quick br", b"own f")
    assert t.texts() == ["The ", "quick br", ""]
    assert t.feed(b"ox ju")
    end = t.said[-1]
    assert (end.text, end.stop_type, end.stopping_word) == ("", "word", "own fox")
    assert not end.truncated
    assert "".join(t.texts()) == "The quick br"


def test_a_stop_string_on_the_last_place_is_a_stop_and_no_limit() -> None:
    t = table(stop=["b"], n_predict=1)
    assert t.feed(b"ab")
    assert (t.said[-1].text, t.said[-1].stop_type) == ("a", "word")


def test_the_beginning_of_a_stop_string_is_sent_after_all_at_the_end() -> None:
    t = table(stop=["own fox"])
    t.feed(b"br", b"own f")
    assert t.end()
    assert (t.said[-1].text, t.said[-1].stop_type) == ("own f", "eos")
    t = table(stop=["own fox"], n_predict=2)
    assert t.feed(b"br", b"own f")
    assert (t.said[-1].text, t.said[-1].stop_type) == ("own f", "limit")


def test_a_character_is_sent_when_its_last_byte_is_there() -> None:
    t = table()
    t.feed(b"\xed", b"\x95", b"\x9c")
    assert t.texts() == ["", "", "한"]


def test_a_character_that_was_cut_off_by_the_limit_is_dropped() -> None:
    t = table(n_predict=2)
    assert t.feed(b"a", b"\xed\x95")
    assert t.texts() == ["a", ""]


# ---- the limits of time and indentation ----


def test_time_is_up_only_after_a_line_break() -> None:
    """100 ms from the first token on."""
    t = table(t_max_predict_ms=100)
    assert not t.feed(b"one", now=5.0)
    assert not t.feed(b" line", now=9.0)
    assert t.feed(b"\nnext", now=9.1)
    end = t.said[-1]
    assert (end.text, end.stop_type, end.truncated) == ("\nnext", "limit", False)


def test_time_counts_from_the_first_token() -> None:
    t = table(t_max_predict_ms=100)
    assert not t.feed(b"a\n", now=50.0)
    assert not t.feed(b"b", now=50.0625)
    assert t.feed(b"c", now=50.11)


def test_no_limit_of_time_is_none() -> None:
    for wanted in (0, -1):
        t = table(t_max_predict_ms=wanted)
        assert not t.feed(b"a\n", b"b", now=2.0)
        assert not t.feed(b"c", now=1e6)


def test_what_is_held_back_when_time_is_up_is_sent() -> None:
    t = table(t_max_predict_ms=100, stop=["own fox"])
    t.feed(b"br\n", now=2.0)
    assert t.feed(b"own f", now=3.0)
    assert (t.said[-1].text, t.said[-1].stop_type) == ("own f", "limit")


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        # Four columns are wanted, the first line may begin anywhere.
        (["if x:\n", "    y\n", "  z"], "if x:\n    y\n  "),
        (["if x:\n", "    y\n", "z"], "if x:\n    y\n"),
        (["a\n    b\n   c\n    d"], "a\n    b\n   "),
        # Indentation in pieces, and by tabs.
        (["a\n", "  ", "  ", "b\n", " ", " c"], "a\n    b\n  "),
        (["a\n\t\t\t\tb\n\tc"], "a\n\t\t\t\tb\n\t"),
        # An empty line is not indented.
        (["a\n\n", "    b"], "a\n"),
        (["a\n    b", "\n", "\n"], "a\n    b\n"),
    ],
)
def test_a_line_indented_too_little_ends_the_answer_before_it(
    pieces: list[str], text: str
) -> None:
    t = table(n_indent=4)
    for piece in pieces:
        if t.feed(piece.encode()):
            break
    assert "".join(t.texts()) == text
    end = t.said[-1]
    assert (end.stop_type, end.truncated) == ("limit", False)
    assert t.request.new_line


def test_lines_that_are_indented_enough_go_on() -> None:
    t = table(n_indent=2)
    assert not t.feed(b"a  b\n", b"  b c\n", b"    d", b"e f\n", b"   ")
    assert "".join(t.texts()) == "a  b\n  b c\n    de f\n   "


def test_the_text_of_the_last_token_is_cut_too() -> None:
    t = table(n_indent=4, n_predict=2)
    assert t.feed(b"a\n", b" b")
    assert (t.said[-1].text, t.said[-1].stop_type) == (" ", "limit")


# ---- what the answer has to match ----


class Grammar:
    """Accepts the tokens of a text, then nothing more."""

    def __init__(self, tokens: list[int]) -> None:
        self.left = tokens

    def mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        raise AssertionError("the answer does not sample")

    def accept(self, token: int) -> bool:
        return bool(self.left) and self.left.pop(0) == token

    @property
    def ended(self) -> bool:
        return not self.left


def test_the_end_of_the_grammar_is_the_end_of_the_answer() -> None:
    t = table(stop=["}, {"], n_predict=2)
    a, b = t.words.add(b"{"), t.words.add(b"}")
    t.request.matcher = Grammar([a, b])
    assert not t.answers.take(t.slot, t.request, a, 2.0)
    assert t.answers.take(t.slot, t.request, b, 2.0)
    end = t.said[-1]
    # Not the limit, though this was the last place; the held back text is sent.
    assert (end.text, end.stop_type, end.truncated) == ("}", "eos", False)


def test_a_token_that_the_grammar_forbids_is_an_error() -> None:
    t = table()
    t.request.matcher = Grammar([7])
    with pytest.raises(RuntimeError, match="grammar forbids"):
        t.answers.take(t.slot, t.request, 8, 2.0)
    assert t.request.output == []


# ---- probabilities ----


def test_probabilities_carry_the_bytes_of_their_tokens() -> None:
    t = table(sampling=Sampling(n_probs=2), n_predict=2)
    half, end = t.words.add(b"\xed\x95"), t.words.add(b"x")
    told = Probability(-0.5, [(half, -0.5), (EOS, -1.0)])
    t.answers.take(t.slot, t.request, half, 2.0, told)
    t.answers.take(t.slot, t.request, end, 2.0, Probability(-2.0, []))
    assert t.said[0].probabilities == [
        TokenProbability(
            half, b"\xed\x95", -0.5, [(half, b"\xed\x95", -0.5), (EOS, b"", -1.0)]
        )
    ]
    assert t.said[1].probabilities == [TokenProbability(end, b"x", -2.0, [])]


def test_the_first_token_counts_the_last_of_the_prompt_as_read() -> None:
    t = table()
    t.feed(b"a", b"b")
    assert (t.tally.prompt_tokens, t.tally.predicted_tokens) == (1, 2)


def test_generation_time_is_counted_with_every_token() -> None:
    t = table()
    t.feed(b"a", now=2.0)
    assert t.tally.predicted_seconds == 0.0
    t.feed(b"b", now=3.0)
    assert t.tally.predicted_seconds == 1.0
    t.end(now=4.5)
    assert t.tally.predicted_seconds == 2.5


def test_a_slot_that_was_never_used_shows_nothing() -> None:
    t = table()
    assert t.answers.slot_state(Slot(3)) == SlotState(3)


def test_an_idle_slot_shows_whom_it_served_and_what_it_remembers() -> None:
    t = table()
    slot = Slot(1, 40, last=t.request)
    assert t.answers.slot_state(slot) == SlotState(1, task=5, n_held=40)


def test_a_slot_that_reads_shows_how_far_it_is() -> None:
    t = table(n_prompt=10, n_predict=20)
    t.slot.n_held = 4
    assert t.answers.slot_state(t.slot) == SlotState(
        2,
        task=5,
        processing=True,
        n_prompt=10,
        n_processed=3,
        n_cached=1,
        n_remain=20,
        n_held=4,
    )


def test_a_slot_that_writes_shows_how_much_it_has_written() -> None:
    t = table(n_predict=20)
    t.feed(b"one\n", b"two")
    t.slot.n_held = 5
    assert t.answers.slot_state(t.slot) == SlotState(
        2,
        task=5,
        processing=True,
        n_prompt=3,
        n_processed=2,
        n_cached=1,
        n_decoded=2,
        n_remain=18,
        n_held=5,
        has_next_token=True,
        has_new_line=True,
    )


def test_the_first_token_tells_that_the_whole_prompt_is_read() -> None:
    """Once: the last token of a prompt is read by the step that samples."""
    t = table(n_prompt=7)
    t.feed(b"a", b"b")
    assert t.progress == [Progress(5, 7, 7, 1)]
