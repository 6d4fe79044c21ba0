"""Harmony: the form of answers in which every message names its channel.

`<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>`:
one answer is a row of messages. `analysis` is reasoning, a message to `functions.NAME`
is a call, everything else is content.
"""

from __future__ import annotations

import re

from mlxceld.chat.objects import ArgumentsReader
from mlxceld.chat.pieces import (
    CallArguments,
    CallBegins,
    Content,
    Numbering,
    Piece,
    Reasoning,
    drop_empty,
    undecided,
)
from mlxceld.chat.reasoning import Markers

SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")
"""Special tokens that are part of the answer's text here."""

MARKERS = Markers("<|channel|>analysis<|message|>", "<|end|>")
"""Around reasoning; a prompt never opens it."""

FINAL = "<|channel|>final<|message|>"
"""What stands between the prompt and the answer to the user."""

_ENDS = ("<|end|>", "<|start|>", "<|channel|>", "<|call|>", "<|return|>")
_MESSAGE = "<|message|>"
_TO = re.compile(r"to=(?:functions\.)?([\w.-]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


def speaks_harmony(template: str) -> bool:
    """Whether a template's model answers in this form."""
    return all(word in template for word in ("<|channel|>", "<|message|>", "<|start|>"))


class HarmonyParser:
    """Reads the messages of an answer; `reasons` and `calls` say what to tell apart."""

    def __init__(self, *, reasons: bool, calls: bool, parallel: bool = True) -> None:
        self._reasons = reasons
        self._calls = calls
        self._parallel = parallel
        self._numbering = Numbering()
        self._held = ""
        self._state = "start"
        self._arguments: ArgumentsReader | None = None

    def feed(self, text: str) -> list[Piece]:
        self._held += text
        found: list[Piece] = []
        while self._step(found):
            pass
        return self._allowed(found)

    def finish(self) -> list[Piece]:
        """A beginning that turned out to be none is content."""
        held, self._held = self._held, ""
        return self._allowed([] if self._state == "header" else self._words(held))

    def _step(self, found: list[Piece]) -> bool:
        if self._state == "start":
            return self._start()
        if self._state == "header":
            at = self._held.find(_MESSAGE)
            if at < 0:
                return False
            self._begin(self._held[:at], found)
            self._held = self._held[at + len(_MESSAGE) :]
            return True
        places = [at for end in _ENDS if (at := self._held.find(end)) >= 0]
        if places:
            at = min(places)
            found += self._words(self._held[:at])
            self._held = self._held[at:]
            self._state, self._arguments = "header", None
            return True
        keep = max(undecided(self._held, end) for end in _ENDS)
        sure = self._held[: len(self._held) - keep]
        found += self._words(sure)
        self._held = self._held[len(sure) :]
        return False

    def _start(self) -> bool:
        """An answer begins with a header, or with words when the prompt has one."""
        text = self._held.lstrip()
        signs = (*_ENDS, "to=")
        if any(text.startswith(sign) for sign in signs):
            self._state = "header"
        elif text and not any(sign.startswith(text) for sign in signs):
            self._state = "content"
        return self._state != "start"

    def _begin(self, header: str, found: list[Piece]) -> None:
        channel = _CHANNEL.search(header)
        to = _TO.search(header)
        if to and self._calls:
            self._state = "call"
            found.append(self._numbering.begin(to[1]))
            self._arguments = ArgumentsReader(self._numbering)
        elif channel and channel[1] == "analysis" and self._reasons:
            self._state = "reasoning"
        else:
            self._state = "content"

    def _words(self, text: str) -> list[Piece]:
        if self._arguments is not None:
            return self._arguments.feed(text)
        if self._state == "reasoning":
            return [Reasoning(text)]
        return [Content(text)]

    def _allowed(self, found: list[Piece]) -> list[Piece]:
        if not self._parallel:
            found = [
                piece
                for piece in found
                if not (isinstance(piece, CallBegins | CallArguments) and piece.index)
            ]
        return drop_empty(found)
