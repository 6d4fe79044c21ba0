"""What begins and what goes on with a regular expression, for cutting grammars.

Positions of characters stand for states, as Glushkov has it; sets of them for what a
text may have reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mlxceld.engine.gbnf import Alt, Chars, Node, Ref, Repeat, Seq, Spans

MOST_WORK = 1_000_000
"""Steps from one position to another that are looked at."""

_UNROLLED = 8
"""Repetitions up to this number are counted, more are taken for any number."""

_LEADS = ((0x80, 0, 0), (0x800, 6, 0xC0), (0x10000, 12, 0xE0), (0x110000, 18, 0xF0))
"""End of the code points whose UTF-8 begins with `base + (code >> shift)`."""


class TooLarge(Exception):
    """More than it is worth to look at."""


@dataclass(frozen=True, slots=True)
class Word:
    """Bytes as sets of 256 bits."""

    may_be_empty: bool
    first: int
    """Bytes with which a text begins."""
    goes_on: int
    """Bytes that may follow a whole text and still lead to a longer one."""


@dataclass(frozen=True, slots=True)
class _Piece:
    may_be_empty: bool
    first: frozenset[int]
    last: frozenset[int]


_NONE: frozenset[int] = frozenset()
_EMPTY = _Piece(True, _NONE, _NONE)


def analyse(node: Node, rules: Mapping[str, Node]) -> Word:
    """Look at a regular node. Raises TooLarge.

    Both sets of bytes may be larger than they have to be, never smaller.
    """
    positions = _Positions(rules)
    try:
        piece = positions.add(node)
    except RecursionError:
        raise TooLarge from None
    spans, follow = positions.spans, positions.follow
    goes_on = 0
    waiting = [piece.first]
    seen: set[frozenset[int]] = set()
    while waiting:
        choices = waiting.pop()
        for reached in _reached(choices, spans):
            positions.work(len(reached))
            if reached in seen:
                continue
            seen.add(reached)
            after = _NONE.union(*(follow[p] for p in reached))
            positions.work(sum(len(follow[p]) for p in reached))
            if not reached.isdisjoint(piece.last):
                goes_on |= _lead_bytes(spans[p] for p in after)
            waiting.append(after)
    first = _lead_bytes(spans[p] for p in piece.first)
    return Word(piece.may_be_empty, first, goes_on)


class _Positions:
    """Numbers the characters of a node and finds which may follow which."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self.spans: list[Spans] = []
        self.follow: list[set[int]] = []
        self._worked = 0

    def work(self, amount: int) -> None:
        """Account for work. Raises TooLarge when it was enough."""
        self._worked += amount
        if self._worked > MOST_WORK:
            raise TooLarge

    def add(self, node: Node) -> _Piece:
        match node:
            case Chars(spans):
                self.work(1)
                self.spans.append(spans)
                self.follow.append(set())
                here = frozenset({len(self.spans) - 1})
                return _Piece(False, here, here)
            case Ref(name):
                return self.add(self._rules[name])
            case Seq(items):
                whole = _EMPTY
                for item in items:
                    whole = self._join(whole, self.add(item))
                return whole
            case Alt(items):
                pieces = [self.add(item) for item in items]
                return _Piece(
                    any(piece.may_be_empty for piece in pieces),
                    _NONE.union(*(piece.first for piece in pieces)),
                    _NONE.union(*(piece.last for piece in pieces)),
                )
            case Repeat(item, low, high):
                return self._repeat(item, low, high)
        raise AssertionError(node)

    def _join(self, left: _Piece, right: _Piece) -> _Piece:
        self.work(len(left.last) * len(right.first))
        for position in left.last:
            self.follow[position] |= right.first
        return _Piece(
            left.may_be_empty and right.may_be_empty,
            left.first | right.first if left.may_be_empty else left.first,
            left.last | right.last if right.may_be_empty else right.last,
        )

    def _repeat(self, item: Node, low: int, high: int | None) -> _Piece:
        if high is not None and high <= _UNROLLED:
            whole = _EMPTY
            for index in range(high):
                piece = self.add(item)
                if index >= low:
                    piece = _Piece(True, piece.first, piece.last)
                whole = self._join(whole, piece)
            return whole
        piece = self.add(item)
        self._join(piece, piece)
        return _Piece(low == 0 or piece.may_be_empty, piece.first, piece.last)


def _reached(choices: frozenset[int], spans: list[Spans]) -> Iterable[frozenset[int]]:
    """The sets of positions that one more character can lead to."""
    alike: dict[Spans, set[int]] = {}
    for position in choices:
        alike.setdefault(spans[position], set()).add(position)
    edges: list[tuple[int, bool, Spans]] = []
    for group in alike:
        for low, high in group:
            edges += [(low, True, group), (high + 1, False, group)]
    edges.sort(key=lambda edge: edge[0])
    active: dict[Spans, None] = {}
    found: dict[frozenset[int], None] = {}
    for index, (at, opens, group) in enumerate(edges):
        if opens:
            active[group] = None
        else:
            active.pop(group, None)
        if active and (index + 1 == len(edges) or edges[index + 1][0] > at):
            found[_NONE.union(*(alike[group] for group in active))] = None
    return found


def _lead_bytes(sets: Iterable[Spans]) -> int:
    """First bytes of the UTF-8 of the characters of several sets."""
    found = 0
    for spans in set(sets):
        for low, high in spans:
            start = 0
            for end, shift, base in _LEADS:
                if low < end and high >= start:
                    first = base + (max(low, start) >> shift)
                    last = base + (min(high, end - 1) >> shift)
                    found |= (1 << last + 1) - (1 << first)
                start = end
    return found
