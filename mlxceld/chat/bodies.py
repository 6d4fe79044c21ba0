"""The insides of tool calls: four ways in which models write a name and arguments.

A body reads what stands behind the text that begins a call, piece by piece, and gives
names and arguments as soon as they are certain. Its `state` is `open` until the call,
or the run of calls, is `done` (then `rest` is the text behind it) or `broken` (then
`raw` is what it has read, to be given back as content).
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mlxceld.chat.objects import ArgumentsReader, ObjectReader
from mlxceld.chat.pieces import Numbering, Piece

Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the arguments of the tools, by the tools' names."""

_LONGEST_HEAD = 300
"""Characters; a name that takes more is none."""


class Body(ABC):
    """What all bodies share."""

    def __init__(self, numbering: Numbering) -> None:
        self.numbering = numbering
        self.state = "open"
        self.raw = ""
        self.rest = ""
        self._text = ""
        """Read, but not yet understood."""
        self._given = False
        """Whether a call was given, which cannot be taken back."""

    def feed(self, text: str) -> list[Piece]:
        self.raw += text
        self._text += text
        return self._read(last=False)

    def finish(self) -> list[Piece]:
        """The answer ends here. A body that has given no call is broken."""
        found = self._read(last=True)
        if self.state == "open":
            self._unfit()
        return found

    @abstractmethod
    def _read(self, *, last: bool) -> list[Piece]:
        """What can be told of `_text`; `last` says that no more will come."""

    def _end(self, at: int) -> None:
        """Done; the text behind `at` is not of this body."""
        self.state, self.rest, self._text = "done", self._text[at:], ""

    def _unfit(self) -> None:
        """What comes next cannot be understood."""
        if self._given:
            self._end(0)
        else:
            self.state = "broken"


class JsonBody(Body):
    """Objects with name and arguments, one or several, or a list of them.

    With `known` names it is strict: the text may be an answer in JSON, and only an
    object that calls one of these tools is a call.
    """

    def __init__(
        self, numbering: Numbering, end: str = "", known: frozenset[str] | None = None
    ) -> None:
        super().__init__(numbering)
        self._end_marker = end
        self._known = known
        self._object: ObjectReader | None = None
        self._object_text = ""
        self._in_list = False
        self._expects = True
        """Whether an object may begin here."""

    def _read(self, *, last: bool) -> list[Piece]:
        found: list[Piece] = []
        while self.state == "open" and self._step(found, last):
            pass
        return found

    def _step(self, found: list[Piece], last: bool) -> bool:
        """Understand the next bit; False when more text is needed."""
        reader = self._object
        if reader is not None:
            text, self._text = self._text, ""
            self._object_text += text
            found += reader.feed(text)
            self._given = self._given or reader.begun
            if reader.state == "broken":
                self._text = reader.rest if reader.begun else self._object_text
                self._unfit()
            if reader.state != "done":
                return False
            self._text, self._object = reader.rest, None
        self._text = self._text.lstrip()
        end = self._end_marker
        if end and self._text.startswith(end):
            self._end(len(end))
            return False
        if not self._text or (end.startswith(self._text) and not last):
            return False
        return self._between(self._text[0])

    def _between(self, mark: str) -> bool:
        """Brackets and separators around the objects."""
        if mark == "{" and self._expects:
            self._object = ObjectReader(self.numbering, self._known)
            self._object_text = ""
            self._expects = False
            return True
        if mark == "[" and self._expects and not self._in_list:
            self._in_list = True
        elif mark in ",;" and not self._expects:
            self._expects = True
        elif mark == "]" and self._in_list:
            self._in_list = self._expects = False
            if not self._end_marker:
                self._end(1)
                return False
        else:
            self._unfit()
            return False
        self._text = self._text[1:]
        return True


class NamedBody(Body):
    """A name in some text of its own, then an object with the arguments."""

    def __init__(
        self,
        numbering: Numbering,
        head: re.Pattern[str],
        tail: re.Pattern[str] | None = None,
        end: str = "",
    ) -> None:
        """`head` ends before the object and has the groups `name` and perhaps `id`;
        `tail` ends a call and `end` the run of calls, where there are such."""
        super().__init__(numbering)
        self._head = head
        self._tail = tail
        self._end_marker = end
        self._arguments: ArgumentsReader | None = None

    def _read(self, *, last: bool) -> list[Piece]:
        found: list[Piece] = []
        while self.state == "open":
            reader = self._arguments
            if reader is not None:
                text, self._text = self._text, ""
                found += reader.feed(text)
                if reader.state == "open":
                    break
                self._text, self._arguments = reader.rest, None
                if self._tail is None and not self._end_marker:
                    self._end(0)
            elif match := self._head.match(self._text):
                own_id = match.groupdict().get("id") or ""
                found.append(self.numbering.begin(match["name"], own_id))
                self._given = True
                self._text = self._text[match.end() :]
                self._arguments = ArgumentsReader(self.numbering)
            elif self._tail and (match := self._tail.match(self._text)):
                self._text = self._text[match.end() :]
                if not self._end_marker:
                    self._end(0)
            else:
                self._no_call(last)
                break
        return found

    def _no_call(self, last: bool) -> None:
        text = self._text.lstrip()
        if self._end_marker and text.startswith(self._end_marker):
            self._text = text
            self._end(len(self._end_marker))
        elif last or len(text) > _LONGEST_HEAD:
            self._unfit()


@dataclass(frozen=True, slots=True)
class Pairs:
    """How a call with tagged parameters is written.

    `head` has the name in group 1, `pair` key and value in groups 1 and 2; the others
    are literal. `pair_start` and `pair_end` are around a pair; a call ends with `tail`
    or, where that is empty, with `end`.
    """

    head: re.Pattern[str]
    pair: re.Pattern[str]
    pair_start: str
    pair_end: str
    tail: str
    end: str
    plain: bool = False
    """Whether a head is a bare word, which is a call only if a tool has that name."""


class PairsBody(Body):
    """A name, then tagged keys and values; a pair is given when it is complete."""

    def __init__(self, numbering: Numbering, pairs: Pairs, schemas: Schemas) -> None:
        super().__init__(numbering)
        self._pairs = pairs
        self._schemas = schemas
        self._name: str | None = None
        self._n = 0
        """Pairs of this call."""

    def _read(self, *, last: bool) -> list[Piece]:
        found: list[Piece] = []
        pairs = self._pairs
        while self.state == "open":
            if self._name is None and (match := pairs.head.match(self._text)):
                name = match[1].strip()
                if pairs.plain and name not in self._schemas:
                    self._unfit()
                    break
                self._name, self._n = name, 0
                found.append(self.numbering.begin(self._name))
                self._given = True
                self._text = self._text[match.end() :]
                continue
            self._text = self._text.lstrip()
            if self._name is not None:
                # Long values are not searched again with every token.
                whole = pairs.pair_end in self._text
                if whole and (match := pairs.pair.match(self._text)):
                    found.append(self._argument(match[1].strip(), match[2]))
                    self._text = self._text[match.end() :]
                    continue
                if pairs.tail and self._text.startswith(pairs.tail):
                    found.append(self._close())
                    self._text = self._text[len(pairs.tail) :]
                    continue
            if pairs.end and self._text.startswith(pairs.end):
                if self._name is not None:
                    found.append(self._close())
                self._end(len(pairs.end))
            elif last or self._is_nothing():
                if self._name is not None:
                    found.append(self._close())
                self._unfit()
            break
        return found

    def _is_nothing(self) -> bool:
        """Whether no more text can make sense of what is here."""
        if self._name is None and not self._given:
            return len(self._text) > _LONGEST_HEAD
        if self._name is not None and self._text.startswith(self._pairs.pair_start):
            return False
        return len(self._text) > _LONGEST_HEAD

    def _argument(self, key: str, text: str) -> Piece:
        schema = self._schemas.get(self._name or "", {})
        properties = schema.get("properties")
        wanted = properties.get(key) if isinstance(properties, Mapping) else None
        value = json.dumps(_value(text, wanted), ensure_ascii=False)
        before = ", " if self._n else "{"
        self._n += 1
        return self.numbering.arguments(f"{before}{json.dumps(key)}: {value}")

    def _close(self) -> Piece:
        self._name = None
        return self.numbering.arguments("}" if self._n else "{}")


_WORDS = {"True": True, "False": False, "None": None}


def _value(text: str, schema: Any) -> Any:
    """What a parameter's text means: itself where text is wanted, else JSON."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    if wanted == "string":
        return text
    if text.strip() in _WORDS:
        return _WORDS[text.strip()]
    try:
        # NaN and Infinity, which are no JSON, stay text.
        return json.loads(text, parse_constant=lambda _: text)
    except (ValueError, RecursionError):
        return text


Calls: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]


class WholeBody(Body):
    """Calls in a notation that is understood when it is complete."""

    def __init__(
        self, numbering: Numbering, read: Callable[[str], Calls | None], end: str
    ) -> None:
        """`read` gives names and arguments, None for what it cannot read; without
        `end` the calls end with the answer."""
        super().__init__(numbering)
        self._reader = read
        self._end_marker = end

    def _read(self, *, last: bool) -> list[Piece]:
        at = self._text.find(self._end_marker) if self._end_marker else -1
        if at < 0 and not last:
            return []
        text = self._text if at < 0 else self._text[:at]
        calls = self._reader(text)
        if not calls:
            self.state = "broken"
            return []
        found: list[Piece] = []
        for name, arguments in calls:
            found.append(self.numbering.begin(name))
            words = json.dumps(arguments, ensure_ascii=False)
            found.append(self.numbering.arguments(words))
        self._end(len(text) + len(self._end_marker))
        return found
