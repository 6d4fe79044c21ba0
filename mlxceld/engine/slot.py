"""A slot and the request that sits in it: the state of one answer.

Plain data and small rules about one request; who runs when is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mlxceld.engine.budget import Budget
from mlxceld.engine.messages import Generate, Timings
from mlxceld.engine.text import Detokenizer, StopScanner, Text

_DRAWS = 64
"""Random numbers drawn at once."""

_BLOCK = 256
"""Tokens compared at once."""


class Matcher(Protocol):
    """A grammar on its way through one answer."""

    def mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which tokens `[n_vocab]` may come next."""

    def accept(self, token: int) -> bool:
        """Go on with a token; False when the grammar does not allow it."""

    @property
    def ended(self) -> bool:
        """Whether nothing more may follow."""


@dataclass(slots=True, eq=False)
class Request:
    """One request from its arrival to its last token. Times are clock seconds."""

    message: Generate
    prompt: list[int]
    n_ctx: int
    """The most tokens it may use, prompt and answer together."""
    detokenizer: Detokenizer
    stops: StopScanner
    arrived: float
    serial: int
    """Order of arrival: the youngest has the largest."""
    output: list[int] = field(default_factory=list)
    issued: int = 0
    """Tokens sampled or being sampled; the last may not have been read yet."""
    n_cached: int = 0
    started: float | None = None
    first_token: float | None = None
    latest_token: float = 0.0
    """When the last token so far came; means nothing before the first."""
    new_line: bool = False
    matcher: Matcher | None = None
    """What the answer has to match; it has accepted `output`."""
    budget: Budget | None = None
    """A bound on its reasoning; it has accepted `output`."""
    n_train: int = 0
    """Tokens of the model's training, or `n_ctx` where that is more: what an answer
    without any limit may come to, its prompt included."""
    kept: int = 0
    skipped: int = 0
    """Tokens after the first `kept` that its text has lost to context shifts."""
    indent: int | None = None
    """How far the last line is indented so far; None where no line has just begun."""
    mirostat: dict[int, Any] = field(default_factory=dict)
    """The state of mirostat or adaptive-p by the index of the token it is for; the
    sampler's alone."""
    _limit: int | None = None
    _draws: list[float] = field(default_factory=list)
    _generator: np.random.Generator | None = None

    @classmethod
    def create(
        cls,
        message: Generate,
        prompt: list[int],
        n_ctx: int,
        vocabulary: Text,
        *,
        arrived: float,
        serial: int,
        n_train: int = 0,
    ) -> Request:
        """A request that has produced nothing yet."""
        return cls(
            message,
            prompt,
            n_ctx,
            Detokenizer(vocabulary, message.preserved),
            StopScanner(message.stop),
            arrived,
            serial,
            n_train=max(n_ctx, n_train),
        )

    @property
    def id(self) -> int:
        return self.message.id

    @property
    def n_tokens(self) -> int:
        """Tokens of its text: prompt and answer so far, less what was skipped."""
        return len(self.prompt) + len(self.output) - self.skipped

    @property
    def tokens(self) -> list[int]:
        """Its text: what a slot has to hold before the answer can go on."""
        every = self.prompt + self.output
        if not self.skipped:
            return every
        return every[: self.kept] + every[self.kept + self.skipped :]

    def shift(self, keep: int, discard: int) -> None:
        """Leave out `discard` tokens of the text after its first `keep`.

        `keep` is the same at each shift of a request.
        """
        self.kept = keep
        self.skipped += discard

    @property
    def stepwise(self) -> bool:
        """Whether the last token has to be seen before the next can be sampled."""
        return (
            self.matcher is not None
            or self.message.sampling.dry
            or (self.budget is not None and self.budget.near)
        )

    @property
    def limit(self) -> int:
        """The most tokens it may generate.

        One cell of the slot context always stays free, and `n_predict` 0 still yields
        one token: both as in llama-server. Where the context is shifted, an answer
        without a limit ends with as many tokens as the model was trained for.
        """
        # Asked for several times a step, and always the same.
        if self._limit is None:
            self._limit = self._find_limit()
        return self._limit

    def _find_limit(self) -> int:
        n_predict = self.message.n_predict
        if self.message.shift is None:
            room = self.n_ctx - len(self.prompt)
            return room if n_predict < 0 else min(max(1, n_predict), room)
        return self.n_train - len(self.prompt) if n_predict < 0 else max(1, n_predict)

    @property
    def truncated(self) -> bool:
        """Whether the context, not `n_predict`, ends it at `limit`."""
        n_predict = self.message.n_predict
        return n_predict < 0 or max(1, n_predict) > self.limit

    @property
    def n_remain(self) -> int:
        """Tokens still allowed by `n_predict`; -1 when that sets no bound."""
        n_predict = self.message.n_predict
        return -1 if n_predict < 0 else max(0, n_predict - len(self.output))

    def recent(self, n: int) -> list[int]:
        """The last `n` tokens of prompt and answer, a whole context for a negative n.

        Tokens that the text has lost are among them, as in llama-server.
        """
        n = self.n_ctx if n < 0 else n
        if n >= len(self.prompt) + len(self.output):
            return self.prompt + self.output
        if n == 0:
            return []
        if n <= len(self.output):
            return self.output[-n:]
        return self.prompt[len(self.output) - n :] + self.output

    def chance(self, index: int) -> float:
        """A second random number in [0, 1) for the answer's token `index`."""
        bits = np.random.Philox(key=[self.message.sampling.seed, 1], counter=index)
        return float(np.random.Generator(bits).random())

    def uniform(self, index: int) -> float:
        """The random number in [0, 1) for the answer's token `index`.

        It depends on the seed and the index alone, so that neither neighbours nor an
        interruption change what is sampled.
        """
        while index >= len(self._draws):
            if self._generator is None:
                bits = np.random.Philox(key=self.message.sampling.seed)
                self._generator = np.random.Generator(bits)
            self._draws.extend(self._generator.random(_DRAWS).tolist())
        return self._draws[index]

    def timings(self, now: float) -> Timings:
        """Milliseconds spent waiting, reading the prompt and generating."""
        started = self.started if self.started is not None else now
        first = self.first_token if self.first_token is not None else now
        return Timings(
            queue_ms=(started - self.arrived) * 1e3,
            prompt_ms=(first - started) * 1e3,
            predicted_ms=(now - first) * 1e3,
        )


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens at their beginnings are the same."""
    n = min(len(one), len(other))
    # Whole blocks first: comparing them is a hundred times faster than a loop.
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        if one[start:end] != other[start:end]:
            return next(i for i in range(start, end) if one[i] != other[i])
    return n


@dataclass(slots=True, eq=False)
class Slot:
    """One seat: the tokens whose keys and values its span holds, and who uses it."""

    id: int
    n_held: int = 0
    """Cells that carry tokens, those of a step still on its way included."""
    tokens: list[int] = field(default_factory=list)
    """The remembered tokens while idle; stale while a request runs."""
    request: Request | None = None
    last: Request | None = None
    """The request that ran here last."""
    used: int = 0
    """Tick of the last use, for least-recently-used order; 0 is never."""

    @property
    def prefilling(self) -> bool:
        """Whether prompt tokens, all but the last, are still unread."""
        return self.request is not None and self.n_held < self.request.n_tokens - 1

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Tokens at the beginning of `tokens` that the idle slot remembers."""
        return common_prefix(self.tokens, tokens)


def serial(slot: Slot) -> int:
    """When the slot's request has arrived, as a key to sort by; -1 where it is idle."""
    return slot.request.serial if slot.request is not None else -1


@dataclass(frozen=True, slots=True)
class Seat:
    """A row of a step that was queued: who gets its token, and as which one."""

    slot: Slot
    request: Request
    index: int
