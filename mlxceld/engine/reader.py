"""The engine's second thread: reads the socket, turns text into tokens.

It touches no array. Questions about text are answered here at once, so that they never
wait for a step. A very long text is tokenised, and a grammar compiled, by a thread
beside it: nobody else's start or cancel waits for them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import msgspec

from mlxceld.engine import messages as m
from mlxceld.engine.admission import too_long
from mlxceld.engine.budget import Budget
from mlxceld.engine.faults import fault
from mlxceld.engine.grammar import GrammarError, Grammars
from mlxceld.engine.link import Link
from mlxceld.engine.slot import Matcher
from mlxceld.engine.text import Text

LONG_TEXT = 50_000
"""Characters; a shorter text takes no longer than a decode step or two."""

VAST_TEXT = 500_000
"""Characters; whether a longer text can fit at all is seen before it is read whole."""

MOST_TEXT = 4_000_000
"""Characters that are tokenised for a client to see, which takes half a gigabyte."""


@dataclass(frozen=True, slots=True)
class Order:
    """A message for the thread that owns MLX."""

    message: m.Generate | m.Cancel | m.SlotAction | m.Load
    tokens: list[int]
    """What a `Generate`'s prompt became."""
    matcher: Matcher | None = None
    """What its answer has to match."""
    budget: Budget | None = None
    """What bounds its reasoning."""


class Reader:
    """Sorts what the front sends; `run` is the thread's whole life."""

    def __init__(
        self,
        link: Link,
        text: Text,
        n_vocab: int,
        grammars: Grammars,
        inbox: queue.SimpleQueue[Order],
        n_ctx: int = 0,
    ) -> None:
        """`n_vocab` are the tokens that the model has an embedding for.

        `n_ctx` are the most tokens of a request; 0 is no bound.
        """
        self._n_ctx = n_ctx
        self._link = link
        self._grammars = grammars
        self._text = text
        # A tokenizer may know tokens that the model does not, and the other way round.
        self._n_vocab = min(text.n_vocab, n_vocab)
        self._inbox = inbox
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="text")
        self._lock = threading.Lock()
        self._reading: set[int] = set()
        """Requests whose prompt is being tokenised and that nobody has cancelled."""

    def run(self) -> None:
        """Read until the front goes, which ends the process."""
        while True:
            try:
                batch = self._link.receive()
            except msgspec.DecodeError as error:
                die(f"malformed message: {error}")
            if batch is None:
                os._exit(0)
            for message in batch:
                self.sort(message)

    def sort(self, message: m.Down) -> None:
        """Answer a message, or queue it for the thread that owns MLX."""
        match message:
            case m.Generate():
                with self._lock:
                    self._reading.add(message.id)
                if message.grammar is not None:
                    # Compiling a large one takes a moment.
                    self._beside.submit(self._guard, self._prompt, message)
                else:
                    self._with_text(self._prompt, message, message.prompt)
            case m.Cancel(id=request_id):
                with self._lock:
                    if request_id in self._reading:
                        self._reading.remove(request_id)
                    else:
                        self._inbox.put(Order(message, []))
            case m.SlotAction() | m.Load():
                self._inbox.put(Order(message, []))
            case m.Tokenize():
                self._with_text(self._tokenize, message, message.content)
            case m.Detokenize():
                self._guard(self._detokenize, message)
            case m.Shutdown():
                os._exit(0)

    def _with_text(
        self, work: Callable[[Any], None], message: Any, content: Sequence[str | int]
    ) -> None:
        """Do what needs a text's tokens: here, or beside when the text is long."""
        if _length(content) > LONG_TEXT:
            self._beside.submit(self._guard, work, message)
        else:
            self._guard(work, message)

    def _guard(self, work: Callable[[Any], None], message: Any) -> None:
        """Do it; a fault of ours is logged and told to whoever asked."""
        try:
            work(message)
        except Exception as error:
            with self._lock:
                self._reading.discard(message.id)
            said = f"{type(error).__name__}: {error}"
            failed = m.Failed(message.id, 500, "server_error", said)
            self._link.send([fault("reading a message", error), failed])

    def _prompt(self, message: m.Generate) -> None:
        tokens: list[int] = []
        matcher = None
        refusal = self._vast(message)
        if refusal is None:
            tokens = self._text.encode(message.prompt, add_special=message.add_special)
            if not _valid(tokens, self._n_vocab):
                refusal = _invalid(message.id, "Prompt contains invalid tokens")
        if refusal is None and message.grammar is not None:
            try:
                matcher = self._grammars.compile(message.grammar)
            except GrammarError as error:
                refusal = _invalid(message.id, str(error))
        budget = self._budget(message)
        with self._lock:
            if message.id not in self._reading:
                return
            self._reading.remove(message.id)
            if refusal is None:
                self._inbox.put(Order(message, tokens, matcher, budget))
        if refusal is not None:
            self._link.send([refusal])

    def _vast(self, message: m.Generate) -> m.Failed | None:
        """The refusal of a very long text that can fit in no slot."""
        if not self._n_ctx or _length(message.prompt) <= VAST_TEXT:
            return None
        least = self._text.exceeds(message.prompt, self._n_ctx)
        if not least:
            return None
        return too_long(message.id, least, self._n_ctx, "more than ")

    def _budget(self, message: m.Generate) -> Budget | None:
        wanted = message.budget
        if wanted is None:
            return None
        ending = self._text.encode([wanted.message + wanted.end], add_special=False)
        if not _valid(ending, self._n_vocab):
            return None
        return Budget(wanted, ending, partial(self._text.piece, special=True))

    def _tokenize(self, message: m.Tokenize) -> None:
        if _length(message.content) > MOST_TEXT:
            words = f"the text is longer than {MOST_TEXT} characters"
            self._link.send([_invalid(message.id, words)])
            return
        tokens = self._text.encode(
            message.content,
            add_special=message.add_special,
            parse_special=message.parse_special,
        )
        pieces = [self._text.piece(token, special=True) for token in tokens]
        self._link.send([m.Tokenized(message.id, tokens, pieces)])

    def _detokenize(self, message: m.Detokenize) -> None:
        if not _valid(message.tokens, self._text.n_vocab):
            invalid = _invalid(message.id, "Prompt contains invalid tokens")
            self._link.send([invalid])
            return
        text = self._text.decode(message.tokens)
        self._link.send([m.Detokenized(message.id, text)])


def die(why: str) -> NoReturn:
    """End the process, which the front notices, even when nothing can be said."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"engine: {why}\n")
        sys.stderr.flush()
    os._exit(1)


def _length(content: Sequence[str | int]) -> int:
    """Characters of all texts."""
    return sum(len(part) for part in content if isinstance(part, str))


def _valid(tokens: Sequence[int], n_vocab: int) -> bool:
    return all(0 <= token < n_vocab for token in tokens)


def _invalid(request_id: int, words: str) -> m.Failed:
    return m.Failed(request_id, 400, "invalid_request_error", words)
