"""Histograms of what a client feels: waiting, the first token, the next ones.

They are kept in the front, which sees when a request comes in, and go on when the
engine is started again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """A histogram of Prometheus: cumulative buckets, sum and count. Seconds."""

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.help = help
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count a value `times` times; a bucket holds values up to its bound."""
        self._counts[bisect_left(self._bounds, seconds)] += times
        self._sum += seconds * times

    @property
    def seen(self) -> tuple[int, float]:
        """How many values, and their sum in seconds."""
        return sum(self._counts), self._sum

    def lines(self) -> Iterator[str]:
        """The lines of the exposition text."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} histogram"
        total = 0
        for bound, count in zip(self._bounds, self._counts, strict=False):
            total += count
            yield f'{self.name}_bucket{{le="{bound:g}"}} {total}'
        total += self._counts[-1]
        yield f'{self.name}_bucket{{le="+Inf"}} {total}'
        yield f"{self.name}_sum {self._sum:.9g}"
        yield f"{self.name}_count {total}"


class Timings:
    """The histograms of all requests."""

    def __init__(self) -> None:
        self.queue = Histogram(
            "mlxcel_queue_seconds",
            "Time that prompts waited for their slot",
            (0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300),
        )
        self.first_token = Histogram(
            "mlxcel_time_to_first_token_seconds",
            "Time from the arrival of a request to its first token",
            (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
        )
        self.between = Histogram(
            "mlxcel_inter_token_seconds",
            "Time between one token of an answer and the next",
            (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5),
        )

    def lines(self) -> Iterator[str]:
        """The lines of the exposition text of all of them."""
        for histogram in (self.queue, self.first_token, self.between):
            yield from histogram.lines()
