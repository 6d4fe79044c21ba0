"""The sampler chain of one row, as a whole and sampler by sampler."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.engine import real
from tests.engine.chains import (
    NEVER,
    Close,
    Told,
    expected,
    left,
    only,
    pick,
    run,
    softmax,
)

# isort: split
import mlx.core as mx

from mlxceld.engine import chain
from mlxceld.engine.messages import SAMPLERS, Sampling

V = 30

_border = st.integers(0, 96).map(lambda n: n / 97 + 0.0037)
_logits = st.lists(
    st.one_of(st.integers(-24, 24).map(lambda n: n / 4), st.integers(-9999, 9999)),
    min_size=V,
    max_size=V,
).map(lambda values: [v if abs(v) < 100 else v / 1000 for v in values])
_rules = st.builds(
    Sampling,
    samplers=st.permutations(SAMPLERS).flatmap(
        lambda names: st.integers(0, len(names)).map(lambda n: tuple(names[:n]))
    ),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.9]),
    dynatemp_range=st.sampled_from([0.0, 0.0, 0.2, 1.5]),
    dynatemp_exponent=st.sampled_from([1.0, 0.5, 2.0]),
    top_k=st.integers(0, V + 5),
    top_p=st.one_of(st.just(1.0), _border),
    min_p=st.one_of(st.just(0.0), _border.map(lambda p: p * 0.5)),
    typical_p=st.one_of(st.just(1.0), _border),
    top_n_sigma=st.sampled_from([-1.0, 0.0, 0.7, 1.3]),
    xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
    xtc_threshold=st.sampled_from([0.013, 0.11, 0.43, 0.6]),
    dry_multiplier=st.sampled_from([0.0, 0.8]),
    dry_base=st.sampled_from([1.0, 1.75]),
    dry_allowed_length=st.integers(0, 3),
    repeat_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    min_keep=st.sampled_from([0, 0, 1, 4, V + 1]),
)
_told = st.builds(
    Told,
    text=st.lists(st.integers(0, V - 1), max_size=8),
    repeats=st.dictionaries(st.integers(0, V - 1), st.integers(3, 6), max_size=3),
    uniform=st.integers(0, 10**4 - 1).map(lambda n: n / 10**4 + 3.7e-5),
    chance=st.sampled_from([0.1, 0.51, 0.99]),
)


@settings(max_examples=120, deadline=None)
@given(logits=_logits, s=_rules, told=_told)
def test_any_chain_in_any_order_leaves_what_the_reference_leaves(
    logits: list[float], s: Sampling, told: Told
) -> None:
    try:
        wanted = expected(logits, s, told)
        token = pick(wanted, told.uniform)
    except Close:
        assume(False)
    got, shares, mu = run(logits, s, told)
    assert got == token
    assert mu is None
    for (kept, _), share in zip(wanted, softmax(wanted), strict=True):
        assert shares.pop(kept, 0.0) == pytest.approx(share, abs=1e-4)
    assert not shares


def test_the_likeliest_comes_first_and_of_equals_the_smaller_token() -> None:
    found = chain.Candidates.of(mx.array([1.0, 3.0, 1.0, 3.0, 2.0]))
    assert found.tokens.tolist() == [1, 3, 4, 0, 2]


# ---- each sampler by hand ----

SLOPE = [math.log(8), math.log(4), math.log(2), math.log(2), NEVER]
"""Probabilities 1/2, 1/4, 1/8, 1/8 and none."""


def test_without_samplers_the_model_s_own_probabilities_are_drawn_from() -> None:
    _, shares, _ = run(SLOPE, only())
    assert shares == pytest.approx({0: 0.5, 1: 0.25, 2: 0.125, 3: 0.125})


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 0), (0.49, 0), (0.51, 1), (0.76, 2), (0.999, 3)]
)
def test_the_random_number_runs_through_the_candidates(
    uniform: float, token: int
) -> None:
    assert run(SLOPE, only(), Told(uniform=uniform))[0] == token


@pytest.mark.parametrize("uniform", [1 - 2**-53, 1 - 2**-25])
def test_a_number_that_rounds_to_one_draws_no_dropped_token(uniform: float) -> None:
    told = Told(uniform=uniform)
    assert run(SLOPE, only("top_p", top_p=0.4), told)[0] == 0


def test_the_order_of_samplers_matters() -> None:
    """At temperature 1/2 the shares are 64, 16, 4 and 4 of 88: the first is 0.73."""
    rules: dict[str, Any] = {"temperature": 0.5, "top_p": 0.7}
    assert left(SLOPE, only("top_p", "temperature", **rules)) == [0, 1]
    assert left(SLOPE, only("temperature", "top_p", **rules)) == [0]


def test_a_sampler_may_work_twice() -> None:
    """After the first cut 2/3 and 1/3 are left, and 2/3 is enough the second time."""
    assert left(SLOPE, only("top_p", top_p=0.6)) == [0, 1]
    assert left(SLOPE, only("top_p", "top_p", top_p=0.6)) == [0]


def test_top_n_sigma_keeps_what_is_near_the_best_logit() -> None:
    """Mean 1, standard deviation sqrt(10 / 4) = 1.58: the floor is 3 - 1.58 x n."""
    logits = [3.0, 2.0, 0.0, -1.0]
    assert left(logits, only("top_n_sigma", top_n_sigma=0.5)) == [0]
    assert left(logits, only("top_n_sigma", top_n_sigma=1.0)) == [0, 1]
    assert left(logits, only("top_n_sigma", top_n_sigma=2.0)) == [0, 1, 2]


def test_top_n_sigma_leaves_forbidden_tokens_out_of_account() -> None:
    logits = [3.0, 2.0, 0.0, -1.0, NEVER, NEVER]
    assert left(logits, only("top_n_sigma", top_n_sigma=1.0)) == [0, 1]


def test_xtc_drops_all_probable_tokens_but_the_least_of_them() -> None:
    rules = {"xtc_probability": 0.5}
    assert left(SLOPE, only("xtc", xtc_threshold=0.2, **rules)) == [1, 2, 3]
    assert left(SLOPE, only("xtc", xtc_threshold=0.1, **rules)) == [3]
    assert left(SLOPE, only("xtc", xtc_threshold=0.3, **rules)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("probability", "chance", "works"),
    [(0.0, 0.0, False), (0.5, 0.5, True), (0.5, 0.51, False), (1.0, 0.999, True)],
)
def test_xtc_works_as_often_as_its_probability_says(
    probability: float, chance: float, works: bool
) -> None:
    s = only("xtc", xtc_probability=probability, xtc_threshold=0.2)
    assert (0 not in left(SLOPE, s, chance=chance)) is works


def test_xtc_with_a_threshold_above_one_half_does_nothing() -> None:
    s = only("xtc", xtc_probability=1.0, xtc_threshold=0.51)
    assert left([9.0, 0.0], s) == [0, 1]


@pytest.mark.parametrize(
    ("samplers", "fields", "kept"),
    [
        ("top_p", {"top_p": 0.1}, [0, 1, 2]),
        ("min_p", {"min_p": 0.9}, [0, 1, 2]),
        # Nearest to the entropy of 1.75 bits: 1/4, then 1/2, then the first 1/8.
        ("typ_p", {"typical_p": 0.1}, [0, 1, 2]),
        # Dropping the first would leave three of four, dropping two only two.
        ("xtc", {"xtc_probability": 1.0, "xtc_threshold": 0.2}, [1, 2, 3]),
        ("xtc", {"xtc_probability": 1.0, "xtc_threshold": 0.1}, [0, 1, 2, 3]),
        # As in llama-server, where top_k knows no minimum.
        ("top_k", {"top_k": 1}, [0]),
    ],
)
def test_at_least_min_keep_candidates_are_left(
    samplers: str, fields: dict[str, Any], kept: list[int]
) -> None:
    assert left(SLOPE, only(samplers, min_keep=3, **fields)) == kept


def test_dynamic_temperature_is_hot_where_nothing_is_certain() -> None:
    """All equal: full entropy, so the hottest, 1 + 0.5; scaling changes no share.
    Two alike and one a little less: hand-computed in double precision."""
    rules = only("temperature", temperature=1.0, dynatemp_range=0.5)
    _, shares, _ = run([1.0, 1.0, 1.0], rules)
    assert shares == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})
    # p = 3/4, 1/4: entropy 0.5623 of 0.6931, temperature 0.5 + 0.8113 = 1.3113.
    _, shares, _ = run([math.log(3), 0.0], rules)
    assert shares[0] / shares[1] == pytest.approx(3 ** (1 / 1.31128), rel=1e-4)


def test_dynamic_temperature_reaches_down_to_nearly_nothing() -> None:
    rules = only("temperature", temperature=0.5, dynatemp_range=2.0)
    assert left([30.0, 0.0], rules) == [0]


@pytest.mark.parametrize("exponent", [-2.0, 0.0, 50.0])
@pytest.mark.parametrize("temperature", [1e-45, 0.0, 3e38])
def test_no_temperature_brings_a_forbidden_token_back(
    temperature: float, exponent: float
) -> None:
    rules: dict[str, Any] = {"temperature": temperature, "dynatemp_exponent": exponent}
    for range_ in (0.0, 1e-6, 3e38):
        s = only("temperature", dynatemp_range=range_, **rules)
        for uniform in (0.0, 0.5, 1 - 2**-25):
            logits = [NEVER, 90.0, -70.0, NEVER]
            assert run(logits, s, Told(uniform=uniform))[0] in (1, 2)


# ---- greedy ----


def test_temperature_zero_takes_the_likeliest_of_what_is_left() -> None:
    s = Sampling(temperature=0.0, min_keep=1, xtc_probability=1.0, xtc_threshold=0.2)
    token, shares, _ = run(SLOPE, s, Told(uniform=0.999))
    # xtc drops token 0, whatever the temperature.
    assert (token, shares) == (1, {1: 1.0})


def test_temperature_zero_decides_where_it_stands_in_the_order() -> None:
    """Seen twice, token 0 falls below token 1, but only if it is still asked."""
    rules: dict[str, Any] = {"temperature": 0.0, "presence_penalty": 9.0}
    told = Told(text=[0, 0])
    assert run(SLOPE, only("penalties", "temperature", **rules), told)[0] == 1
    assert run(SLOPE, only("temperature", "penalties", **rules), told)[0] == 0


@pytest.mark.parametrize("uniform", [0.0, 0.5, 0.99])
def test_a_range_around_temperature_zero_is_a_temperature(uniform: float) -> None:
    """As in llama-server: from 0 to 1, here at full entropy."""
    s = only("temperature", temperature=0.0, dynatemp_range=1.0)
    assert run([1.0, 1.0], s, Told(uniform=uniform))[0] == int(uniform >= 0.5)


# ---- chance ----


def test_the_second_number_of_a_request_is_its_own() -> None:
    """It decides about xtc, and must not be the one that picks the token."""
    rows = [real.row(Sampling(seed=seed), id_=seed) for seed in range(2)]
    numbers = [[row.request.chance(i) for i in range(200)] for row in rows]
    assert numbers[0] == [rows[0].request.chance(i) for i in range(200)]
    drawn = [*numbers[0], *numbers[1], *(rows[0].request.uniform(i) for i in range(9))]
    assert len(set(drawn)) == len(drawn)
    assert 0.4 < np.mean(numbers) < 0.6
    assert all(0 <= number < 1 for number in drawn)
