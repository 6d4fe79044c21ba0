"""Value kinds of request defaults: samplers, texts that may hold commas, biases.

A flag of these lists may be given several times; each time adds to the list.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

from mlxceld import samplers
from mlxceld.kinds import BadValue, Kind, Value, found_text, found_toml, toml_text

_BIAS = re.compile(r"([0-9]{1,10})([+-])([0-9]+(?:\.[0-9]*)?|\.[0-9]+|inf)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|[nrt'\"\\])")


class Repeated(Kind):
    """A list whose flag adds one item each time."""

    __slots__ = ()

    annotation: ClassVar[str] = "tuple[str, ...]"

    def render(self, value: Value) -> str:
        assert isinstance(value, tuple)
        return f"[{', '.join(toml_text(item) for item in value)}]"

    def check(self, value: object) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise BadValue(found_toml(value), self.wanted)
        for item in items:
            if not isinstance(item, str):
                raise BadValue(f"{found_toml(item)} in the array", self.wanted)
        return self._items(items)

    def _items(self, items: list[str]) -> tuple[str, ...]:
        """The items of a TOML array. Raises `BadValue`."""
        return tuple(item for item in items if item)


@dataclass(frozen=True, slots=True)
class Texts(Repeated):
    """Texts as they are. In flags and variables `\\n` and the like are escapes.

    The word `none` in `nothing` stands for an empty list.
    """

    metavar: ClassVar[str] = "TEXT"

    nothing: str = ""

    @property
    def wanted(self) -> str:
        none = f", or `{self.nothing}`" if self.nothing else ""
        return f"text{none}; in TOML also an array of texts"

    def parse(self, text: str) -> tuple[str, ...]:
        if not text:
            raise BadValue("nothing", self.wanted)
        if self.nothing and text == self.nothing:
            return ()
        return (_ESCAPE.sub(_unescaped, text),)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code[1:], 16)) if code.startswith("x") else _ESCAPES[code]


@dataclass(frozen=True, slots=True)
class Biases(Repeated):
    """Token ids with a number to add to their logits: `15043+1`, `29905-inf`."""

    metavar: ClassVar[str] = "ID+X"

    @property
    def wanted(self) -> str:
        return "a token id, `+` or `-`, and a number or `inf`, like `15043-1.5`"

    def parse(self, text: str) -> tuple[str, ...]:
        words = "".join(text.split())
        found = _BIAS.fullmatch(words)
        if not found or (found[2] + found[3]) == "+inf":
            raise BadValue(found_text(text), self.wanted)
        return (words,)

    def _items(self, items: list[str]) -> tuple[str, ...]:
        return tuple(word for item in items for word in self.parse(item))


def biases(words: tuple[str, ...]) -> tuple[tuple[int, float], ...]:
    """Pairs of token and bias; of a token that is named twice both count."""
    pairs = []
    for word in words:
        found = _BIAS.fullmatch(word)
        assert found is not None
        amount = math.inf if found[3] == "inf" else min(float(found[3]), 3.4e38)
        pairs.append((int(found[1]), -amount if found[2] == "-" else amount))
    return tuple(pairs)


@dataclass(frozen=True, slots=True)
class Samplers(Kind):
    """Names of samplers, separated by semicolons or commas, or their letters."""

    annotation: ClassVar[str] = "tuple[str, ...]"
    metavar: ClassVar[str] = "A;B"

    @property
    def wanted(self) -> str:
        return f"names out of {', '.join(samplers.LETTERS)}, or their letters"

    def parse(self, text: str) -> tuple[str, ...]:
        words = [word for word in re.split(r"[;,\s]+", text.strip()) if word]
        try:
            return samplers.from_names(words)
        except ValueError:
            pass
        try:
            return samplers.from_letters(text.strip())
        except ValueError:
            raise BadValue(found_text(text), self.wanted) from None

    def check(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            return self.parse(value)
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise BadValue(found_toml(value), self.wanted)
        try:
            return samplers.from_names(value)
        except ValueError as error:
            raise BadValue(str(error), self.wanted) from None

    def render(self, value: Value) -> str:
        assert isinstance(value, tuple)
        return f"[{', '.join(toml_text(item) for item in value)}]"
