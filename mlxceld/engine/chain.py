"""The sampler chain of one row, for requests that want more than the usual filters.

The usual rows are sampled together (see sampling.py). A row with another order of
samplers, or with one of DRY, XTC, top-n-sigma, dynamic temperature, mirostat or
`min_keep`, goes through here alone; its neighbours do not notice. Names, order and
meaning are llama-server's. Everything stays on the device: nothing here waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxceld.engine.messages import Sampling

_NEVER = float("-inf")
_COLDEST, _HOTTEST = 1e-6, 1e30
"""Bounds of a temperature: beyond them, dividing by it gives no numbers."""
_WIDTH, _PEAK, _SHARPNESS = 0.3, 5.0, 10.0
"""The shape of adaptive-p's preference, as in llama-server."""
_MIROSTAT_TOP = 100
"""Candidates from which mirostat 1 estimates how fast probabilities fall."""


@dataclass(slots=True)
class Candidates:
    """Tokens with their logits, likeliest first; a dropped one has logit -inf.

    Both arrays are `[n]`.
    """

    logits: mx.array
    tokens: mx.array

    @classmethod
    def of(cls, logits: mx.array) -> Candidates:
        """All tokens of `logits [V]`."""
        return cls(logits, mx.arange(logits.shape[0])).sorted()

    def sorted(self) -> Candidates:
        """Likeliest first; of equal ones the smaller token."""
        order = mx.argsort(-self.logits)
        return Candidates(self.logits[order], self.tokens[order])

    def only(self, keep: mx.array, min_keep: int = 0) -> Candidates:
        """Drop what `keep [n]` does not name; the first ones stay in any case."""
        rank = mx.arange(self.logits.shape[0])
        keep = keep | (rank < max(1, min_keep))
        return Candidates(mx.where(keep, self.logits, _NEVER), self.tokens)

    def first(self) -> Candidates:
        """Nothing but the likeliest."""
        return self.only(mx.zeros(self.logits.shape, dtype=mx.bool_))

    @property
    def probabilities(self) -> mx.array:
        return mx.softmax(self.logits, precise=True)

    @property
    def alive(self) -> mx.array:
        """How many are not dropped."""
        return mx.sum(self.logits > _NEVER)


@dataclass(frozen=True, slots=True)
class Context:
    """What a row's chain needs beside its logits."""

    counts: mx.array | None
    """How often each token `[V]` is in the penalty window; None without penalties."""
    repeats: dict[int, int]
    """Tokens that would go on with a repetition, and its length so far (DRY)."""
    uniform: float
    """Picks the token."""
    chance: float
    """Decides whether XTC works this time."""
    mu: mx.array | None
    """The state of mirostat or adaptive-p, None at its beginning."""


def run(
    logits: mx.array, sampling: Sampling, context: Context
) -> tuple[mx.array, Candidates, mx.array | None]:
    """The token of one row, what it was drawn from, and the next state.

    `logits` are `[V]`, biases included. The state is mirostat's or adaptive-p's; other
    chains have none.
    """
    found = Candidates.of(logits)
    if sampling.mirostat:
        # As in llama-server, mirostat takes the place of all other samplers but the
        # plain temperature.
        if sampling.temperature <= 0:
            return found.tokens[0], found.first(), None
        found = Candidates(_divided(found.logits, sampling.temperature), found.tokens)
        return _mirostat(found, sampling, context)
    for name in sampling.samplers:
        found = _STAGES[name](found, sampling, context)
    if sampling.adaptive:
        return _adaptive(found, sampling, context)
    return draw(found, context.uniform), found, None


def draw(found: Candidates, uniform: float) -> mx.array:
    """The token at `uniform` in [0, 1) of the candidates' probabilities."""
    weights = found.probabilities
    below = mx.cumsum(weights)
    past = (below > uniform * below[-1]) & (weights > 0)
    # Rounding may put the goal at the very end: then the likeliest candidate.
    index = mx.argmax(mx.where(past, math.inf, found.logits))
    return found.tokens[index]


def _penalties(c: Candidates, s: Sampling, context: Context) -> Candidates:
    if context.counts is None:
        return c
    counts = context.counts[c.tokens]
    return Candidates(penalised(c.logits, counts, s), c.tokens).sorted()


def penalised(logits: mx.array, counts: mx.array, s: Sampling) -> mx.array:
    """Logits after repeat, frequency and presence penalties; counts of any shape."""
    scaled = mx.where(logits > 0, logits / s.repeat_penalty, logits * s.repeat_penalty)
    fined = scaled - counts * s.frequency_penalty - s.presence_penalty
    return mx.where(counts > 0, fined, logits)


def _dry(c: Candidates, s: Sampling, context: Context) -> Candidates:
    """A penalty that grows with the length of the repetition a token goes on with."""
    if not context.repeats or s.dry_multiplier == 0 or s.dry_base < 1:
        return c
    tokens, fines = [], []
    # Beyond this exponent the penalty is no finite number any more.
    most = math.log(3.4e38) / math.log(s.dry_base) if s.dry_base > 1.000001 else 0
    for token, length in context.repeats.items():
        exponent = float(length - s.dry_allowed_length)
        exponent = min(exponent, most) if most else exponent
        tokens.append(token)
        fines.append(s.dry_multiplier * s.dry_base**exponent)
    n_vocab = c.tokens.shape[0]
    fine = mx.zeros((n_vocab,)).at[mx.array(tokens)].add(mx.array(fines))
    return Candidates(c.logits - fine[c.tokens], c.tokens).sorted()


def _top_n_sigma(c: Candidates, s: Sampling, _context: Context) -> Candidates:
    if s.top_n_sigma <= 0:
        return c
    alive = c.logits > _NEVER
    known = mx.where(alive, c.logits, 0)
    mean = mx.sum(known) / c.alive
    spread = mx.sqrt(mx.sum(mx.where(alive, (known - mean) ** 2, 0)) / c.alive)
    return c.only(c.logits >= c.logits[0] - s.top_n_sigma * spread)


def _top_k(c: Candidates, s: Sampling, _context: Context) -> Candidates:
    if s.top_k <= 0:
        return c
    # The one filter that `min_keep` does not hold back, as in llama-server.
    return c.only(mx.arange(c.logits.shape[0]) < s.top_k)


def _typ_p(c: Candidates, s: Sampling, _context: Context) -> Candidates:
    """Keep those whose surprise is nearest to the expected one."""
    if s.typical_p >= 1:
        return c
    p = c.probabilities
    surprise = -mx.log(p)
    entropy = mx.sum(mx.where(p > 0, p * surprise, 0))
    order = mx.argsort(mx.abs(surprise - entropy))
    before = mx.cumsum(p[order]) - p[order]
    rank = mx.arange(p.shape[0])
    kept = (before <= s.typical_p) | (rank < s.min_keep)
    logits = mx.where(kept[mx.argsort(order)], c.logits, _NEVER)
    return Candidates(logits, c.tokens).sorted()


def _top_p(c: Candidates, s: Sampling, _context: Context) -> Candidates:
    if s.top_p >= 1:
        return c
    p = c.probabilities
    return c.only(mx.cumsum(p) - p < s.top_p, s.min_keep)


def _min_p(c: Candidates, s: Sampling, _context: Context) -> Candidates:
    if s.min_p <= 0:
        return c
    return c.only(c.logits - c.logits[0] >= math.log(s.min_p), s.min_keep)


def _xtc(c: Candidates, s: Sampling, context: Context) -> Candidates:
    """Now and then drop all probable candidates but the least of them."""
    if (
        s.xtc_probability <= 0
        or s.xtc_threshold > 0.5
        or context.chance > s.xtc_probability
    ):
        return c
    probable = mx.sum(c.probabilities >= s.xtc_threshold)
    rank = mx.arange(c.logits.shape[0])
    drop = (rank < probable - 1) & (c.alive - probable + 1 >= s.min_keep)
    return Candidates(mx.where(drop, _NEVER, c.logits), c.tokens).sorted()


def _temperature(c: Candidates, s: Sampling, _context: Context) -> Candidates:
    if s.dynatemp_range <= 0:
        if s.temperature <= 0:
            return c.first()
        return Candidates(_divided(c.logits, s.temperature), c.tokens)
    low = max(0.0, s.temperature - s.dynatemp_range)
    high = min(s.temperature + s.dynatemp_range, _HOTTEST)
    p = c.probabilities
    entropy = -mx.sum(mx.where(p > 0, p * mx.log(p), 0))
    most = mx.log(c.alive.astype(mx.float32))
    share = mx.where(most > 0, entropy / mx.maximum(most, 1e-9), 0)
    temperature = low + (high - low) * share**s.dynatemp_exponent
    return Candidates(_divided(c.logits, temperature), c.tokens)


def _divided(logits: mx.array, temperature: mx.array | float) -> mx.array:
    """Logits over a temperature that keeps them numbers."""
    return logits / mx.clip(mx.array(temperature), _COLDEST, _HOTTEST)


def _mirostat(
    c: Candidates, s: Sampling, context: Context
) -> tuple[mx.array, Candidates, mx.array]:
    """Mirostat 1 and 2: keep the surprise of the text near `mirostat_tau` bits."""
    mu = context.mu if context.mu is not None else mx.array(2 * s.mirostat_tau)
    p = c.probabilities
    if s.mirostat == 1:
        n_vocab = p.shape[0]
        n = min(_MIROSTAT_TOP, n_vocab) - 1
        steps = mx.array([math.log((i + 2) / (i + 1)) for i in range(n)])
        # The difference of two logits: probabilities may be too small for a quotient.
        alive = c.logits[1 : n + 1] > _NEVER
        falls = mx.where(alive, c.logits[:n] - c.logits[1 : n + 1], 0)
        slope = mx.sum(steps * falls) / mx.sum(mx.where(alive, steps * steps, 0))
        excess = slope - 1
        width = excess * 2.0**mu / (1 - float(n_vocab) ** -excess)
        keep = mx.arange(n_vocab) < mx.floor(width ** (1 / slope))
    else:
        keep = -mx.log2(p) <= mu
    found = c.only(keep)
    token = draw(found, context.uniform)
    chosen = mx.sum(mx.where(found.tokens == token, found.probabilities, 0))
    error = -mx.log2(chosen) - s.mirostat_tau
    return token, found, mu - s.mirostat_eta * error


def _adaptive(
    c: Candidates, s: Sampling, context: Context
) -> tuple[mx.array, Candidates, mx.array]:
    """Adaptive-p: prefer candidates so probable that the average nears the target.

    It takes the place of the plain draw, after all other samplers, wherever it is
    named. The state is the decaying sum of the chosen ones' probabilities and the sum
    of its weights, `[2]`.
    """
    decay = s.adaptive_decay
    weight = 1 / (1 - decay)
    state = context.mu
    if state is None:
        # As if the target had been met for ever.
        state = mx.array([s.adaptive_target * weight, weight])
    target = mx.clip(2 * min(s.adaptive_target, 1.0) - state[0] / state[1], 0, 1)
    before = c.probabilities
    distance = mx.abs(before - target) / _WIDTH
    wanted = _PEAK - _SHARPNESS * distance**2 / (1 + distance)
    found = Candidates(mx.where(c.logits > _NEVER, wanted, _NEVER), c.tokens).sorted()
    token = draw(found, context.uniform)
    chosen = mx.sum(mx.where(c.tokens == token, before, 0))
    return token, found, mx.stack([chosen, mx.array(1.0)]) + decay * state


def _nothing(c: Candidates, _s: Sampling, _context: Context) -> Candidates:
    return c


_STAGES = {
    "adaptive_p": _nothing,
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": _top_n_sigma,
    "top_k": _top_k,
    "typ_p": _typ_p,
    "top_p": _top_p,
    "min_p": _min_p,
    "xtc": _xtc,
    "temperature": _temperature,
}


def repeats(recent: Sequence[int], limit: int, allowed: int) -> dict[int, int]:
    """Tokens that would go on with a repetition, and how long that is already (DRY).

    `recent` are the last tokens, `limit` how far back a repetition may reach from the
    end, `allowed` the length below which one is no matter.
    """
    n = len(recent)
    if limit < allowed or n < 2:
        return {}
    reverse = list(recent)[::-1]
    # Z-function of the reversed text: z[i] is how long the text that ends i tokens
    # before the end agrees, backwards, with the end itself.
    z = [0] * n
    left = right = 0
    for i in range(1, n):
        if i < right:
            z[i] = min(right - i, z[i - left])
        while i + z[i] < n and reverse[z[i]] == reverse[i + z[i]]:
            z[i] += 1
        if i + z[i] > right:
            left, right = i, i + z[i]
    found: dict[int, int] = {}
    for i in range(1, n):
        length = min(z[i], limit)
        if length >= allowed:
            token = reverse[i - 1]
            found[token] = max(found.get(token, 0), length)
    return found


def breaks(piece: bytes, breakers: Sequence[str]) -> bool:
    """Whether a token alone holds a sequence breaker: DRY leaves those in peace."""
    return any(breaker and breaker.encode() in piece for breaker in breakers)


def reach(pieces: Sequence[bytes], breakers: Sequence[str]) -> int:
    """How many of the last tokens come after the last sequence breaker.

    `pieces` are the bytes of the recent tokens; a breaker may lie across tokens.
    """
    text = b"".join(pieces)
    last = max(
        (
            at + len(breaker.encode())
            for breaker in breakers
            if breaker and (at := text.rfind(breaker.encode())) >= 0
        ),
        default=0,
    )
    if not last:
        return len(pieces)
    end = len(text)
    count = 0
    for piece in reversed(pieces):
        end -= len(piece)
        if end < last:
            break
        count += 1
    return count
