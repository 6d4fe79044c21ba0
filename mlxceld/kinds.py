"""Value kinds: how the text of a flag and the value of a TOML key become one value.

Every option of the table has a kind, and the kind alone decides what is accepted, so
a flag, an environment variable and a TOML key can never disagree about what `8k` or
`true` means. A kind knows nothing about the option it serves: it says what it found
and what it wants (`BadValue`), and the caller adds where that was.
"""

from __future__ import annotations

import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...]
"""What a kind can produce. Lists are tuples, so that settings stay immutable."""

TRUE_WORDS = ("true", "on", "yes", "enabled", "1")
FALSE_WORDS = ("false", "off", "no", "disabled", "0")

INT32_MAX = 2**31 - 1

_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class BadValue(Exception):
    """A value that a kind does not take.

    `found` and `wanted` are phrases for a message; `found` may hold a secret and is
    for the caller to show or to withhold.
    """

    def __init__(self, found: str, wanted: str) -> None:
        self.found = found
        self.wanted = wanted
        super().__init__(f"found {found}, wanted {wanted}")


def toml_text(text: str) -> str:
    """`text` as a TOML basic string on one line."""
    # JSON's escapes are a subset of TOML's, except that TOML also escapes DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def found_text(text: str) -> str:
    """The phrase for text that was found in a flag or a variable."""
    return f"`{_one_line(text.strip())}`" if text.strip() else "nothing"


def found_toml(value: object) -> str:
    """The phrase for a TOML value, with the type where it is the mistake."""
    if isinstance(value, bool):
        return f"the boolean `{str(value).lower()}`"
    if isinstance(value, int):
        # Python writes no more than 4300 digits.
        return (
            f"the integer `{value}`" if abs(value) < 1 << 999 else "an endless integer"
        )
    if isinstance(value, float):
        return f"the float `{value}`"
    if isinstance(value, str):
        return f"the text {toml_text(_one_line(value))}"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "an array"
    return f"the date or time `{value}`"


def _one_line(text: str) -> str:
    """`text` short enough for a message and without control characters."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:60])
    return shown if len(text) <= 60 else f"{shown}..."


class Kind(ABC):
    """What one option takes. Subclasses are frozen dataclasses."""

    __slots__ = ()

    annotation: ClassVar[str]
    """The Python type of the value, as it is written in the generated settings."""

    metavar: ClassVar[str]
    """The placeholder in help texts."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What is accepted, as the end of the sentence "wanted ..."."""

    @abstractmethod
    def parse(self, text: str) -> Value:
        """The value of a flag or an environment variable. Raises `BadValue`."""

    def check(self, value: object) -> Value:
        """The value of a TOML key. Raises `BadValue`.

        Most kinds take TOML text as if it were a flag; kinds that have a TOML type
        of their own insist on it.
        """
        if not isinstance(value, str):
            raise BadValue(found_toml(value), self.wanted)
        return self.parse(value)

    def render(self, value: Value) -> str:
        """The value as TOML, such that `check` gives it back."""
        return toml_text(str(value))


@dataclass(frozen=True, slots=True)
class Boolean(Kind):
    """A truth word in any case, or a TOML boolean."""

    annotation: ClassVar[str] = "bool"
    metavar: ClassVar[str] = "BOOL"

    @property
    def wanted(self) -> str:
        return (
            "true or false (also on/off, yes/no, enabled/disabled, 1/0; "
            "in TOML only true or false)"
        )

    def parse(self, text: str) -> bool:
        word = text.strip().lower()
        if word in TRUE_WORDS:
            return True
        if word in FALSE_WORDS:
            return False
        raise BadValue(found_text(text), self.wanted)

    def check(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise BadValue(found_toml(value), "true or false")
        return value

    def render(self, value: Value) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Integer(Kind):
    """ASCII digits with bounds. `+4`, `1_000`, `8k` and `1e4` are no integers.

    `negative_is_auto` makes every negative number -1 (as llama-server reads
    `--parallel`).
    """

    annotation: ClassVar[str] = "int"
    metavar: ClassVar[str] = "N"

    low: int = 0
    high: int = INT32_MAX
    unit: str = ""
    negative_is_auto: bool = False

    @property
    def wanted(self) -> str:
        if self.negative_is_auto:
            return f"an integer from 1 to {self.high}, or -1 for auto"
        if self.high >= INT32_MAX:
            return f"an integer of at least {self.low}{self._unit}"
        return f"an integer from {self.low} to {self.high}{self._unit}"

    @property
    def _unit(self) -> str:
        return f", in {self.unit}" if self.unit else ""

    def parse(self, text: str) -> int:
        digits = text.strip()
        # int() itself takes `+4`, `1_000` and the digits of every script; the bound
        # on the length keeps it from its own error about too many digits.
        if not _INTEGER.fullmatch(digits) or len(digits) > 20:
            raise BadValue(found_text(text), self.wanted)
        return self._bounded(int(digits), found_text(text))

    def check(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadValue(found_toml(value), self.wanted)
        return self._bounded(value, found_toml(value))

    def render(self, value: Value) -> str:
        return str(value)

    def _bounded(self, number: int, found: str) -> int:
        if self.negative_is_auto and number < 0:
            return -1
        if number > self.high >= INT32_MAX and not self.negative_is_auto:
            raise BadValue(found, f"an integer of at most {self.high}{self._unit}")
        if not self.low <= number <= self.high:
            raise BadValue(found, self.wanted)
        return number


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A finite decimal number with bounds."""

    annotation: ClassVar[str] = "float"
    metavar: ClassVar[str] = "X"

    low: float | None = None
    high: float | None = None
    unit: str = ""

    @property
    def wanted(self) -> str:
        unit = f", in {self.unit}" if self.unit else ""
        if self.low is not None and self.high is not None:
            return f"a number from {self.low:g} to {self.high:g}{unit}"
        if self.low is not None:
            return f"a number of at least {self.low:g}{unit}"
        return f"a number{unit}"

    def parse(self, text: str) -> float:
        digits = text.strip()
        if not _NUMBER.fullmatch(digits):
            raise BadValue(found_text(text), self.wanted)
        return self._bounded(float(digits), found_text(text))

    def check(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadValue(found_toml(value), self.wanted)
        try:
            number = float(value)
        except OverflowError:
            raise BadValue(found_toml(value), self.wanted) from None
        return self._bounded(number, found_toml(value))

    def render(self, value: Value) -> str:
        assert isinstance(value, int | float)
        return repr(float(value))

    def _bounded(self, number: float, found: str) -> float:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not math.isfinite(number) or not low <= number <= high:
            raise BadValue(found, self.wanted)
        return number


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """Text as it is. Empty text is refused unless `empty` allows it."""

    annotation: ClassVar[str] = "str"
    metavar: ClassVar[str] = "TEXT"

    empty: bool = False

    @property
    def wanted(self) -> str:
        return "text" if self.empty else "text that is not empty"

    def parse(self, text: str) -> str:
        if not text.strip() and not self.empty:
            raise BadValue("nothing", self.wanted)
        return text


@dataclass(frozen=True, slots=True)
class FilePath(Kind):
    """The name of a file or a folder; `~` is the home folder.

    Names stay as they were given: llama-server shows the model's path as the user
    wrote it. `against` is applied to names from a TOML file only.
    """

    annotation: ClassVar[str] = "str"
    metavar: ClassVar[str] = "PATH"

    @property
    def wanted(self) -> str:
        return "the name of a file or folder"

    def parse(self, text: str) -> str:
        if not text.strip() or "\0" in text:
            raise BadValue("nothing" if not text.strip() else "a NUL byte", self.wanted)
        return os.path.expanduser(text)

    @staticmethod
    def against(folder: str, name: str) -> str:
        """`name` seen from `folder`; absolute names stay."""
        return os.path.normpath(os.path.join(folder, name))


@dataclass(frozen=True, slots=True)
class UrlPrefix(Kind):
    """A path prefix for HTTP routes: empty, or `/name` without a slash at the end."""

    annotation: ClassVar[str] = "str"
    metavar: ClassVar[str] = "PREFIX"

    @property
    def wanted(self) -> str:
        return "a path that starts with `/`"

    def parse(self, text: str) -> str:
        prefix = text.strip().rstrip("/")
        if prefix and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", prefix):
            raise BadValue(found_text(text), self.wanted)
        return prefix


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One word of a few. `choices` are pairs of word and description.

    `spellings` are further words that stand for one of them; they are accepted and
    not advertised. `numbers` are the words that 0, 1, 2 ... stand for, the last one
    also for every number above (llama-server's verbosity).
    """

    annotation: ClassVar[str] = "str"
    metavar: ClassVar[str] = "WORD"

    choices: tuple[tuple[str, str], ...]
    spellings: tuple[tuple[str, str], ...] = ()
    numbers: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words that are advertised, in the order of the table."""
        return tuple(word for word, _ in self.choices)

    @property
    def wanted(self) -> str:
        *first, last = [f"`{word}`" for word in self.words]
        words = f"{', '.join(first)} or {last}" if first else last
        return f"{words}, or an integer of at least 0" if self.numbers else words

    def parse(self, text: str) -> str:
        word = text.strip().lower()
        if self.numbers and re.fullmatch(r"[0-9]{1,6}", word):
            return self.numbers[min(int(word), len(self.numbers) - 1)]
        word = dict(self.spellings).get(word, word)
        if word not in self.words:
            raise BadValue(found_text(text), self.wanted)
        return word


@dataclass(frozen=True, slots=True)
class TextList(Kind):
    """Several texts: separated by commas, or a TOML array. Blank items are dropped.

    With `unique` the items become a sorted set, as llama-server keeps aliases.
    """

    annotation: ClassVar[str] = "tuple[str, ...]"
    metavar: ClassVar[str] = "A,B"

    unique: bool = False
    at_least: int = 0

    @property
    def wanted(self) -> str:
        least = f"{self.at_least} or more " if self.at_least else ""
        return f"{least}texts, separated by commas or in a TOML array"

    def parse(self, text: str) -> tuple[str, ...]:
        return self._tidy(text.split(","), found_text(text))

    def check(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            return self._tidy(value.split(","), found_toml(value))
        if not isinstance(value, list):
            raise BadValue(found_toml(value), self.wanted)
        for item in value:
            if not isinstance(item, str):
                raise BadValue(f"{found_toml(item)} in the array", self.wanted)
        return self._tidy(value, found_toml(value))

    def render(self, value: Value) -> str:
        assert isinstance(value, tuple)
        return f"[{', '.join(toml_text(item) for item in value)}]"

    def _tidy(self, items: list[str], found: str) -> tuple[str, ...]:
        kept = [item.strip() for item in items if item.strip()]
        if len(kept) < self.at_least:
            raise BadValue("an empty list" if not kept else found, self.wanted)
        return tuple(sorted(set(kept))) if self.unique else tuple(kept)


@dataclass(frozen=True, slots=True)
class JsonObject(Kind):
    """A JSON object as text; in TOML also a table. The value is the compact text."""

    annotation: ClassVar[str] = "str"
    metavar: ClassVar[str] = "JSON"

    @property
    def wanted(self) -> str:
        return "a JSON object"

    def parse(self, text: str) -> str:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise BadValue(found_text(text), self.wanted) from None
        if not isinstance(value, dict):
            raise BadValue(found_text(text), self.wanted)
        return json.dumps(value, ensure_ascii=False)

    def check(self, value: object) -> str:
        if isinstance(value, str):
            return self.parse(value)
        if not isinstance(value, dict):
            raise BadValue(found_toml(value), self.wanted)
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            raise BadValue("a table that JSON cannot hold", self.wanted) from None
