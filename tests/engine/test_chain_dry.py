"""DRY: which tokens go on with a repetition, and what that costs them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.chains import Told, only, run

# isort: split
from mlxceld.engine import chain


def naive_repeats(text: Sequence[int], limit: int, allowed: int) -> dict[int, int]:
    """For every place of the text but the first: what ended right before it."""
    found: dict[int, int] = {}
    for place in range(1, len(text)):
        before = text[:place]
        n = 0
        while n < len(before) and before[-1 - n] == text[-1 - n]:
            n += 1
        n = min(n, limit)
        if limit >= allowed and n >= allowed:
            found[text[place]] = max(found.get(text[place], 0), n)
    return found


@pytest.mark.parametrize(
    ("text", "allowed", "found"),
    [
        # The end `1 2` came before, and 3 followed it.
        ([1, 2, 3, 1, 2], 2, {3: 2}),
        ([1, 2, 3, 1, 2], 3, {}),
        # `1 2` was followed by 3, and later by 4; 2 alone by 5.
        ([1, 2, 3, 1, 2, 4, 7, 2, 5, 1, 2], 2, {3: 2, 4: 2}),
        ([1, 2, 3, 1, 2, 4, 7, 2, 5, 1, 2], 1, {3: 2, 4: 2, 5: 1}),
        # Three of a kind are twice a pair.
        ([8, 8, 8], 2, {8: 2}),
        ([1, 2, 3], 1, {}),
        ([6], 0, {}),
        ([], 0, {}),
        # Nothing repeats, and a length of nothing is enough for all but the first.
        ([1, 2, 3], 0, {2: 0, 3: 0}),
    ],
)
def test_tokens_that_would_go_on_with_a_repetition(
    text: list[int], allowed: int, found: dict[int, int]
) -> None:
    assert chain.repeats(text, len(text), allowed) == found


@settings(max_examples=200, deadline=None)
@given(
    text=st.lists(st.integers(0, 2), max_size=24),
    limit=st.integers(0, 24),
    allowed=st.integers(0, 4),
)
def test_repeats_agree_with_a_search_of_every_place(
    text: list[int], limit: int, allowed: int
) -> None:
    assert chain.repeats(text, limit, allowed) == naive_repeats(text, limit, allowed)


def test_no_repetition_is_longer_than_the_text_since_the_last_breaker() -> None:
    text = [1, 2, 3, 4, 1, 2, 3]
    assert chain.repeats(text, 7, 1) == {4: 3}
    assert chain.repeats(text, 2, 1) == {4: 2}
    assert chain.repeats(text, 1, 2) == {}


@pytest.mark.parametrize(
    ("pieces", "breakers", "n"),
    [
        (["a", "b", "c"], ["\n"], 3),
        (["a", "\n", "c", "d"], ["\n"], 2),
        (["a", "b\n"], ["\n"], 0),
        # A breaker inside a token: that token is not after it.
        (["a", "x:y", "c"], [":"], 1),
        # Across two tokens, and across three.
        (["a", "--", "-b", "c"], ["---"], 1),
        (["a", "<", "b", ">", "c", "d"], ["<b>"], 2),
        # The last of several.
        (["\n", "a", ":", "b"], ["\n", ":"], 1),
        (["a", ":"], ["", ":"], 0),
        (["a", "b"], [], 2),
        (["가", "나", "다"], ["나"], 1),
    ],
)
def test_how_many_tokens_come_after_the_last_breaker(
    pieces: list[str], breakers: list[str], n: int
) -> None:
    assert chain.reach([piece.encode() for piece in pieces], breakers) == n


def test_the_fine_grows_with_the_length_of_the_repetition() -> None:
    """0.5 x 2^(n - 2): 0.5, 1 and 4 for lengths 2, 3 and 5."""
    s = only("dry", dry_multiplier=0.5, dry_base=2.0, dry_allowed_length=2)
    _, shares, _ = run([0.0] * 4, s, Told(repeats={0: 2, 1: 3, 2: 5}))
    weights = [math.exp(-0.5), math.exp(-1), math.exp(-4), 1.0]
    for token, weight in enumerate(weights):
        assert shares[token] == pytest.approx(weight / sum(weights), rel=1e-4)


@pytest.mark.parametrize("base", [1.0, 1.0000001, 1.75, 1e30])
def test_a_fine_without_bounds_only_forbids_its_token(base: float) -> None:
    s = only("dry", dry_multiplier=1000.0, dry_base=base, dry_allowed_length=0)
    token, shares, _ = run([5.0, 0.0, 1.0], s, Told(repeats={0: 100_000}))
    assert set(shares) == {1, 2}
    assert token == 2
