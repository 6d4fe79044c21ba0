"""Cuts a GBNF grammar into lexemes for llguidance, without changing what it means.

llguidance reads text in lexemes and takes each as long as it can be. That is fast,
and wrong for a grammar in which a shorter one was meant: `[a-z]* "b"` would never find
its `b`. So a grammar is cut here in the first of three ways that is exact:

1. A grammar that never comes back to one of its rules is one regular expression, and
   becomes one lexeme.
2. The regular parts of the others become lexemes where their borders are certain: the
   first byte tells which lexeme begins, and no byte that could go on with a lexeme
   could also begin what follows it.
3. Else each character is a lexeme of its own, which is always right, and slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from mlxceld.engine.automata import TooLarge, Word, analyse
from mlxceld.engine.gbnf import Alt, Chars, GrammarError, Node, Ref, Repeat, Seq

MOST_EXPANDED = 1 << 17
"""Characters of a lexeme with the rules in it written out, repetitions aside."""

MOST_DEPTH = 400
"""Rules and groups within each other in a lexeme."""

MOST_RULES = 500
"""Rules of a grammar that is cut into longer lexemes than characters."""

_HEADER = '%llguidance {"no_forcing": true}\n'
"""Without it, text that the grammar leaves no choice about is computed far ahead, in
time that grows with its length, and must be cut into tokens in one way only."""

_NOTHING = r"/[^\x{0}-\x{10ffff}]/"


@dataclass(frozen=True, slots=True, eq=False)
class Lexeme:
    """A regular part of a rule; one object for all equal parts."""

    node: Node


Part: TypeAlias = Node | Lexeme
"""Of a rule that was cut: no characters, and references to rules that were cut."""


def to_lark(rules: Mapping[str, Node]) -> str:
    """llguidance's grammar for the rules of `gbnf.parse`.

    Raises GrammarError for one whose lexemes would be too large.
    """
    regular = _regular(rules)
    if "root" in regular:
        return _Writer(rules, rules).write(Lexeme(Ref("root")))
    cutter = _Cutter(regular)
    cut = {name: cutter.cut(rules[name]) for name in rules if name not in regular}
    try:
        exact = _certain(cut, cutter.lexemes, rules)
    except TooLarge:
        exact = False
    return _Writer(cut if exact else rules, rules).write(Ref("root"))


def children(node: Part) -> tuple[Node, ...]:
    match node:
        case Seq(items) | Alt(items):
            return items
        case Repeat(item):
            return (item,)
    return ()


def _regular(rules: Mapping[str, Node]) -> set[str]:
    """Rules that never come back to a rule, those they refer to included."""
    missing = {name: set(_refs(node)) for name, node in rules.items()}
    users: dict[str, list[str]] = {}
    for name, wanted in missing.items():
        for other in wanted:
            users.setdefault(other, []).append(name)
    ready = [name for name, wanted in missing.items() if not wanted]
    found: dict[str, tuple[int, int]] = {}
    while ready:
        name = ready.pop()
        found[name] = _measure(rules[name], found)
        if found[name][0] > MOST_EXPANDED or found[name][1] > MOST_DEPTH:
            raise GrammarError(f"rule `{name}`: too large with its rules written out")
        for user in users.get(name, ()):
            missing[user].discard(name)
            if not missing[user]:
                ready.append(user)
    return set(found)


def _refs(node: Node) -> Iterable[str]:
    if isinstance(node, Ref):
        yield node.name
    for child in children(node):
        yield from _refs(child)


def _measure(node: Node, known: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Size and depth of a regular node, from those of the rules in it."""
    if isinstance(node, Ref):
        size, depth = known[node.name]
        return size, depth + 1
    sizes = [_measure(child, known) for child in children(node)]
    return (
        sum((size for size, _ in sizes), start=1),
        max((depth for _, depth in sizes), default=0) + 1,
    )


class _Cutter:
    """Makes the largest regular parts of a rule lexemes."""

    def __init__(self, regular: set[str]) -> None:
        self._regular = regular
        self._known: dict[Node, Lexeme] = {}

    @property
    def lexemes(self) -> list[Lexeme]:
        return list(self._known.values())

    def cut(self, node: Node) -> Part:
        if self._whole(node):
            return self._lexeme(node)
        match node:
            case Seq():
                parts: list[Part] = []
                for whole, items in groupby(_flat(node), self._whole):
                    if whole:
                        parts.append(self._lexeme(Seq(tuple(items))))
                    else:
                        parts += [self.cut(item) for item in items]
                return Seq(tuple(parts))  # type: ignore[arg-type]
            case Alt(items):
                plain = tuple(item for item in items if self._whole(item))
                others = [self.cut(item) for item in items if not self._whole(item)]
                if plain:
                    others.append(self._lexeme(Alt(plain)))
                return Alt(tuple(others))  # type: ignore[arg-type]
            case Repeat(item, low, high):
                return Repeat(self.cut(item), low, high)  # type: ignore[arg-type]
        return node

    def _whole(self, node: Node) -> bool:
        return all(name in self._regular for name in _refs(node))

    def _lexeme(self, node: Node) -> Lexeme:
        return self._known.setdefault(node, Lexeme(node))


def _flat(node: Seq) -> Iterable[Node]:
    for item in node.items:
        if isinstance(item, Seq):
            yield from _flat(item)
        else:
            yield item


def _certain(
    cut: Mapping[str, Part], lexemes: Iterable[Lexeme], rules: Mapping[str, Node]
) -> bool:
    """Whether the borders of all lexemes are certain. Raises TooLarge."""
    if len(cut) > MOST_RULES:
        raise TooLarge
    words = {lexeme: analyse(lexeme.node, rules) for lexeme in lexemes}
    flow = _Flow(cut, words)
    for context in (flow.first["root"], *flow.after.values()):
        seen = 0
        for lexeme in context:
            if seen & words[lexeme].first:
                return False
            seen |= words[lexeme].first
    return not any(
        words[lexeme].goes_on & words[follower].first
        for lexeme, followers in flow.after.items()
        for follower in followers
    )


class _Flow:
    """Which lexemes may come first in a rule, and which after each lexeme."""

    def __init__(self, cut: Mapping[str, Part], words: Mapping[Lexeme, Word]) -> None:
        self._words = words
        self._empty: set[str] = set()
        """Rules that may be no text."""
        self.first: dict[str, set[Lexeme]] = {name: set() for name in cut}
        self.after: dict[Lexeme, set[Lexeme]] = {word: set() for word in words}
        self._follow: dict[str, set[Lexeme]] = {name: set() for name in cut}
        size = -1
        while size != (size := self._size()):
            for name, part in cut.items():
                self.first[name] |= self._first(part)
                if self._may_be_empty(part):
                    self._empty.add(name)
                self._visit(part, self._follow[name])

    def _size(self) -> int:
        sets = [*self.first.values(), *self.after.values(), *self._follow.values()]
        return len(self._empty) + sum(len(found) for found in sets)

    def _may_be_empty(self, part: Part) -> bool:
        match part:
            case Lexeme():
                return self._words[part].may_be_empty
            case Ref(name):
                return name in self._empty
            case Seq(items):
                return all(self._may_be_empty(item) for item in items)
            case Alt(items):
                return any(self._may_be_empty(item) for item in items)
            case Repeat(item, low):
                return low == 0 or self._may_be_empty(item)
        return False

    def _first(self, part: Part) -> set[Lexeme]:
        match part:
            case Lexeme():
                return {part}
            case Ref(name):
                return self.first[name]
            case Repeat(_, _, 0):
                return set()
        found: set[Lexeme] = set()
        for child in children(part):
            found |= self._first(child)
            if isinstance(part, Seq) and not self._may_be_empty(child):
                break
        return found

    def _visit(self, part: Part, after: set[Lexeme]) -> None:
        match part:
            case Lexeme():
                self.after[part] |= after
            case Ref(name):
                self._follow[name] |= after
            case Seq(items):
                for item in reversed(items):
                    self._visit(item, after)
                    first = self._first(item)
                    after = first | after if self._may_be_empty(item) else first
            case Alt(items):
                for item in items:
                    self._visit(item, after)
            case Repeat(item, _, high):
                again = high is None or high > 1
                self._visit(item, after | self._first(item) if again else after)


class _Writer:
    """Writes Lark. Groups get names, because llguidance nests few of them."""

    def __init__(self, rules: Mapping[str, Part], regular: Mapping[str, Node]) -> None:
        """`rules` are what is written, `regular` holds the rules of lexemes."""
        self._rules = rules
        self._regular = regular
        self._lines: list[str] = []
        self._names: dict[tuple[str, Part], str] = {}
        self._pending: list[tuple[str, str, Part]] = []

    def write(self, start: Part) -> str:
        self._lines.append(f"start: {self._atom('r', start)}")
        while self._pending:
            kind, name, part = self._pending.pop()
            if isinstance(part, Ref):
                part = (self._regular if kind == "T" else self._rules)[part.name]
            self._lines.append(f"{name}: {self._body(kind, part)}")
        return _HEADER + "\n".join(self._lines) + "\n"

    def _name(self, kind: str, part: Part) -> str:
        """A name for a part: `T` for one of a lexeme, `r` for a rule."""
        key = (kind, part)
        if key not in self._names:
            self._names[key] = f"{kind}{len(self._names)}"
            self._pending.append((kind, self._names[key], part))
        return self._names[key]

    def _body(self, kind: str, part: Part) -> str:
        if isinstance(part, Alt):
            return "\n  | ".join(self._run(kind, item) for item in part.items)
        return self._run(kind, part)

    def _run(self, kind: str, part: Part) -> str:
        """A sequence, or what can stand for one."""
        if not isinstance(part, Seq):
            return self._atom(kind, part)
        atoms: list[str] = []
        for plain, items in groupby(part.items, lambda i: isinstance(i, Chars)):
            if plain and kind == "T":
                chars = [item for item in items if isinstance(item, Chars)]
                if all(item.spans for item in chars):
                    atoms.append(f"/{''.join(_pattern(c) for c in chars)}/")
                    continue
                atoms.append(_NOTHING)
            else:
                atoms += [self._atom(kind, item) for item in items]
        return " ".join(atoms) or '""'

    def _atom(self, kind: str, part: Part) -> str:
        match part:
            case Chars(spans):
                return f"/{_pattern(part)}/" if spans else _NOTHING
            case Lexeme(node):
                return self._lexeme(node)
            case Repeat(item, low, high):
                if high == 0:
                    return '""'
                inner = self._atom(kind, item)
                if isinstance(item, Repeat | Lexeme):
                    inner = self._name(kind, item)
                return inner + _times(low, high)
        return self._name(kind, part)

    def _lexeme(self, node: Node) -> str:
        """A lexeme is never empty: where nothing will do, it is left out."""
        whole = self._name("T", node)
        if not _may_be_nothing(node, self._regular):
            return whole
        key = ("N", node)
        if key not in self._names:
            self._names[key] = f"T{len(self._names)}"
            self._lines.append(f"{self._names[key]}: {whole} & /(?s:.+)/")
        return f"{self._names[key]}?"


def _may_be_nothing(node: Node, rules: Mapping[str, Node]) -> bool:
    """Whether a regular node may be no text."""
    match node:
        case Chars():
            return False
        case Ref(name):
            return _may_be_nothing(rules[name], rules)
        case Repeat(item, low):
            return low == 0 or _may_be_nothing(item, rules)
        case Alt(items):
            return any(_may_be_nothing(item, rules) for item in items)
    return all(_may_be_nothing(item, rules) for item in children(node))


def _times(low: int, high: int | None) -> str:
    if (low, high) == (0, 1):
        return "?"
    if high is None and low <= 1:
        return "+" if low else "*"
    return f"{{{low},{'' if high is None else high}}}"


def _pattern(chars: Chars) -> str:
    """A regular expression for one character."""
    ends = [
        f"\\x{{{low:x}}}" if low == high else f"\\x{{{low:x}}}-\\x{{{high:x}}}"
        for low, high in chars.spans
    ]
    alone = len(ends) == 1 and "-" not in ends[0]
    return ends[0] if alone else f"[{''.join(ends)}]"
