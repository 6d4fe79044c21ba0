"""Adaptive-p: what it prefers, and how it goes on from token to token."""

from __future__ import annotations

import math

import pytest

from tests.engine.chains import softmax

# isort: split
import mlx.core as mx

from mlxceld.engine import chain
from mlxceld.engine.messages import SAMPLERS, Sampling

SHARES = (0.5, 0.3, 0.15, 0.05)
LOGITS = [math.log(share) for share in SHARES]


def rules(target: float, decay: float = 0.5) -> Sampling:
    names = ("temperature", "adaptive_p")
    return Sampling(
        temperature=1.0,
        samplers=names,
        adaptive_target=target,
        adaptive_decay=decay,
    )


def run(
    s: Sampling, uniform: float, state: tuple[float, float] | None = None
) -> tuple[int, dict[int, float], list[float] | None]:
    context = chain.Context(
        None, {}, uniform, 0.0, None if state is None else mx.array(state)
    )
    token, found, after = chain.run(mx.array(LOGITS), s, context)
    shares = dict(zip(found.tokens.tolist(), found.probabilities.tolist(), strict=True))
    return int(token.item()), shares, None if after is None else after.tolist()


def preferred(target: float) -> dict[int, float]:
    """The candidates' new probabilities, by the published formula."""
    logits = []
    for share in SHARES:
        distance = abs(share - target) / 0.3
        logits.append(5 - 10 * distance**2 / (1 + distance))
    pairs = sorted(enumerate(logits), key=lambda pair: -pair[1])
    return {
        token: share for (token, _), share in zip(pairs, softmax(pairs), strict=True)
    }


@pytest.mark.parametrize("target", [0.0, 0.1, 0.3, 0.5, 1.0])
def test_candidates_near_the_target_are_preferred(target: float) -> None:
    token, shares, _ = run(rules(target), 0.0)
    assert shares == pytest.approx(preferred(target), abs=1e-5)
    assert token == min(range(4), key=lambda i: abs(SHARES[i] - target))


def test_it_corrects_itself_from_token_to_token() -> None:
    """Begun as if the target had been met: 0.3 x 2 of a weight of 2."""
    token, _, state = run(rules(0.3), 0.0)
    assert token == 1
    assert state == pytest.approx([0.3 + 0.5 * 0.6, 1 + 0.5 * 2])
    # An average of 0.5 makes it aim at 0.1.
    _, shares, state = run(rules(0.3), 0.0, (1.0, 2.0))
    assert shares == pytest.approx(preferred(0.1), abs=1e-5)
    assert state == pytest.approx([0.15 + 0.5, 2.0])


def test_without_a_target_it_is_a_plain_draw() -> None:
    token, shares, state = run(rules(-1.0), 0.6)
    assert (token, state) == (1, None)
    assert shares == pytest.approx(dict(enumerate(SHARES)), abs=1e-6)


def test_the_usual_chain_has_it_only_where_it_is_named() -> None:
    assert Sampling(adaptive_target=0.5).usual
    assert not Sampling(adaptive_target=0.5).adaptive
    named = Sampling(adaptive_target=0.5, samplers=(*SAMPLERS, "adaptive_p"))
    assert named.adaptive
    assert not named.usual
