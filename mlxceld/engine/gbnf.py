"""Reads grammars in GBNF, the notation of llama-server's `grammar` field.

The result is a tree of characters, sequences, alternatives and repetitions, which
`lexemes.py` makes into what llguidance runs. What is valid here is what llama-server
takes, save for rules that begin with themselves, which are fine here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, TypeAlias

MOST_REPEATS = 2000
"""The largest number in `{...}`, as in llama-server."""

MOST_NESTING = 40
"""Groups within groups."""

_MOST_OPERATORS = 3
"""Repetitions of repetitions, as in `"a"+*`."""

LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_PLAIN_ESCAPES = {"n": 10, "r": 13, "t": 9, '"': 34, "\\": 92, "[": 91, "]": 93}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges of code points, ends included, in order and apart from each other."""


class GrammarError(ValueError):
    """A grammar that cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set; an empty set matches nothing."""

    spans: Spans


@dataclass(frozen=True, slots=True)
class Seq:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times, None for any number."""

    item: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """Another rule."""

    name: str


Node: TypeAlias = Chars | Seq | Alt | Repeat | Ref

ANY = Chars(((0, _SURROGATES[0] - 1), (_SURROGATES[1] + 1, LAST)))


def parse(text: str) -> dict[str, Node]:
    """The rules of a grammar by name; there is a `root`, and no reference dangles.

    Of two rules with one name the later counts, as in llama-server. Raises
    GrammarError that names the line.
    """
    return _Parser(text).rules()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._mentioned: dict[str, int] = {}
        """Where each rule is referred to first."""

    def rules(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        self._space(lines=True)
        while self._at < len(self._text):
            name = self._name("a rule's name")
            self._space(lines=False)
            if not self._take("::="):
                self._fail(f"`::=` is missing after `{name}`")
            self._space(lines=True)
            found[name] = self._alternatives(nested=False)
            if self._at < len(self._text) and not self._line_end():
                self._fail("the rule goes on where it should end")
            self._space(lines=True)
        for name, at in self._mentioned.items():
            if name not in found:
                self._fail(f"there is no rule `{name}`", at)
        if "root" not in found:
            raise GrammarError("there is no rule `root`")
        return found

    def _fail(self, what: str, at: int | None = None) -> NoReturn:
        at = self._at if at is None else at
        line = self._text.count("\n", 0, at) + 1
        near = self._text[at : at + 20].split("\n")[0].strip()
        raise GrammarError(f"line {line}: {what}" + (f", at `{near}`" if near else ""))

    def _here(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, words: str) -> bool:
        if self._text.startswith(words, self._at):
            self._at += len(words)
            return True
        return False

    def _line_end(self) -> bool:
        return self._take("\r\n") or self._take("\n") or self._take("\r")

    def _space(self, *, lines: bool) -> None:
        """Skip blanks and comments, and with `lines` line ends as well."""
        while here := self._here():
            if here in " \t" or (lines and here in "\r\n"):
                self._at += 1
            elif here == "#":
                while self._here() and self._here() not in "\r\n":
                    self._at += 1
            else:
                return

    def _name(self, wanted: str) -> str:
        start = self._at
        while _is_word(self._here()):
            self._at += 1
        if start == self._at:
            self._fail(f"{wanted} is wanted")
        return self._text[start : self._at]

    def _number(self) -> int:
        start = self._at
        while self._here() and self._here() in "0123456789":
            self._at += 1
        if start == self._at:
            self._fail("a number is wanted")
        digits = self._text[start : self._at]
        if len(digits) > 9 or int(digits) > MOST_REPEATS:
            self._fail(f"more than {MOST_REPEATS} repetitions", start)
        return int(digits)

    def _alternatives(self, *, nested: bool) -> Node:
        items = [self._sequence(nested)]
        while self._take("|"):
            self._space(lines=True)
            items.append(self._sequence(nested))
        return items[0] if len(items) == 1 else Alt(tuple(items))

    def _sequence(self, nested: bool) -> Node:
        items: list[Node] = []
        while True:
            item = self._item()
            if item is None:
                break
            self._space(lines=nested)
            items.append(self._repeated(item, nested))
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def _item(self) -> Node | None:
        """What can stand in a sequence, None at its end."""
        here = self._here()
        start = self._at
        if here == '"':
            return self._literal()
        if here == "[":
            return self._set()
        if here == "(":
            return self._group()
        if here == ".":
            self._at += 1
            return ANY
        if here == "<" or (here == "!" and self._text.startswith("<", start + 1)):
            self._fail("tokens like `<name>` are not supported, only text")
        if _is_word(here):
            name = self._name("a rule's name")
            self._mentioned.setdefault(name, start)
            return Ref(name)
        return None

    def _group(self) -> Node:
        self._at += 1
        self._depth += 1
        if self._depth > MOST_NESTING:
            self._fail(f"groups are nested more than {MOST_NESTING} deep")
        self._space(lines=True)
        found = self._alternatives(nested=True)
        if not self._take(")"):
            self._fail("`)` is wanted")
        self._depth -= 1
        return found

    def _repeated(self, item: Node, nested: bool) -> Node:
        """The item with the repetitions behind it, several of which add up."""
        count = 0
        while (here := self._here()) and here in "*+?{":
            count += 1
            if count > _MOST_OPERATORS:
                self._fail("too many repetitions of repetitions")
            self._at += 1
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(here, (0, 0))
            if here == "{":
                low, high = self._bounds()
            item = Repeat(item, low, high)
            self._space(lines=nested)
        return item

    def _bounds(self) -> tuple[int, int | None]:
        start = self._at
        self._space(lines=True)
        low = self._number()
        high: int | None = low
        self._space(lines=True)
        if self._take(","):
            self._space(lines=True)
            high = None if self._here() == "}" else self._number()
            self._space(lines=True)
        if not self._take("}"):
            self._fail("`}` is wanted")
        if high is not None and high < low:
            self._fail(f"at least {low} and at most {high} repetitions", start)
        return low, high

    def _literal(self) -> Node:
        start = self._at
        self._at += 1
        codes: list[int] = []
        while not self._take('"'):
            codes.append(self._character(start))
        items = tuple(Chars(((code, code),)) for code in codes)
        return items[0] if len(items) == 1 else Seq(items)

    def _set(self) -> Node:
        start = self._at
        self._at += 1
        negated = self._take("^")
        spans: list[tuple[int, int]] = []
        while not self._take("]"):
            low = high = self._character(start)
            if self._here() == "-" and not self._text.startswith("-]", self._at):
                self._at += 1
                high = self._character(start)
                if high < low:
                    self._fail("a range runs backwards", start)
            spans.append((low, high))
        return Chars(_spans(spans, negated))

    def _character(self, start: int) -> int:
        """The code point of the next character of a literal or set."""
        here = self._here()
        if not here:
            self._fail("this has no end", start)
        self._at += 1
        if here != "\\":
            return self._sound(ord(here))
        letter = self._here()
        self._at += 1
        if letter and letter in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[letter]
        width = _HEX_ESCAPES.get(letter)
        if width is None:
            self._fail(f"`\\{letter}` is no escape", self._at - 2)
        digits = self._text[self._at : self._at + width]
        if len(digits) < width or set(digits) - set("0123456789abcdefABCDEF"):
            self._fail(f"`\\{letter}` needs {width} hexadecimal digits", self._at - 2)
        self._at += width
        return self._sound(int(digits, 16))

    def _sound(self, code: int) -> int:
        if code > LAST or _SURROGATES[0] <= code <= _SURROGATES[1]:
            self._fail(f"U+{code:04X} is no character")
        return code


def _is_word(here: str) -> bool:
    return bool(here) and here.isascii() and (here.isalnum() or here in "-_")


def _spans(found: list[tuple[int, int]], negated: bool) -> Spans:
    """Ranges in order, overlaps joined, surrogates left out; their complement."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(found):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    if negated:
        edges = [-1, *(edge for span in joined for edge in span), LAST + 1]
        joined = [
            (edges[i] + 1, edges[i + 1] - 1)
            for i in range(0, len(edges), 2)
            if edges[i] + 1 <= edges[i + 1] - 1
        ]
    kept: list[tuple[int, int]] = []
    for low, high in joined:
        below = (low, min(high, _SURROGATES[0] - 1))
        above = (max(low, _SURROGATES[1] + 1), high)
        kept += [span for span in (below, above) if span[0] <= span[1]]
    return tuple(kept)
