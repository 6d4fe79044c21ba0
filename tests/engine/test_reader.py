"""What the thread does that reads the front's messages."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.grammar import Grammars
from mlxceld.engine.reader import LONG_TEXT, Order, Reader
from mlxceld.plan import Wish
from tests.fake import Script, loader

LOAD = m.Load(m.ModelSource("toy"), Wish("llama-compat", 1024, 2))


class _Said:
    """A link that only remembers what was sent."""

    def __init__(self) -> None:
        self.sent: list[m.Up] = []

    def send(self, messages: list[m.Up]) -> None:
        self.sent += messages


def test_a_token_without_an_embedding_never_reaches_the_model() -> None:
    engine = loader(Script())(LOAD, lambda loading: None)
    inbox: queue.SimpleQueue[Order] = queue.SimpleQueue()
    link: Any = _Said()
    reader = Reader(link, engine.vocabulary, 3, Grammars(engine.vocabulary, 3), inbox)
    for request, tokens in ((1, [2]), (2, [3])):
        reader.sort(m.Generate(request, list(tokens), m.Sampling()))
    assert inbox.get_nowait().tokens == [2]
    assert inbox.empty()
    (failed,) = link.sent
    assert isinstance(failed, m.Failed)
    assert (failed.id, failed.code) == (2, 400)


def test_a_long_text_holds_up_neither_short_ones_nor_cancels() -> None:
    """While the long text is tokenised, a short prompt and a cancel go through."""
    engine = loader(Script())(LOAD, lambda loading: None)
    words, inbox = engine.vocabulary, queue.SimpleQueue[Order]()
    go_on = threading.Event()
    encode = words.encode

    def slow(content: Any, **how: Any) -> list[int]:
        if len(content[0]) > LONG_TEXT:
            assert go_on.wait(10)
        return encode(content, **how)

    words.encode = slow  # type: ignore[method-assign]
    link: Any = _Said()
    reader = Reader(link, words, 1000, Grammars(words, 1000), inbox)
    for request, text in ((1, "a " * LONG_TEXT), (2, "b " * LONG_TEXT), (3, "c d")):
        reader.sort(m.Generate(request, [text], m.Sampling()))
    reader.sort(m.Cancel(1))
    short = inbox.get(timeout=5)
    assert isinstance(short.message, m.Generate)
    assert (short.message.id, len(short.tokens)) == (3, 2)
    assert inbox.empty()
    go_on.set()
    long = inbox.get(timeout=20)
    assert isinstance(long.message, m.Generate)
    assert (long.message.id, len(long.tokens)) == (2, LONG_TEXT)
    assert inbox.empty()
    assert link.sent == []


def test_a_vast_text_is_refused_before_it_is_read_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mlxceld.engine.reader.VAST_TEXT", 1000)
    engine = loader(Script())(LOAD, lambda loading: None)
    words, inbox = engine.vocabulary, queue.SimpleQueue[Order]()
    whole: list[Any] = []
    encode = words.encode

    def watched(content: Any, **how: Any) -> list[int]:
        whole.append(content)
        return encode(content, **how)

    words.encode = watched  # type: ignore[method-assign]
    link: Any = _Said()
    reader = Reader(link, words, 100_000, Grammars(words, 100_000), inbox, n_ctx=200)
    reader.sort(m.Generate(1, ["a " * 600], m.Sampling()))
    (failed,) = link.sent
    assert isinstance(failed, m.Failed)
    assert (failed.id, failed.code, failed.n_ctx) == (1, 400, 200)
    assert failed.type == "exceed_context_size_error"
    # Words of the toy are tokens; 16 are given for cuts through them.
    assert failed.n_prompt_tokens == 584
    assert failed.message.startswith("request (more than 584 tokens) exceeds")
    assert whole == []
    reader.sort(m.Generate(2, [" " * 2000, "a b"], m.Sampling()))
    assert len(inbox.get_nowait().tokens) == 2


def test_a_text_that_nobody_can_use_is_not_tokenised_to_be_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mlxceld.engine.reader.MOST_TEXT", 100)
    engine = loader(Script())(LOAD, lambda loading: None)
    words, inbox = engine.vocabulary, queue.SimpleQueue[Order]()
    link: Any = _Said()
    reader = Reader(link, words, 1000, Grammars(words, 1000), inbox)
    for request, text in ((1, "a " * 50), (2, "a " * 51)):
        reader.sort(m.Tokenize(request, [text]))
    tokenized, failed = link.sent
    assert isinstance(tokenized, m.Tokenized)
    assert len(tokenized.tokens) == 50
    assert isinstance(failed, m.Failed)
    assert failed.message == "the text is longer than 100 characters"


def test_a_prompt_that_cannot_be_tokenised_is_told_and_forgotten() -> None:
    """Nobody will cancel it: its number would be remembered for good."""
    engine = loader(Script())(LOAD, lambda loading: None)
    words, inbox = engine.vocabulary, queue.SimpleQueue[Order]()

    def broken(content: Any, **how: Any) -> list[int]:
        raise RuntimeError

    words.encode = broken  # type: ignore[method-assign]
    link: Any = _Said()
    reader = Reader(link, words, 1000, Grammars(words, 1000), inbox)
    reader.sort(m.Generate(7, ["a b"], m.Sampling()))
    [failed] = [said for said in link.sent if isinstance(said, m.Failed)]
    assert (failed.id, failed.code) == (7, 500)
    assert not reader._reading
    assert inbox.empty()
