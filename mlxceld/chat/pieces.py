"""What an answer is made of: content, reasoning, and calls of tools.

The parsers of this package turn the model's text into a stream of these pieces; the
dialects of the API write them down in their own shapes.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Content:
    """More of what the model says to the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what the model says to itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    """A call of a tool; its arguments follow in pieces with the same index."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments, which together are the text of a JSON object."""

    index: int
    text: str


Piece: TypeAlias = Content | Reasoning | CallBegins | CallArguments


class Parser(Protocol):
    """Turns an answer, as it comes in, into pieces."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain after more text."""

    def finish(self) -> list[Piece]:
        """The rest, at the end of the answer."""


class Numbering:
    """Numbers the calls of one answer and gives them ids."""

    def __init__(self, id_length: int = 32) -> None:
        self._length = id_length
        self.count = 0

    def begin(self, name: str, own_id: str = "") -> CallBegins:
        """The next call; with the id that the model gave it, if it did."""
        made = "".join(secrets.choice(_ALPHABET) for _ in range(self._length))
        self.count += 1
        return CallBegins(self.count - 1, own_id or made, name)

    def arguments(self, text: str) -> CallArguments:
        """Arguments of the call that began last."""
        return CallArguments(self.count - 1, text)


@dataclass(slots=True)
class Call:
    """A whole call of a tool; `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Whole:
    """A whole answer, put together from its pieces."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            match piece:
                case Content():
                    self.content += piece.text
                case Reasoning():
                    self.reasoning += piece.text
                case CallBegins():
                    self.calls.append(Call(piece.id, piece.name))
                case CallArguments():
                    self.calls[piece.index].arguments += piece.text


def whole(parser: Parser, text: str) -> Whole:
    """The answer in a text that is complete; the parser is used up."""
    found = Whole()
    found.add(parser.feed(text))
    found.add(parser.finish())
    return found


def undecided(text: str, marker: str) -> int:
    """Length of the longest end of `text` with which `marker` begins."""
    for n in range(min(len(marker) - 1, len(text)), 0, -1):
        if marker.startswith(text[-n:]):
            return n
    return 0


def drop_empty(pieces: Iterable[Piece]) -> list[Piece]:
    """Without texts of no length."""
    return [piece for piece in pieces if isinstance(piece, CallBegins) or piece.text]
