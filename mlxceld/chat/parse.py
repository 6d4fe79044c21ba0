"""From the text of a chat answer to its pieces, as the text comes in.

What comes out does not depend on where the text was cut: whatever may still become a
marker is held back, and a call that cannot be understood is given back as content.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlxceld.chat.bodies import Body, JsonBody, Schemas
from mlxceld.chat.forms import Form
from mlxceld.chat.pieces import (
    CallArguments,
    CallBegins,
    Content,
    Numbering,
    Parser,
    Piece,
    drop_empty,
    undecided,
)


class Plain:
    """For answers in which there is nothing to find."""

    def feed(self, text: str) -> list[Piece]:
        return [Content(text)] if text else []

    def finish(self) -> list[Piece]:
        return []


@dataclass(frozen=True, slots=True)
class Calling:
    """What may be called in an answer, and how it is written."""

    form: Form
    schemas: Schemas
    """JSON schemas of the arguments, by the names of the tools."""
    parallel: bool = True
    """Whether there may be more than one call; further ones are dropped."""
    forced: bool = False
    """Whether the answer is made to be the JSON of a call, without any sign."""


class CallSplitter:
    """Tells calls of tools from content.

    Blanks before and between calls belong to neither.
    """

    def __init__(self, calling: Calling) -> None:
        self._calling = calling
        self._bare = "{" if calling.forced else calling.form.bare
        self._numbering = Numbering(calling.form.id_length)
        self._held = ""
        self._sign = ""
        """The text that began the call which is being read."""
        self._waits = False
        """A call began, but nothing of its body came so far."""
        self._body: Body | None = None
        self._fresh = True
        """Whether nothing but blanks came so far."""
        self._after = False
        """Whether nothing but blanks came since a call."""

    def feed(self, text: str) -> list[Piece]:
        self._held += text
        return self._allowed(self._read())

    def finish(self) -> list[Piece]:
        """The rest. A call that was cut short, but has a name, stays a call."""
        found = self._read()
        while self._body is not None:
            found += self._body.finish()
            self._leave(self._body, found)
            found += self._read()
        if self._waits:
            found.append(Content(self._sign))
        if self._waits or self._held.strip() or not self._after:
            found.append(Content(self._held))
        self._held = ""
        return self._allowed(found)

    def _allowed(self, found: list[Piece]) -> list[Piece]:
        if not self._calling.parallel:
            found = [
                piece
                for piece in found
                if not (isinstance(piece, CallBegins | CallArguments) and piece.index)
            ]
        return drop_empty(found)

    def _read(self) -> list[Piece]:
        found: list[Piece] = []
        while True:
            if self._body is None:
                if not self._waits and not self._begins(found):
                    return found
                first = self._held.lstrip()[:1]
                if not first:
                    return found
                self._body = self._open(first)
                self._waits = False
            text, self._held = self._held, ""
            found += self._body.feed(text)
            if self._body.state == "open":
                return found
            self._leave(self._body, found)

    def _begins(self, found: list[Piece]) -> bool:
        """Give content until a call begins; False when none does so far."""
        held = self._held
        text = held.lstrip()
        if self._fresh and text and text[0] in self._bare:
            self._sign, self._waits, self._fresh = "", True, False
            return True
        if self._after:
            held = text
        signs = self._calling.form.begins
        places = [(at, sign) for sign in signs if (at := held.find(sign)) >= 0]
        if places:
            at, self._sign = min(places)
            found.append(Content(held[:at].rstrip()))
            self._held = held[at + len(self._sign) :]
            self._waits, self._fresh, self._after = True, False, False
            return True
        keep = max(undecided(held, sign) for sign in signs)
        sure = held[: len(held) - keep].rstrip()
        if sure:
            found.append(Content(sure))
            self._fresh = self._after = False
        self._held = held[len(sure) :]
        return False

    def _open(self, first: str) -> Body:
        schemas = self._calling.schemas
        if not self._sign:
            return JsonBody(self._numbering, known=frozenset(schemas))
        return self._calling.form.open(first, self._numbering, schemas)

    def _leave(self, body: Body, found: list[Piece]) -> None:
        """Go on behind a call, or look at what was none once more."""
        self._body = None
        if body.state == "done":
            self._held = body.rest
            self._after = True
            return
        found.append(Content(self._sign))
        self._held = body.raw


class Chain:
    """Reasoning first; what is content there is looked at for calls."""

    def __init__(self, first: Parser, then: Parser) -> None:
        self._first = first
        self._then = then

    def feed(self, text: str) -> list[Piece]:
        return self._pass(self._first.feed(text))

    def finish(self) -> list[Piece]:
        return self._pass(self._first.finish()) + self._then.finish()

    def _pass(self, pieces: list[Piece]) -> list[Piece]:
        found: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, Content):
                found += self._then.feed(piece.text)
            else:
                found.append(piece)
        return found
