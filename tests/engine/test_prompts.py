"""Which prompts make up a batch: worked out by hand, and bounds for any."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.engine import prompts


@pytest.mark.parametrize(
    ("rests", "takes"),
    [
        ([100], [100]),
        ([600], [512]),
        # Alike: all of them, as long as they fit in.
        ([64] * 4, [64] * 4),
        ([200] * 3, [200, 200, 0]),
        # 70 of 76 tokens are real.
        ([16, 17, 18, 19], [16, 17, 18, 19]),
        ([19, 18, 17, 16], [19, 18, 17, 16]),
        # Nothing fits beside more than half a chunk.
        ([300, 20], [300, 0]),
        # The beginning of a long one, as long as the oldest.
        ([100, 600], [100, 100]),
        # Longer rows read more: 440 of 510 tokens, a seventh is filling.
        ([100, 600, 600], [100, 170, 170]),
        # 100 beside 10 would be half filling: only as much as fills nothing.
        ([10, 100], [10, 10]),
        # The short one has to wait, the next is as long as the oldest.
        ([100, 10, 100], [100, 0, 100]),
        # Less than half a row is left out, half a row is not.
        ([100, 49, 100, 100], [100, 0, 100, 100]),
        ([100, 50, 100, 100], [100, 50, 100, 100]),
        # An older whole one before the beginning of a longer one.
        ([160, 160, 150, 600], [160, 160, 150, 0]),
    ],
)
def test_a_chunk_of_512_is_shared_by_what_fits(
    rests: list[int], takes: list[int]
) -> None:
    assert prompts.fill(rests, 512) == takes


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    rests=st.lists(st.integers(1, 700), min_size=1, max_size=16),
    most=st.integers(1, 1024),
)
def test_a_batch_keeps_to_its_size_and_is_a_quarter_filling_at_most(
    rests: list[int], most: int
) -> None:
    takes = prompts.fill(rests, most)
    rows = [take for take in takes if take]
    assert takes[0] == min(rests[0], most)
    assert all(take <= rest for take, rest in zip(takes, rests, strict=True))
    size = len(rows) * max(rows)
    assert size <= most
    assert 4 * (size - sum(rows)) <= size


@pytest.mark.parametrize(
    ("common", "held", "waits"),
    [(33, 0, True), (32, 0, False), (100, 67, True), (100, 68, False)],
)
def test_a_prompt_waits_for_one_that_has_more_than_32_unread_tokens_in_common(
    common: int, held: int, waits: bool
) -> None:
    older = [*range(common), *[500] * 50]
    assert prompts.shares([*range(common), *[600] * 50], held, older) == waits


def test_a_prompt_waits_for_none_that_is_too_short_to_be_worth_it() -> None:
    same = list(range(32))
    assert not prompts.shares(same, 0, same)
    assert not prompts.shares([*same, 1], 0, same)
    assert prompts.shares([*same, 1], 0, [*same, 1])


@pytest.mark.parametrize(
    ("rests", "takes"),
    [
        # Alone each would be filled up to 128: two rows of 32 are less than that.
        ([20, 31], [20, 31]),
        ([3, 3, 3, 3], [3, 3, 3, 3]),
        # 2, 4, 8 or 16 rows, and no beginnings.
        ([20, 31, 30], [20, 31, 0]),
        ([100, 600, 100], [100, 0, 100]),
        # Rows of 256 tokens: as many as both take alone.
        ([200, 220, 90], [200, 220, 0]),
        # Rows of 256 for 129 tokens, and 256 alone too.
        ([129, 250], [129, 250]),
        # Rows of 256 for 10: two of them are twice what both take alone.
        ([10, 10], [10, 10]),
        ([256], [256]),
    ],
)
def test_with_a_grain_batches_have_few_shapes(
    rests: list[int], takes: list[int]
) -> None:
    assert prompts.fill(rests, 512, 128) == takes


@pytest.mark.parametrize(
    ("lengths", "grain", "wide"),
    [([3, 20], 1, 20), ([3, 20], 128, 32), ([33], 128, 64), ([64, 97], 16, 128)],
)
def test_rows_are_as_wide_as_the_longest_or_a_power_of_2(
    lengths: list[int], grain: int, wide: int
) -> None:
    assert prompts.width(lengths, grain) == wide


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    rests=st.lists(st.integers(1, 700), min_size=1, max_size=16),
    most=st.integers(64, 1024),
)
def test_a_batch_with_a_grain_costs_little_more_than_its_prompts_alone(
    rests: list[int], most: int
) -> None:
    takes = prompts.fill(rests, most, 128)
    rows = [take for take in takes if take]
    if len(rows) == 1:
        assert takes[0] == min(rests[0], most)
        return
    assert takes[0] == rests[0]
    assert len(rows) in (2, 4, 8, 16)
    assert all(take in (0, rest) for take, rest in zip(takes, rests, strict=True))
    size = len(rows) * prompts.width(rows, 128)
    assert size <= most
    assert 3 * size <= 4 * sum(-(-take // 128) * 128 for take in rows)
