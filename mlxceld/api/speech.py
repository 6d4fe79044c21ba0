"""An answer as a row of blocks: thoughts, text, calls of tools.

Anthropic's messages and OpenAI's responses both show an answer like that, and their
streams tell when a block begins, grows and ends. A block ends where the next begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from mlxceld.api.shapes import identifier
from mlxceld.chat.pieces import (
    CallArguments,
    CallBegins,
    Content,
    Parser,
    Piece,
    Reasoning,
)
from mlxceld.engine import messages as m

Kind: TypeAlias = Literal["thinking", "text", "call"]


@dataclass(slots=True)
class Block:
    """One block; `name` and `call_id` are those of a call."""

    kind: Kind
    index: int
    name: str = ""
    call_id: str = ""
    id: str = field(default_factory=lambda: identifier(""))
    """For dialects whose blocks have a name of their own."""
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Thoughts, text, or the arguments of a call as JSON text."""
        return "".join(self.parts)

    def arguments(self) -> dict[str, Any]:
        """The arguments of a call; empty when an answer was cut within them."""
        try:
            found = msgspec.json.decode(self.text)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a block; `text` is what it grew by."""

    what: Literal["opens", "grows", "closes"]
    block: Block
    text: str = ""


class Speech:
    """The blocks of one answer; `parser` makes pieces of its text."""

    def __init__(self, parser: Parser) -> None:
        self.blocks: list[Block] = []
        self._parser = parser
        self._open: Block | None = None

    def hear(self, event: m.Delta | m.Done) -> Iterator[Change]:
        """Account for an event of the engine, and tell what it changes."""
        if event.text:
            yield from self._take(self._parser.feed(event.text))
        if isinstance(event, m.Done):
            yield from self._take(self._parser.finish())
            yield from self._close()

    def hear_all(self, text: str) -> None:
        """Account for an answer that has ended."""
        changes = [*self._take(self._parser.feed(text))]
        changes += self._take(self._parser.finish())
        changes += self._close()

    @property
    def calls(self) -> bool:
        """Whether the answer calls a tool."""
        return any(block.kind == "call" for block in self.blocks)

    def _take(self, pieces: Iterable[Piece]) -> Iterator[Change]:
        for piece in pieces:
            match piece:
                case Content():
                    yield from self._grow("text", piece.text)
                case Reasoning():
                    yield from self._grow("thinking", piece.text)
                case CallBegins():
                    yield from self._begin("call", piece.name, piece.id)
                case CallArguments():
                    yield from self._grow("call", piece.text)

    def _grow(self, kind: Kind, text: str) -> Iterator[Change]:
        block = self._open
        if block is None or block.kind != kind:
            if self.blocks and not text.strip():
                # Blanks between two blocks are no text of their own.
                return
            yield from self._begin(kind)
            block = self.blocks[-1]
        block.parts.append(text)
        yield Change("grows", block, text)

    def _begin(self, kind: Kind, name: str = "", call_id: str = "") -> Iterator[Change]:
        yield from self._close()
        self._open = Block(kind, len(self.blocks), name, call_id)
        self.blocks.append(self._open)
        yield Change("opens", self._open)

    def _close(self) -> Iterator[Change]:
        block, self._open = self._open, None
        if block is not None:
            yield Change("closes", block)
