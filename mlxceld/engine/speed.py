"""How long the next prompt chunk may be, learned from how long the last ones took.

A running stream waits for its next token through one decode step and one chunk, so a
chunk gets what the step leaves of the wanted gap. Reading gets dearer as more is held,
for attention goes over all of it: what a token costs is remembered by the length of
the text before it, and the newest measurement counts most.
"""

from __future__ import annotations

FIRST = 64
"""Tokens that tell how fast this machine reads, where a chunk's time is bounded."""

_BAND = 1024
"""Tokens held before a chunk, up to which its cost is remembered as one; further bands
are each twice as long as the one before."""

_UNSEEN = 1.5
"""How much dearer a token is taken to be in a band not yet read in, for each band."""

_LEAST = 1e-9
"""Seconds that a token takes at least, for clocks that did not move."""


class Speed:
    """What a prompt token costs here, in seconds, and so what a chunk may hold."""

    def __init__(self) -> None:
        self._costs: dict[int, float] = {}

    def tokens(self, held: int, seconds: float) -> int | None:
        """How many tokens after `held` ones can be read in `seconds`.

        None before anything has been read.
        """
        cost = self._cost(held)
        # A hair more, so that a speed that divides evenly is not rounded down.
        return None if cost is None else int(seconds / cost * (1 + 1e-9))

    def learn(self, held: int, n: int, seconds: float, wanted: int) -> None:
        """A chunk of `n` tokens after `held` ones took `seconds`.

        A slow-down counts in full at once, for running streams feel it; a speed-up by
        half. Both change all that is known: they are the machine's. A chunk that was
        much shorter than `wanted`, the end of a prompt, is dear by the token and tells
        of a slow-down only when it took longer than the wanted one should have.
        """
        seconds = max(seconds, n * _LEAST)
        band, cost, old = _band(held), seconds / n, self._cost(held)
        if old is not None:
            if 2 * n < wanted:
                cost = min(cost, max(old, seconds / wanted))
            if band in self._costs:
                cost = max(cost, (cost + old) / 2)
                change = cost / old
                self._costs = {k: v * change for k, v in self._costs.items()}
        self._costs[band] = cost

    def _cost(self, held: int) -> float | None:
        """Seconds of one token after `held` others: as measured, or the nearest."""
        band = _band(held)
        if band in self._costs or not self._costs:
            return self._costs.get(band)
        below = [known for known in self._costs if known < band]
        if below:
            return self._costs[max(below)] * _UNSEEN ** (band - max(below))
        return self._costs[min(self._costs)]


def _band(held: int) -> int:
    return (held // _BAND).bit_length()
