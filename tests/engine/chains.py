"""A sampler chain in plain numpy, and a short way to run the real one.

The reference truncates lists where the chain masks arrays. It works in double
precision; where rounding could decide it raises `Close`, and the example is no use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tests.engine import real  # noqa: F401

# isort: split
import mlx.core as mx

from mlxceld.engine import chain
from mlxceld.engine.messages import Sampling

NEVER = float("-inf")
NEAR = 1e-4

Pairs: TypeAlias = list[tuple[int, float]]
"""Tokens and their logits, likeliest first."""


class Close(Exception):
    """Two numbers are so near to each other that rounding decides."""


# ---- the reference ----


def above(value: float, border: float) -> bool:
    if abs(value - border) < NEAR * max(1.0, abs(border)):
        raise Close
    return value > border


def softmax(pairs: Pairs) -> list[float]:
    weights = np.exp(np.array([logit for _, logit in pairs]) - pairs[0][1])
    found: list[float] = (weights / weights.sum()).tolist()
    return found


def entropy_of(shares: list[float]) -> float:
    if min(shares) < 1e-30:
        raise Close
    return -sum(share * math.log(share) for share in shares)


def ranked(pairs: Pairs) -> Pairs:
    found = sorted(pairs, key=lambda pair: -pair[1])
    for (_, one), (_, other) in zip(found, found[1:], strict=False):
        if one != other and one - other < NEAR:
            raise Close
    return found


def penalties(pairs: Pairs, s: Sampling, c: Told) -> Pairs:
    found = []
    for token, logit in pairs:
        count = c.text.count(token)
        if count:
            by = s.repeat_penalty
            logit = logit / by if logit > 0 else logit * by
            logit -= count * s.frequency_penalty + s.presence_penalty
        found.append((token, logit))
    return ranked(found)


def dry(pairs: Pairs, s: Sampling, c: Told) -> Pairs:
    def fine(token: int) -> float:
        if token not in c.repeats or s.dry_multiplier == 0:
            return 0.0
        exponent = c.repeats[token] - s.dry_allowed_length
        return s.dry_multiplier * s.dry_base**exponent

    return ranked([(token, logit - fine(token)) for token, logit in pairs])


def top_n_sigma(pairs: Pairs, s: Sampling, c: Told) -> Pairs:
    if s.top_n_sigma <= 0:
        return pairs
    logits = np.array([logit for _, logit in pairs])
    floor = float(logits.max() - s.top_n_sigma * logits.std())
    return pairs[:1] + [pair for pair in pairs[1:] if above(pair[1], floor)]


def top_k(pairs: Pairs, s: Sampling, c: Told) -> Pairs:
    return pairs[: s.top_k] if s.top_k > 0 else pairs


def typ_p(pairs: Pairs, s: Sampling, c: Told) -> Pairs:
    if s.typical_p >= 1:
        return pairs
    p = softmax(pairs)
    entropy = entropy_of(p)
    distance = [abs(-math.log(share) - entropy) for share in p]
    order = sorted(range(len(p)), key=lambda i: distance[i])
    n, total = 0, 0.0
    for n, i in enumerate(order, 1):
        total += p[i]
        if n < len(p) and above(total, s.typical_p) and n >= s.min_keep:
            break
    if n < len(p):
        last, following = distance[order[n - 1]], distance[order[n]]
        if following - last < NEAR:
            raise Close
    return ranked([pairs[i] for i in order[:n]])


def top_p(pairs: Pairs, s: Sampling, c: Told) -> Pairs:
    if s.top_p >= 1:
        return pairs
    total = 0.0
    for n, share in enumerate(softmax(pairs), 1):
        total += share
        if n < len(pairs) and above(total, s.top_p) and n >= s.min_keep:
            return pairs[:n]
    return pairs


def min_p(pairs: Pairs, s: Sampling, c: Told) -> Pairs:
    if s.min_p <= 0:
        return pairs
    floor = pairs[0][1] + math.log(s.min_p)
    keep = 1 + sum(above(logit, floor) for _, logit in pairs[1:])
    return pairs[: max(keep, s.min_keep)]


def xtc(pairs: Pairs, s: Sampling, c: Told) -> Pairs:
    if s.xtc_probability <= 0 or s.xtc_threshold > 0.5:
        return pairs
    if c.chance > s.xtc_probability:
        return pairs
    drop = sum(above(share, s.xtc_threshold) for share in softmax(pairs)) - 1
    enough = len(pairs) - drop >= s.min_keep
    return pairs[drop:] if drop > 0 and enough else pairs


def temperature(pairs: Pairs, s: Sampling, c: Told) -> Pairs:
    by = s.temperature
    if s.dynatemp_range > 0:
        if len(pairs) < 2:
            return pairs
        low = max(0.0, by - s.dynatemp_range)
        high = by + s.dynatemp_range
        share = entropy_of(softmax(pairs)) / math.log(len(pairs))
        by = low + (high - low) * share**s.dynatemp_exponent
        above(by, 0.0)
    elif by <= 0:
        return pairs[:1]
    return [(token, logit / by) for token, logit in pairs]


STAGES = {
    "penalties": penalties,
    "dry": dry,
    "top_n_sigma": top_n_sigma,
    "top_k": top_k,
    "typ_p": typ_p,
    "top_p": top_p,
    "min_p": min_p,
    "xtc": xtc,
    "temperature": temperature,
}


class Told:
    """What a chain is told beside the logits, plainly."""

    def __init__(
        self,
        *,
        text: Sequence[int] = (),
        repeats: dict[int, int] | None = None,
        uniform: float = 0.5,
        chance: float = 0.0,
        mu: float | None = None,
    ) -> None:
        self.text = list(text)
        self.repeats = repeats or {}
        self.uniform = uniform
        self.chance = chance
        self.mu = mu

    def context(self, n_vocab: int) -> chain.Context:
        counts = np.bincount(self.text, minlength=n_vocab) if self.text else None
        return chain.Context(
            counts=None if counts is None else mx.array(counts.astype(np.float32)),
            repeats=self.repeats,
            uniform=self.uniform,
            chance=self.chance,
            mu=None if self.mu is None else mx.array(self.mu),
        )


def expected(logits: Sequence[float], s: Sampling, told: Told) -> Pairs:
    """What a chain has to leave."""
    pairs = ranked([(token, logit) for token, logit in enumerate(logits)])
    for name in s.samplers:
        pairs = STAGES[name](pairs, s, told)
    return pairs


def pick(pairs: Pairs, uniform: float) -> int:
    total = 0.0
    for (token, _), share in zip(pairs[:-1], softmax(pairs), strict=False):
        total += share
        if above(total, uniform):
            return token
    return pairs[-1][0]


# ---- the chain itself ----


def run(
    logits: Sequence[float], s: Sampling, told: Told | None = None
) -> tuple[int, dict[int, float], float | None]:
    """The token, the probabilities it was drawn from, and mirostat's next state."""
    told = told or Told()
    context = told.context(len(logits))
    token, found, mu = chain.run(mx.array(list(logits)), s, context)
    shares = zip(found.tokens.tolist(), found.probabilities.tolist(), strict=True)
    left = {token: share for token, share in shares if share > 0}
    return token.item(), left, None if mu is None else mu.item()


def left(logits: Sequence[float], s: Sampling, **told: Any) -> list[int]:
    """The tokens that are left, in their order in the vocabulary."""
    return sorted(run(logits, s, Told(**told))[1])


def only(*samplers: str, **fields: Any) -> Sampling:
    """Nothing but these samplers."""
    return Sampling(samplers=samplers, **({"temperature": 1.0} | fields))
