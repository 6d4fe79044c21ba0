"""Which prompts are read together: a choice of numbers, without slots or devices.

Several short prompts as one batch cost less than one after the other, as long as little
of the batch is filling and none of the work would have been saved by waiting: a prompt
that begins like an older one copies that text once it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlxceld.working import power

MOST_ROWS = 16
"""Prompts that are looked at for one batch."""

COMMON = 32
"""Tokens that a prompt has to share with an older one, beyond what its slot holds, so
that it waits for it."""

_FILLING = 0.25
"""The share of a batch that may be filling, beyond that of chunks read alone."""

_LEAST_WIDTH = 32
"""Tokens of a row at least, where chunks have a grain."""


def width(lengths: Iterable[int], grain: int) -> int:
    """Tokens of a row of a batch of chunks of these lengths.

    With a grain a power of 2: batches should have few shapes then.
    """
    longest = max(lengths)
    return longest if grain == 1 else max(_LEAST_WIDTH, power(longest))


def filled(n: int, grain: int) -> int:
    """`n` tokens filled up to a multiple of the grain."""
    return -(-n // grain) * grain


def fill(rests: Sequence[int], most: int, grain: int = 1) -> list[int]:
    """How many tokens of each prompt are read as one batch, 0 for those left out.

    `rests` are the unread tokens of prompts in order of arrival, `most` bounds the
    tokens of the batch, filling included. The oldest is part of it, with its whole rest
    or with `most` tokens; of the others it may be beginnings. Among all widths of the
    batch the one is taken that reads the most tokens, the least for the same number.

    Chunks that are read alone are filled up to the `grain`. Where it is not 1, batches
    should have few shapes: whole prompts only, in rows whose number is a power of 2.
    """
    oldest = min(rests[0], most)
    best = [oldest] + [0] * (len(rests) - 1)
    lengths = {most // rows for rows in range(2, len(rests) + 1)}.union(rests)
    for wide in sorted({width([length], grain) for length in lengths}):
        if oldest <= wide <= most // 2:
            takes = _row_up(rests, wide, most, grain)
            best = takes if sum(takes) > sum(best) else best
    return best


def _row_up(rests: Sequence[int], wide: int, most: int, grain: int) -> list[int]:
    """The takes of a batch with rows of `wide` tokens: in order of arrival, the oldest
    in any case, the others where they fill half a row at least.

    Zeros where too much more would be computed than for each prompt alone.
    """
    rows: list[int] = []
    alone = 0
    for index, rest in enumerate(rests):
        if (len(rows) + 1) * wide > most:
            break
        full = filled(min(rest, wide), grain)
        if index and (2 * full < wide or (grain > 1 and rest > wide)):
            continue
        rows.append(index)
        alone += full
    if grain > 1:
        for index in rows[1 << len(rows).bit_length() - 1 :]:
            alone -= filled(rests[index], grain)
        del rows[1 << len(rows).bit_length() - 1 :]
    takes = [0] * len(rests)
    if alone >= (1 - _FILLING) * len(rows) * wide:
        for index in rows:
            takes[index] = min(rests[index], wide)
    return takes


def shares(prompt: Sequence[int], held: int, older: Sequence[int]) -> bool:
    """Whether so much of the prompt is in an older one that waiting for it pays.

    `held` tokens of the prompt need not be read in any case.
    """
    n = held + COMMON + 1
    return len(prompt) >= n <= len(older) and prompt[:n] == older[:n]
