"""Prompts kept in RAM: the bound holds, the least recently used goes, hits are real."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from mlxceld.engine.store import Entry, Store


@dataclass(frozen=True)
class Size:
    """An exported text of which only the size matters."""

    n: int
    nbytes: int


def entry(tokens: list[int], nbytes: int = 0, *, whole: bool = False) -> Entry:
    return Entry(tokens, Size(len(tokens), nbytes or len(tokens)), whole)


def text(first: int, n: int = 40) -> list[int]:
    """A text that shares nothing with one of another first token."""
    return [first * 1000 + i for i in range(n)]


def kept(store: Store, *texts: list[int]) -> list[bool]:
    """Whether each text is there; asking makes none more recently used."""
    return [not store.worth(one, whole=False) for one in texts]


def test_the_least_recently_used_goes_first() -> None:
    store = Store(100)
    assert store.put(entry(text(1)))
    assert store.put(entry(text(2)))
    assert store.best([*text(1), 7], 0) is not None
    assert store.put(entry(text(3)))
    assert kept(store, text(1), text(2), text(3)) == [True, False, True]
    assert store.nbytes == 80


def test_a_text_above_the_bound_is_not_kept_and_costs_the_others_nothing() -> None:
    store = Store(100)
    store.put(entry(text(1)))
    assert not store.put(entry(text(2, 101)))
    assert not store.make_room(text(3), whole=False, nbytes=101)
    assert kept(store, text(1)) == [True]


def test_room_is_made_before_anything_is_exported() -> None:
    store = Store(100)
    store.put(entry(text(1)))
    store.put(entry(text(2)))
    assert store.make_room(text(3), whole=False, nbytes=50)
    assert store.nbytes == 40
    assert kept(store, text(1), text(2)) == [False, True]


def test_a_bound_of_nothing_keeps_nothing() -> None:
    assert not Store(0).put(entry(text(1)))


def test_a_short_text_is_not_kept() -> None:
    store = Store(1000)
    assert not store.put(entry(text(1, 31)))
    assert store.put(entry(text(1, 32)))


def test_a_text_within_a_longer_one_is_not_kept_twice() -> None:
    store = Store(1000)
    store.put(entry(text(1, 50)))
    assert not store.put(entry(text(1, 40)))
    assert not store.put(entry(text(1, 50)))
    assert store.put(entry(text(1, 60)))
    assert (len(store), store.nbytes) == (1, 60)


def test_what_can_only_be_used_whole_stays_beside_what_goes_on_from_it() -> None:
    store = Store(1000)
    store.put(entry(text(1, 40), whole=True))
    assert store.put(entry(text(1, 60), whole=True))
    assert not store.put(entry(text(1, 60), whole=True))
    assert len(store) == 2


def test_the_entry_that_spares_most_is_found_and_the_last_token_is_always_read() -> (
    None
):
    store = Store(1000)
    store.put(entry([*text(1, 40), *text(2)]))
    store.put(entry([*text(1, 60), *text(3)]))
    found = store.best(text(1, 60), 0)
    assert found is not None
    assert (found[0].tokens[60], found[1]) == (3000, 59)


def test_a_hit_must_beat_the_slot() -> None:
    store = Store(1000)
    store.put(entry(text(1, 50)))
    assert store.best(text(1, 60), 50) is None
    found = store.best(text(1, 60), 49)
    assert found is not None
    assert found[1] == 50


def test_a_hit_must_use_a_quarter_of_the_entry() -> None:
    store = Store(1000)
    store.put(entry(text(1, 160)))
    assert store.best([*text(1, 39), 5, 6], 0) is None
    found = store.best([*text(1, 40), 5, 6], 0)
    assert found is not None
    assert found[1] == 40


def test_state_is_found_only_by_a_prompt_that_goes_on_from_all_of_it() -> None:
    store = Store(1000)
    store.put(entry(text(1, 50), whole=True))
    assert store.best(text(1, 50), 0) is None
    found = store.best(text(1, 51), 0)
    assert found is not None
    assert found[1] == 50


def test_an_entry_in_use_is_not_dropped_for_another() -> None:
    store = Store(100)
    used = entry(text(1))
    store.put(used)
    store.pin(used)
    assert store.put(entry(text(2)))
    assert store.put(entry(text(3)))
    assert kept(store, text(1), text(2), text(3)) == [True, False, True]
    assert not store.put(entry(text(4, 61)))
    store.pin(None)
    assert store.put(entry(text(4, 61)))


ENTRIES = st.tuples(
    st.integers(0, 3), st.integers(30, 60), st.integers(1, 120), st.booleans()
)


@given(st.integers(0, 200), st.lists(ENTRIES, max_size=40))
def test_the_bound_is_never_exceeded_and_the_newest_is_there_if_it_fits(
    limit: int, coming: list[tuple[int, int, int, bool]]
) -> None:
    store = Store(limit)
    for first, n, nbytes, whole in coming:
        one = entry(text(first, n), nbytes, whole=whole)
        worth = store.worth(one.tokens, whole)
        assert store.put(one) == (worth and nbytes <= limit)
        assert store.nbytes <= limit
        store.best(text((first + 1) % 4, n), 0)
        assert store.nbytes <= limit
        if worth and nbytes <= limit:
            assert not store.worth(one.tokens, whole)
