"""Cuts a GBNF grammar into lexemes for llguidance, without changing what it means.

llguidance reads text in lexemes and takes each as long as it can be. That is fast,
and wrong for a grammar in which a shorter one was meant: `[a-z]* "b"` would never find
its `b`. So a grammar is cut here in the first of three ways that is exact:

1. A grammar that never comes back to one of its rules is one regular expression, and
   becomes one lexeme.
2. The regular parts of the others become lexemes where their borders are certain: the
   first byte tells which lexeme begins, and no byte that could go on with a lexeme
   could also begin what follows it. Several ways to choose the parts are tried.
3. Else each character is a lexeme of its own, which is always right, and slower.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress, groupby
from typing import TypeAlias

from mlxceld.engine.automata import TooLarge, Word, analyse
from mlxceld.engine.gbnf import Alt, Chars, GrammarError, Node, Ref, Repeat, Seq

MOST_EXPANDED = 1 << 18
"""Parts of a lexeme with the rules in it written out, repetitions aside."""

MOST_DEPTH = 1000
"""Rules and groups within each other in a lexeme."""

MOST_RULES = 500
MOST_CONTEXTS = 2000
"""Rules, and sets of places, of a grammar that gets lexemes of many characters."""

HEADER = '%llguidance {"no_forcing": true}\n'
"""Without it, text that the grammar leaves no choice about is computed far ahead, in
time that grows with its length, and must be cut into tokens in one way only."""

_NOTHING = r"/[^\x{0}-\x{10ffff}]/"


@dataclass(frozen=True, slots=True, eq=False)
class Lexeme:
    """A regular part of a rule, at one place in it."""

    node: Node
    word: int
    """The same for all places where the part is the same."""


Part: TypeAlias = Node | Lexeme
"""Of a rule that was cut: no characters, and references to rules that were cut."""


def to_lark(rules: Mapping[str, Node]) -> str:
    """llguidance's grammar for the rules of `gbnf.parse`.

    Raises GrammarError for one whose lexemes would be too large.
    """
    regular = _regular(rules)
    if "root" in regular:
        return _Writer(rules, rules, regular).write(Lexeme(Ref("root"), 0))
    for joins, merges in ((True, True), (False, False), (False, True), (True, False)):
        cutter = _Cutter(regular, joins=joins, merges=merges)
        cut = {name: cutter.cut(rules[name]) for name in rules if name not in regular}
        try:
            if _certain(cut, [analyse(word, rules) for word in cutter.words]):
                return _Writer(cut, rules, regular).write(Ref("root"))
        except TooLarge:
            continue
    return _Writer(rules, rules, regular).write(Ref("root"))


def children(node: Part) -> tuple[Node, ...]:
    match node:
        case Seq(items) | Alt(items):
            return items
        case Repeat(item):
            return (item,)
    return ()


@dataclass(frozen=True, slots=True)
class _Facts:
    """Of a regular node, with the rules in it written out."""

    size: int
    depth: int
    may_be_empty: bool


def _regular(rules: Mapping[str, Node]) -> dict[str, _Facts]:
    """Rules that never come back to a rule, those they refer to included."""
    missing = {name: set(_refs(node)) for name, node in rules.items()}
    users: dict[str, list[str]] = {}
    for name, wanted in missing.items():
        for other in wanted:
            users.setdefault(other, []).append(name)
    ready = [name for name, wanted in missing.items() if not wanted]
    found: dict[str, _Facts] = {}
    while ready:
        name = ready.pop()
        facts = found[name] = _look(rules[name], found)
        if facts.size > MOST_EXPANDED or facts.depth > MOST_DEPTH:
            raise GrammarError(f"rule `{name}`: too large with its rules written out")
        for user in users.get(name, ()):
            missing[user].discard(name)
            if not missing[user]:
                ready.append(user)
    return found


def _refs(node: Node) -> Iterable[str]:
    if isinstance(node, Ref):
        yield node.name
    for child in children(node):
        yield from _refs(child)


def _look(node: Node, known: Mapping[str, _Facts]) -> _Facts:
    """The facts of a node from those of the rules in it."""
    if isinstance(node, Ref):
        facts = known[node.name]
        return _Facts(facts.size, facts.depth + 1, facts.may_be_empty)
    inner = [_look(child, known) for child in children(node)]
    empty = [facts.may_be_empty for facts in inner]
    match node:
        case Chars():
            may_be_empty = False
        case Alt():
            may_be_empty = any(empty)
        case Repeat(_, low):
            may_be_empty = low == 0 or all(empty)
        case _:
            may_be_empty = all(empty)
    return _Facts(
        sum((facts.size for facts in inner), start=1),
        max((facts.depth for facts in inner), default=0) + 1,
        may_be_empty,
    )


class _Cutter:
    """Makes regular parts of rules lexemes."""

    def __init__(self, regular: Container[str], *, joins: bool, merges: bool) -> None:
        """`joins`: what follows each other is one; `merges`: so are alternatives."""
        self._regular = regular
        self._joins = joins
        self._merges = merges
        self._known: dict[Node, int] = {}

    @property
    def words(self) -> list[Node]:
        """The different lexemes by their number."""
        return list(self._known)

    def cut(self, node: Node) -> Part:
        match node:
            case Seq():
                parts: list[Part] = []
                for kind, items in groupby(_flat(node), self._kind):
                    if kind == "char" or (kind == "word" and self._joins):
                        parts.append(self._lexeme(Seq(tuple(items))))
                    else:
                        parts += [self.cut(item) for item in items]
                return Seq(tuple(parts))  # type: ignore[arg-type]
            case Alt(items):
                merged = [self._merges and bool(self._kind(item)) for item in items]
                choices = [
                    self.cut(item)
                    for item, one in zip(items, merged, strict=True)
                    if not one
                ]
                if any(merged):
                    plain = Alt(tuple(compress(items, merged)))
                    choices.append(self._lexeme(plain))
                return Alt(tuple(choices))  # type: ignore[arg-type]
        if self._kind(node):
            return self._lexeme(node)
        if isinstance(node, Repeat):
            inner = self.cut(node.item)
            return Repeat(inner, node.low, node.high)  # type: ignore[arg-type]
        return node

    def _kind(self, node: Node) -> str:
        """`word` for a regular part, `char` for a character that is joined to none
        but characters, nothing for what is not regular."""
        if isinstance(node, Chars) and not self._joins:
            return "char"
        return "word" if all(name in self._regular for name in _refs(node)) else ""

    def _lexeme(self, node: Node) -> Lexeme:
        return Lexeme(node, self._known.setdefault(node, len(self._known)))


def _flat(node: Seq) -> Iterable[Node]:
    for item in node.items:
        if isinstance(item, Seq):
            yield from _flat(item)
        else:
            yield item


def _certain(cut: Mapping[str, Part], words: list[Word]) -> bool:
    """Whether the borders of all lexemes are certain. Raises TooLarge.

    Goes through all sets of places where the next lexeme may be, from the start.
    """
    if len(cut) > MOST_RULES:
        raise TooLarge
    flow = _Flow(cut, words)
    waiting = [frozenset(flow.first["root"])]
    seen = set(waiting)
    while waiting:
        places: dict[int, set[Lexeme]] = {}
        for place in waiting.pop():
            places.setdefault(place.word, set()).update(flow.after.get(place, ()))
        begun = 0
        for word, following in places.items():
            if begun & words[word].first:
                return False
            begun |= words[word].first
            if any(words[word].goes_on & words[p.word].first for p in following):
                return False
            context = frozenset(following)
            if context not in seen:
                if len(seen) == MOST_CONTEXTS:
                    raise TooLarge
                seen.add(context)
                waiting.append(context)
    return True


class _Flow:
    """Which places may come first in a rule, and which after each place."""

    def __init__(self, cut: Mapping[str, Part], words: list[Word]) -> None:
        self._words = words
        self._empty: set[str] = set()
        """Rules that may be no text."""
        self.first: dict[str, set[Lexeme]] = {name: set() for name in cut}
        self.after: dict[Lexeme, set[Lexeme]] = {}
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
                return self._words[part.word].may_be_empty
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
                self.after.setdefault(part, set()).update(after)
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

    def __init__(
        self,
        rules: Mapping[str, Part],
        regular: Mapping[str, Node],
        facts: Mapping[str, _Facts],
    ) -> None:
        """`rules` are what is written, `regular` holds the rules of lexemes."""
        self._rules = rules
        self._regular = regular
        self._facts = facts
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
        return HEADER + "\n".join(self._lines) + "\n"

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
        if not _look(node, self._facts).may_be_empty:
            return whole
        key = ("N", node)
        if key not in self._names:
            self._names[key] = f"T{len(self._names)}"
            self._lines.append(f"{self._names[key]}: {whole} & /(?s:.+)/")
        return f"{self._names[key]}?"


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
