"""The answer to one prompt as its events come in, and how much of it is held.

Text takes a few bytes for each token. Probabilities take a kilobyte and more for each
of a token's candidates before they are written, and a request may ask for those of the
whole vocabulary: a short answer would fill the memory of everybody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlxceld.api.errors import ApiError, from_engine, invalid
from mlxceld.engine import messages as m
from mlxceld.engine.client import Event

MOST_CANDIDATES = 1 << 19
"""Candidates whose probabilities are held for one request: half a gigabyte at most."""


def most_held(n_probs: int, n_vocab: int) -> int:
    """How many tokens may wait, each with `n_probs` candidates and itself; one may."""
    return max(1, MOST_CANDIDATES // (1 + min(n_probs, n_vocab)))


def too_many(*, whole: bool) -> ApiError:
    """Ends an answer; one that is wanted `whole` could be streamed instead."""
    stream = ", or for a stream" if whole else ""
    return invalid(
        f"more than {MOST_CANDIDATES} probabilities would have to be held at once: "
        f"ask for fewer with `n_probs`{stream}"
    )


@dataclass(slots=True)
class Answer:
    """The answer to one prompt as it comes in."""

    index: int
    told: bool = False
    """Whether its probabilities are told as they come, so that nobody needs them later.
    """
    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    probabilities: list[m.TokenProbability] = field(default_factory=list)
    n_prompt: int = 0
    n_cached: int = 0
    n_decoded: int = 0
    n_read: int = 0
    """Prompt tokens read, cached ones included."""
    started: float = 0.0
    first_token: float = 0.0
    now: float = 0.0
    """Times of the monotonic clock, in seconds, for timings half-way."""
    done: m.Done | None = None

    @property
    def content(self) -> str:
        return "".join(self.text)

    def finished(self) -> m.Done:
        assert self.done is not None
        return self.done

    def take(self, event: Event, now: float) -> None:
        """Account for an event. Raises ApiError when it is a failure."""
        self.now = now
        match event:
            case m.Delta() | m.Done():
                self.first_token = self.first_token or now
                self.n_decoded = event.n_decoded
                self.text.append(event.text)
                self.tokens.extend(event.tokens)
                if not self.told:
                    self.probabilities.extend(event.probabilities)
                if isinstance(event, m.Done):
                    self.done = event
                    self.n_prompt, self.n_cached = event.n_prompt, event.n_cached
            case m.Failed():
                raise from_engine(event)
            case m.Started():
                # A request that was put back starts again, with its answer so far as
                # part of what is read: the first start is the one that counts.
                if not self.started:
                    self.started = now
                    self.n_prompt, self.n_cached = event.n_prompt, event.n_cached
            case m.Progress():
                self.n_read, self.n_cached = event.processed, event.cached

    @property
    def prompt_ms(self) -> float:
        return ((self.first_token or self.now) - self.started) * 1e3

    @property
    def predicted_ms(self) -> float:
        return (self.now - self.first_token) * 1e3 if self.first_token else 0.0
