"""The next token of every row at once, each by its own request's rules.

The chain is llama-server's: penalties, top_k, typical_p, top_p, min_p, temperature; the
filters look at the untempered distribution. Chance comes in as one number per row,
drawn from the request's own seed, so that a token does not depend on its neighbours.
Rows that want more than these go through chain.py, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxceld.engine import chain
from mlxceld.engine.messages import Sampling
from mlxceld.engine.runner import Row
from mlxceld.engine.slot import Request
from mlxceld.engine.text import Text

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class _Rules:
    """The parameters of one set of rows as arrays, made once and used at every step."""

    bias: tuple[mx.array, mx.array, mx.array] | None
    """Row, token and value of each bias."""
    penalised: list[int]
    special: list[int]
    """Rows that go through chain.py."""
    sampled: list[int]
    chosen: mx.array
    """`sampled` on the device."""
    most: int
    """The most candidates any sampled row keeps."""
    top_k: mx.array
    top_p: mx.array
    log_min_p: mx.array
    typical_p: mx.array | None
    temperature: mx.array


@dataclass(frozen=True, slots=True)
class Probabilities:
    """What one row wants to know of its token, on the device (`Sampling.n_probs`)."""

    row: int
    value: mx.array
    """Of the sampled token."""
    top_tokens: mx.array
    top_values: mx.array


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens `[B]`, and the probabilities that rows asked for."""

    tokens: mx.array
    probabilities: list[Probabilities]

    def arrays(self) -> list[mx.array]:
        """What else has to be computed before the step can be read."""
        return [
            array
            for told in self.probabilities
            for array in (told.value, told.top_tokens, told.top_values)
        ]


class Sampler:
    """Samples `[B, V]` logits; remembers the arrays of the last set of rows."""

    def __init__(
        self, n_vocab: int, eos_ids: Sequence[int], text: Text | None = None
    ) -> None:
        """`text` gives the bytes of tokens, which DRY's sequence breakers need."""
        self._n_vocab = n_vocab
        self._text = text
        self._eos_ids = [token for token in eos_ids if token < n_vocab]
        self._requests: tuple[Request, ...] = ()
        self._rules: _Rules | None = None

    def __call__(
        self, logits: mx.array, rows: Sequence[Row], read: mx.array
    ) -> mx.array:
        """Tokens `[B]` from logits `[B, V]`; `read [B]` are the tokens just read."""
        return self.sample(logits, rows, read).tokens

    def sample(self, logits: mx.array, rows: Sequence[Row], read: mx.array) -> Sampled:
        """Like a call, with the probabilities that rows asked for."""
        # The requests themselves, not their ids: the probe's request has one too.
        requests = tuple(row.request for row in rows)
        if self._rules is None or requests != self._requests:
            self._rules, self._requests = self._prepare(rows), requests
        rules = self._rules
        model = logits.astype(mx.float32)
        logits = mx.array(model)  # A handle of its own: it is written to below.
        if rules.bias is not None:
            row_index, token, value = rules.bias
            logits = logits.at[row_index, token].add(value)
        for index, row in enumerate(rows):
            if row.allowed is not None:
                allowed = mx.array(row.allowed)
                logits[index] = mx.where(allowed, logits[index], _NEVER)
        counts = self._counts(rows, read, rules.penalised)
        special = [
            (index, *self._alone(logits[index], rows[index], counts.get(index)))
            for index in rules.special
        ]
        plain = [index for index in rules.penalised if index not in rules.special]
        if plain:
            logits = _penalise(logits, rows, counts, plain)
        tokens = mx.argmax(logits, axis=-1).astype(mx.int32)
        spreads: dict[int, chain.Candidates] = {}
        if rules.sampled:
            uniform = mx.array([rows[index].uniform for index in rules.sampled])
            everything = len(rules.sampled) == len(rows)
            mine = logits if everything else logits[rules.chosen]
            drawn, weights, candidates = _draw(mine, rules, uniform)
            if everything:
                tokens = drawn.astype(mx.int32)
            else:
                tokens[rules.chosen] = drawn.astype(mx.int32)
            for line, index in enumerate(rules.sampled):
                if rows[index].request.message.sampling.n_probs:
                    spread = mx.log(weights[line])
                    spreads[index] = chain.Candidates(spread, candidates[line])
        for index, token, found in special:
            tokens[index] = token.astype(mx.int32)
            spreads[index] = found
        wanted = [
            _told(index, row, model[index], tokens[index], spreads.get(index))
            for index, row in enumerate(rows)
            if row.request.message.sampling.n_probs
        ]
        return Sampled(tokens, wanted)

    def _alone(
        self, logits: mx.array, row: Row, counts: mx.array | None
    ) -> tuple[mx.array, chain.Candidates]:
        """Token and candidates of a row that goes through the whole chain."""
        request, sampling = row.request, row.request.message.sampling
        index = request.issued
        context = chain.Context(
            counts=counts,
            repeats=self._repeats(request) if sampling.dry else {},
            uniform=row.uniform,
            chance=request.chance(index) if sampling.xtc_probability else 0.0,
            mu=request.mirostat.get(index),
        )
        token, found, mu = chain.run(logits, sampling, context)
        if mu is not None:
            # Kept by index: a token that is sampled again starts from the same state.
            request.mirostat = {index: context.mu, index + 1: mu}
        return token, found

    def _repeats(self, request: Request) -> dict[int, int]:
        sampling = request.message.sampling
        breakers = sampling.dry_sequence_breakers
        recent = request.recent(sampling.dry_penalty_last_n)
        limit = chain.reach([self._piece(token) for token in recent], breakers)
        found = chain.repeats(recent, limit, sampling.dry_allowed_length)
        return {
            token: length
            for token, length in found.items()
            if not chain.breaks(self._piece(token), breakers)
        }

    def _piece(self, token: int) -> bytes:
        return self._text.piece(token, special=True) if self._text else b""

    def _prepare(self, rows: Sequence[Row]) -> _Rules:
        settings = [row.request.message.sampling for row in rows]
        entries: list[tuple[int, int, float]] = []
        for index, s in enumerate(settings):
            entries += [(index, token, value) for token, value in s.logit_bias]
            if s.ignore_eos:
                entries += [(index, token, _NEVER) for token in self._eos_ids]
        bias = None
        if entries:
            bias = (
                mx.array([row for row, _, _ in entries]),
                mx.array([token for _, token, _ in entries]),
                mx.array([value for _, _, value in entries]),
            )
        penalised = [
            index
            for index, s in enumerate(settings)
            if s.repeat_last_n != 0
            and (s.repeat_penalty != 1 or s.presence_penalty or s.frequency_penalty)
        ]
        special = [index for index, s in enumerate(settings) if not s.usual]
        sampled = [
            index
            for index, s in enumerate(settings)
            if s.temperature > 0 and index not in special
        ]
        mine = [settings[index] for index in sampled]
        top_k = [min(s.top_k, self._n_vocab) or self._n_vocab for s in mine]

        def column(values: list[float]) -> mx.array:
            return mx.array(values, dtype=mx.float32)[:, None]

        typical = [s.typical_p for s in mine]
        return _Rules(
            bias=bias,
            penalised=penalised,
            special=special,
            sampled=sampled,
            chosen=mx.array(sampled, dtype=mx.int32),
            most=max(top_k, default=0),
            top_k=mx.array(top_k)[:, None] if top_k else mx.zeros((0, 1)),
            top_p=column([s.top_p for s in mine]),
            log_min_p=column(
                [np.log(s.min_p) if s.min_p > 0 else _NEVER for s in mine]
            ),
            typical_p=column(typical) if any(p < 1 for p in typical) else None,
            temperature=column([s.temperature for s in mine]),
        )

    def _counts(
        self, rows: Sequence[Row], read: mx.array, which: list[int]
    ) -> dict[int, mx.array]:
        """How often each token `[V]` is among the recent ones of the rows `which`.

        The token just read may be known to the device alone; it takes the window's
        last place.
        """
        if not which:
            return {}
        windows = []
        for index in which:
            row = rows[index]
            n = row.request.message.sampling.repeat_last_n
            known = row.request.recent(n - 1 if row.token is None and n > 0 else n)
            windows.append(known[:-1] if row.token is not None else known)
        width = max(map(len, windows)) + 1
        tokens = np.zeros((len(which), width), dtype=np.int32)
        weights = np.zeros((len(which), width), dtype=np.float32)
        for line, window in enumerate(windows):
            tokens[line, : len(window)] = window
            weights[line, : len(window)] = 1
        weights[:, -1] = 1
        ids = mx.array(tokens)
        ids[:, -1] = read[mx.array(which)].astype(mx.int32)
        lines = mx.arange(len(which))[:, None]
        counts = mx.zeros((len(which), self._n_vocab))
        counts = counts.at[lines, ids].add(mx.array(weights))
        return {index: counts[line] for line, index in enumerate(which)}


def _penalise(
    logits: mx.array,
    rows: Sequence[Row],
    counts: dict[int, mx.array],
    which: list[int],
) -> mx.array:
    """Repeat, presence and frequency penalties of the rows `which`."""
    for index in which:
        sampling = rows[index].request.message.sampling
        logits[index] = chain.penalised(logits[index], counts[index], sampling)
    return logits


def _told(
    index: int,
    row: Row,
    model: mx.array,
    token: mx.array,
    spread: chain.Candidates | None,
) -> Probabilities:
    """What a row with `n_probs` is told: of the model's logits, or of its own draw."""
    sampling: Sampling = row.request.message.sampling
    if not sampling.post_sampling_probs:
        logs = model - mx.logsumexp(model)
        found = chain.Candidates(logs, mx.arange(logs.shape[0]))
    elif spread is None:
        found = chain.Candidates(mx.zeros((1,)), token[None])
    else:
        found = spread
    n = min(sampling.n_probs, found.logits.shape[0])
    values = found.probabilities if sampling.post_sampling_probs else found.logits
    order = mx.argsort(-values)[:n]
    chosen = mx.max(mx.where(found.tokens == token, values, _NEVER))
    return Probabilities(index, chosen, found.tokens[order], values[order])


def _draw(
    logits: mx.array, rules: _Rules, uniform: mx.array
) -> tuple[mx.array, mx.array, mx.array]:
    """Tokens `[R]` from logits `[R, V]` and one number in [0, 1) per row.

    Also what they were drawn from: probabilities and tokens `[R, candidates]`.
    """
    values, tokens = _best(logits, rules.most)
    rank = mx.arange(values.shape[-1])[None]
    values = mx.where(rank < rules.top_k, values, _NEVER)
    if rules.typical_p is not None:
        values = _typical(values, rules.typical_p)
    probabilities = mx.softmax(values, axis=-1, precise=True)
    before = mx.cumsum(probabilities, axis=-1) - probabilities
    best = mx.max(values, axis=-1, keepdims=True)
    # A sum that rounds to 1 before the last candidate drops none when top_p is off.
    keep = (before < rules.top_p) | (rules.top_p >= 1)
    keep = keep & (values - best >= rules.log_min_p)
    # The likeliest candidate stays whatever the filters say: one, also among equals.
    keep = keep | (rank == mx.argmax(values, axis=-1, keepdims=True))
    values = mx.where(keep, values, _NEVER)
    weights = mx.softmax(values / rules.temperature, axis=-1, precise=True)
    below = mx.cumsum(weights, axis=-1)
    goal = uniform[:, None] * below[:, -1:]
    # The first candidate past the goal; a goal that rounding put at the very end
    # belongs to the likeliest one, never to a candidate of no weight.
    index = mx.argmax(mx.where(below > goal, -_NEVER, values), axis=-1, keepdims=True)
    return mx.take_along_axis(tokens, index, axis=-1)[:, 0], weights, tokens


def _best(logits: mx.array, most: int) -> tuple[mx.array, mx.array]:
    """The `most` largest logits of each row in descending order, and their tokens.

    Of equal logits the smaller token comes first, so that neither who else is in the
    batch nor how many candidates it wants changes a row's order.
    """
    n_vocab = logits.shape[-1]
    # A float's bits as an integer that is larger for a smaller float, then the token:
    # one number to sort by, and no two are equal.
    bits = logits.view(mx.int32)
    rising = mx.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(mx.int64)
    keys = (~rising << 32) | mx.arange(n_vocab, dtype=mx.int64)
    if most < n_vocab:
        keys = mx.partition(keys, kth=most - 1, axis=-1)[:, :most]
    tokens = mx.sort(keys, axis=-1) & 0xFFFFFFFF
    return mx.take_along_axis(logits, tokens, axis=-1), tokens


def _typical(values: mx.array, typical_p: mx.array) -> mx.array:
    """Keep the candidates whose surprise is nearest to the expected one.

    They are taken in that order until their probabilities exceed `typical_p`.
    """
    probabilities = mx.softmax(values, axis=-1, precise=True)
    surprise = -mx.log(probabilities)
    entropy = mx.sum(
        mx.where(probabilities > 0, probabilities * surprise, 0), axis=-1, keepdims=True
    )
    order = mx.argsort(mx.abs(surprise - entropy), axis=-1)
    taken = mx.take_along_axis(probabilities, order, axis=-1)
    before = mx.cumsum(taken, axis=-1) - taken
    kept = mx.take_along_axis(values, order, axis=-1)
    kept = mx.where((before <= typical_p) | (typical_p >= 1), kept, _NEVER)
    back = mx.argsort(order, axis=-1)
    return mx.take_along_axis(kept, back, axis=-1)
