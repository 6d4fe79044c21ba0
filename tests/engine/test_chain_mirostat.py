"""Mirostat 1 and 2: what they keep, and how they go on from token to token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine.chains import NEVER, Told, left, run

# isort: split
from mlxceld.engine.messages import Sampling

FLAT = [math.log(share) for share in (0.4, 0.3, 0.2, 0.1)]


def _surprise(share: float) -> float:
    return -math.log2(share)


def test_mirostat_2_drops_what_surprises_more_than_mu() -> None:
    """Surprises in bits: 1.32, 1.74, 2.32, 3.32. mu begins at twice tau."""
    for tau, kept in [(0.1, [0]), (0.7, [0]), (0.9, [0, 1]), (1.2, [0, 1, 2])]:
        s = Sampling(temperature=1.0, mirostat=2, mirostat_tau=tau)
        assert left(FLAT, s) == kept


def test_mirostat_2_learns_from_the_surprise_of_its_token() -> None:
    """Of 0.4 and 0.3, renormalised, the first has 4/7: 0.807 bits."""
    s = Sampling(temperature=1.0, mirostat=2, mirostat_tau=0.9, mirostat_eta=0.5)
    token, _, mu = run(FLAT, s, Told(uniform=0.1))
    assert token == 0
    assert mu == pytest.approx(1.8 - 0.5 * (_surprise(4 / 7) - 0.9))
    token, shares, mu = run(FLAT, s, Told(uniform=0.9, mu=2.5))
    # 0.4, 0.3 and 0.2 of 0.9 are left.
    assert set(shares) == {0, 1, 2}
    assert token == 2
    assert mu == pytest.approx(2.5 - 0.5 * (_surprise(2 / 9) - 0.9))


def _mirostat_1(logits: Sequence[float], mu: float) -> tuple[int, float]:
    """How many candidates it keeps, and how near that is to another number."""
    best = sorted(logits, reverse=True)[:100]
    t = [math.log((i + 2) / (i + 1)) for i in range(len(best) - 1)]
    b = [best[i] - best[i + 1] for i in range(len(best) - 1)]
    slope = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    excess = slope - 1
    k = (excess * 2**mu / (1 - len(logits) ** -excess)) ** (1 / slope)
    return min(len(logits), max(1, int(k))), abs(k - round(k))


@pytest.mark.parametrize("n", [6, 150])
@pytest.mark.parametrize("mu", [0.5, 2.0, 3.0, 5.0])
def test_mirostat_1_estimates_how_fast_probabilities_fall(n: int, mu: float) -> None:
    logits = [-1.7 * math.log(rank + 1.3) for rank in range(n)]
    k, off = _mirostat_1(logits, mu)
    assert off > 1e-3
    s = Sampling(temperature=1.0, mirostat=1, mirostat_eta=0.1, mirostat_tau=2.0)
    token, shares, after = run(logits, s, Told(uniform=0.0, mu=mu))
    assert sorted(shares) == list(range(k))
    weights = [math.exp(logit) for logit in logits[:k]]
    surprise = _surprise(weights[0] / sum(weights))
    assert token == 0
    assert after == pytest.approx(mu - 0.1 * (surprise - 2.0), abs=1e-4)


def test_mirostat_1_lives_with_probabilities_too_small_for_a_quotient() -> None:
    s = Sampling(temperature=1.0, mirostat=1)
    logits = [*(-0.1 * rank for rank in range(20)), -200.0, -203.0]
    k, off = _mirostat_1(logits, 32.0)
    assert (k, off > 1e-2) == (9, True)
    assert left(logits, s, mu=32.0) == list(range(9))


def test_mirostat_1_leaves_forbidden_tokens_out_of_account() -> None:
    """The estimate is that of the three others, but for the size of the vocabulary."""
    s = Sampling(temperature=1.0, mirostat=1)
    assert left([NEVER, 0.0, -0.5, -0.9, NEVER], s) == [1, 2, 3]
    assert left([NEVER, 0.0, NEVER], s) == [1]


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_replaces_every_sampler_but_the_temperature(version: int) -> None:
    rules: dict[str, Any] = {"mirostat": version, "mirostat_tau": 9.0}
    rules["temperature"] = 2.0
    told = Told(text=[0, 0], repeats={0: 5}, chance=0.0, mu=9.0)
    plain = run(FLAT, Sampling(**rules), told)
    full = Sampling(
        top_k=1,
        top_p=0.01,
        min_p=0.9,
        xtc_probability=1.0,
        presence_penalty=9.0,
        dry_multiplier=9.0,
        top_n_sigma=0.01,
        dynatemp_range=2.0,
        **rules,
    )
    assert run(FLAT, full, told) == plain
    # Temperature 2 takes the square root of the shares.
    if version == 2:
        roots = [math.sqrt(share) for share in (0.4, 0.3, 0.2, 0.1)]
        assert plain[1] == pytest.approx(
            {token: root / sum(roots) for token, root in enumerate(roots)}
        )


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_at_temperature_zero_is_greedy(version: int) -> None:
    s = Sampling(temperature=0.0, mirostat=version, presence_penalty=9.0)
    assert run(FLAT, s, Told(text=[0], uniform=0.9)) == (0, {0: 1.0}, None)
