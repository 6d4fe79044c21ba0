"""What one run of one engine gave."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Measured:
    """Times in seconds unless the name says otherwise."""

    tokens: int
    """Tokens generated in `seconds`."""
    seconds: float
    prompt_tokens: int
    prompt_seconds: float
    """From the start until every prompt was read; 0 where that is not apart."""
    peak_bytes: int
    """The most memory MLX held, weights included."""
    answers: list[list[int]] = field(repr=False, default_factory=list)
    host_ms: float = 0.0
    """Of one step: building it and handing it to the device."""
    wait_ms: float = 0.0
    """Of one step: waiting for its tokens."""

    @property
    def rate(self) -> float:
        """Generated tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0
