"""Counters of the engine's work since it started."""

from __future__ import annotations

from dataclasses import dataclass

from mlxceld.engine.messages import Totals


@dataclass(slots=True)
class Tally:
    """The growing counterpart of `messages.Totals`; times in seconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_seconds: float = 0.0
    predicted_tokens: int = 0
    predicted_seconds: float = 0.0
    decode_steps: int = 0
    decoded_rows: int = 0
    max_tokens: int = 0
    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    preempted: int = 0

    def step(self, rows: int, longest: int) -> None:
        """A decode step of `rows` rows, the longest holding `longest` tokens."""
        self.decode_steps += 1
        self.decoded_rows += rows
        self.max_tokens = max(self.max_tokens, longest)

    def read(self, tokens: int, seconds: float) -> None:
        """A prompt chunk."""
        self.prompt_tokens += tokens
        self.prompt_seconds += seconds

    def totals(self, evicted: int = 0) -> Totals:
        """The counters as a message; `evicted` is what the room has counted."""
        return Totals(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            prompt_ms=self.prompt_seconds * 1e3,
            predicted_tokens=self.predicted_tokens,
            predicted_ms=self.predicted_seconds * 1e3,
            decode_steps=self.decode_steps,
            decoded_rows=self.decoded_rows,
            max_tokens=self.max_tokens,
            requests=self.requests,
            failed=self.failed,
            cancelled=self.cancelled,
            preempted=self.preempted,
            evicted=evicted,
        )
