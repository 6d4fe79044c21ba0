"""Spans never overlap, never leave the pool, and keep what they hold when they move."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.engine.spans import Move, Spans


class Cells:
    """A pool on paper: each token is written with its name, moves are carried out."""

    def __init__(self, slots: int, pool: int) -> None:
        self.spans = Spans(slots, pool, pool, shared=True)
        self.cells: list[tuple[int, int] | None] = [None] * pool
        self.held = [0] * slots
        self.coming = [0] * slots
        self.moves: list[Move] = []

    def hold(self, slot: int, n: int) -> bool:
        """Let a slot hold `n` tokens; False when there is no room."""
        claims = [h + c for h, c in zip(self.held, self.coming, strict=True)]
        before = self.map()
        moves = self.spans.reserve(slot, n, self.held, claims)
        others = sum(claims) - claims[slot]
        if moves is None:
            assert others + n > self.spans.pool
            assert self.map() == before
            return False
        self.moves = moves
        for move in moves:
            assert self.held[move.slot] == move.n
            tokens = self.cells[move.source : move.source + move.n]
            self.cells[move.target : move.target + move.n] = tokens
        # Moved before: what the slot held is still there when it writes the rest.
        self.check()
        for place in range(self.held[slot], n):
            self.cells[self.spans.start(slot) + place] = (slot, place)
        self.held[slot] = max(n, self.held[slot])
        self.check()
        return True

    def release(self, slot: int) -> None:
        self.spans.release(slot)
        self.held[slot] = self.coming[slot] = 0
        self.check()

    def map(self) -> list[tuple[int, int]]:
        slots = range(len(self.held))
        return [(self.spans.start(s), self.spans.capacity(s)) for s in slots]

    def check(self) -> None:
        """Every promise that a map makes."""
        end = 0
        for start, capacity in sorted(span for span in self.map() if span[1]):
            assert start >= end
            end = start + capacity
        assert end <= self.spans.pool
        for slot, (start, capacity) in enumerate(self.map()):
            n = self.held[slot]
            assert n <= capacity
            assert self.cells[start : start + n] == [(slot, p) for p in range(n)]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["grow", "grow", "grow", "release", "trim", "coming"]),
        st.integers(1, 120),
    ),
    max_size=60,
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(slots=st.integers(1, 5), pool=st.sampled_from([30, 100, 700, 1500]), steps=STEPS)
def test_whatever_comes_and_goes_no_token_is_lost(
    slots: int, pool: int, steps: list[tuple[int, str, int]]
) -> None:
    cells = Cells(slots, pool)
    for slot, what, n in steps:
        slot %= slots
        if what == "grow":
            cells.hold(slot, cells.held[slot] + n * pool // 300 + 1)
        elif what == "release":
            cells.release(slot)
        elif what == "trim":
            cells.held[slot] = min(cells.held[slot], n)
        elif sum(cells.held) + sum(cells.coming) < pool:
            cells.coming[slot] = 1


@settings(derandomize=True, deadline=None, max_examples=60)
@given(pool=st.integers(8, 400), steps=STEPS)
def test_one_token_at_a_time_fills_the_pool_to_the_last_cell(
    pool: int, steps: list[tuple[int, str, int]]
) -> None:
    cells = Cells(5, pool)
    for slot, _, n in steps:
        cells.hold(slot, min(cells.held[slot] + n, pool // 2))
    while sum(cells.held) < pool:
        smallest = min(range(5), key=lambda slot: cells.held[slot])
        assert cells.hold(smallest, cells.held[smallest] + 1)
    assert not cells.hold(0, cells.held[0] + 1)


def test_a_span_grows_into_the_free_cells_beside_it() -> None:
    cells = Cells(2, 1000)
    for n in range(1, 1001):
        assert cells.hold(0, n)
        assert cells.moves == []
    assert cells.map()[0] == (0, 1000)


def test_a_growing_span_takes_more_than_it_needs() -> None:
    """So that a neighbour that comes later does not make it move at once."""
    cells = Cells(2, 1000)
    cells.hold(0, 10)
    cells.hold(1, 10)
    assert cells.map() == [(0, 266), (266, 266)]


def test_a_span_that_meets_its_neighbour_moves_to_the_largest_gap() -> None:
    cells = Cells(2, 1000)
    cells.hold(0, 10)
    cells.hold(1, 10)
    assert cells.hold(0, 267)
    assert cells.moves == [Move(0, source=0, target=532, n=10)]
    assert cells.map() == [(532, 468), (266, 266)]


def test_scattered_free_cells_are_packed_together() -> None:
    cells = Cells(4, 1000)
    for slot in (0, 1, 2):
        cells.hold(slot, 300)
    # 100 free cells for three spans: 33 of slack each.
    assert cells.map()[:3] == [(0, 333), (666, 333), (333, 333)]
    cells.release(1)
    assert cells.hold(3, 350)
    # The gap of 334 is too small. 300 + 350 + 300 leave 16 of slack each.
    assert cells.map() == [(0, 316), (666, 0), (682, 316), (316, 366)]
    assert cells.moves == [Move(2, source=333, target=682, n=300)]


def test_no_room_changes_nothing() -> None:
    cells = Cells(2, 100)
    cells.hold(0, 60)
    before = cells.map()
    assert not cells.hold(1, 41)
    assert cells.map() == before
    assert cells.hold(1, 40)


def test_a_token_on_its_way_keeps_its_cell() -> None:
    cells = Cells(2, 100)
    cells.hold(0, 60)
    cells.coming[0] = 1
    assert not cells.hold(1, 40)
    assert cells.hold(1, 39)
    assert cells.spans.capacity(0) >= 61


def test_a_slot_that_shrank_gives_its_cells_to_others() -> None:
    cells = Cells(2, 100)
    cells.hold(0, 100)
    cells.held[0] = 20
    assert cells.hold(1, 80)
    assert cells.hold(0, 20)


def test_a_released_span_is_free_at_once() -> None:
    cells = Cells(2, 100)
    cells.hold(0, 100)
    cells.release(0)
    assert cells.hold(1, 100)


def test_fixed_partitions_never_move() -> None:
    spans = Spans(3, 682, 2048, shared=False)

    def where() -> list[tuple[int, int]]:
        return [(spans.start(slot), spans.capacity(slot)) for slot in range(3)]

    fixed = [(0, 682), (682, 682), (1364, 682)]
    assert where() == fixed
    assert spans.reserve(1, 682, [0, 0, 0], [0, 0, 0]) == []
    assert spans.reserve(1, 683, [0, 682, 0], [0, 682, 0]) is None
    spans.release(1)
    assert spans.reserve(2, 5, [682, 0, 0], [682, 0, 0]) == []
    assert where() == fixed


def test_a_span_is_not_used_beyond_its_end() -> None:
    shared = Spans(2, 64, 64, shared=True)
    shared.reserve(0, 40, [0, 0], [0, 0])
    shared.reserve(1, 10, [40, 0], [40, 0])
    assert shared.start(1, shared.capacity(1)) == 64 - shared.capacity(1)
    with pytest.raises(RuntimeError, match="slot 1 has no room for 25 cells"):
        shared.start(1, 25)
    split = Spans(2, 32, 64, shared=False)
    assert split.start(1, 32) == 32
    with pytest.raises(RuntimeError, match="slot 0 has no room for 33 cells"):
        split.start(0, 33)
