"""JSON objects of tool calls, read while they come in.

The name of a tool is given as soon as it is complete, and its arguments as they are
written, in the model's own JSON: nothing is decoded and written again.
"""

from __future__ import annotations

import json
from typing import Any

from mlxceld.chat.pieces import Numbering, Piece

_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")
_IDS = ("id", "tool_call_id")
_KEYS = frozenset((*_NAMES, *_ARGUMENTS, *_IDS, "type", "function"))


class _Extent:
    """Finds the end of a JSON value that begins with a bracket or a quote."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False

    def ends_with(self, char: str) -> bool:
        """Take the next character; True when the value is complete with it."""
        if self._quoted:
            if self._escaped:
                self._escaped = False
            elif char == "\\":
                self._escaped = True
            elif char == '"':
                self._quoted = False
        elif char == '"':
            self._quoted = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
        return self._depth <= 0 and not self._quoted


class ArgumentsReader:
    """Passes an object on as the arguments of the call that began last.

    `state` becomes `done` behind the object, `broken` where there is none; `rest` is
    the text behind it.
    """

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._extent = _Extent()
        self._began = False
        self.state = "open"
        self.rest = ""

    def feed(self, text: str) -> list[Piece]:
        if not self._began:
            text = text.lstrip()
            if not text:
                return []
            if text[0] != "{":
                self.state, self.rest = "broken", text
                return []
            self._began = True
        for at, char in enumerate(text):
            if self._extent.ends_with(char):
                self.state, self.rest = "done", text[at + 1 :]
                return [self._numbering.arguments(text[: at + 1])]
        return [self._numbering.arguments(text)] if text else []


class ObjectReader:
    """Reads an object that has a tool's name and its arguments under usual keys.

    With `known` names, an object with any other name or with other keys is `broken` at
    once. `begun` says that a call was given; from then on it cannot be taken back.
    """

    def __init__(
        self, numbering: Numbering, known: frozenset[str] | None = None
    ) -> None:
        self._numbering = numbering
        self._known = known
        self._expects = "object"
        self._key = ""
        self._value: list[str] = []
        self._extent = _Extent()
        self._reads_key = False
        self._name = self._id = ""
        self._arguments: str | None = None
        self._streams = False
        """Whether the value that is being read goes out as it comes."""
        self._found: list[Piece] = []
        self.begun = False
        self.state = "open"
        self.rest = ""

    def feed(self, text: str) -> list[Piece]:
        at = 0
        while at < len(text) and self.state == "open":
            self._take(text[at])
            at += 1
        if self.state != "open":
            # What broke the object is not part of it.
            self.rest = text[at - (self.state == "broken") :]
        if self._streams and self._value:
            self._found.append(self._numbering.arguments("".join(self._value)))
            self._value = []
        found, self._found = self._found, []
        return found

    def _take(self, char: str) -> None:
        match self._expects:
            case "inside":
                self._value.append(char)
                if self._extent.ends_with(char):
                    self._complete()
            case "scalar" if char not in ",}" and not char.isspace():
                self._value.append(char)
            case _ if char.isspace():
                pass
            case "scalar":
                self._complete()
                if self.state == "open":
                    self._take(char)
            case "object" if char == "{":
                self._expects = "key"
            case "key" if char == '"':
                self._begin(char)
                self._key = ""
            case "key" | "comma" if char == "}":
                self._close()
            case "comma" if char == ",":
                self._expects = "key"
            case "colon" if char == ":":
                self._expects = "value"
            case "value" if char not in ",:}]":
                self._begin(char)
            case _:
                self._break()

    def _begin(self, char: str) -> None:
        """A key or a value begins."""
        self._value = [char]
        if self._expects == "value":
            if char == "{" and self._key in _ARGUMENTS and self._name:
                self._call()
                self._streams = self.state == "open"
            if char not in '{["':
                self._expects = "scalar"
                return
        self._extent = _Extent()
        self._extent.ends_with(char)
        self._reads_key = self._expects == "key"
        self._expects = "inside"

    def _complete(self) -> None:
        """A key or a value is complete."""
        text = "".join(self._value)
        self._value = []
        if self._streams:
            self._found.append(self._numbering.arguments(text))
            self._streams = False
            self._arguments = "given"
            self._expects = "comma"
            return
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            self._break()
            return
        if self._expects == "inside" and self._reads_key:
            self._key = value
            self._expects = "colon"
            if self._known is not None and value not in _KEYS:
                self._break()
            return
        self._expects = "comma"
        self._keep(value, text)

    def _keep(self, value: Any, text: str) -> None:
        key = self._key
        if key == "function" and isinstance(value, dict):
            inner = value.get("name")
            self._name = inner if isinstance(inner, str) else ""
            for word in _ARGUMENTS:
                if word in value:
                    self._arguments = _as_text(value[word])
        elif key in (*_NAMES, "function") and isinstance(value, str):
            self._name = value
            if self._known is not None and value not in self._known:
                self._break()
        elif key in _IDS and isinstance(value, str):
            self._id = value
        elif key in _ARGUMENTS:
            self._arguments = value if isinstance(value, str) else text

    def _call(self) -> None:
        if not self._name or (
            self._known is not None and self._name not in self._known
        ):
            self._break()
            return
        self._found.append(self._numbering.begin(self._name, self._id))
        self.begun = True

    def _close(self) -> None:
        if not self.begun:
            self._call()
            if self.state == "broken":
                return
            arguments = self._arguments
            if arguments in (None, "", "null"):
                arguments = "{}"
            self._found.append(self._numbering.arguments(arguments or "{}"))
        self.state = "done"

    def _break(self) -> None:
        self.state = "broken"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
