"""What is asked of an engine: prompts, lengths of answers, and when they arrive."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """One request: a prompt of tokens and the number of tokens wanted."""

    prompt: tuple[int, ...]
    n_predict: int
    arrives: int = 0
    """Turns of the loop before it is there."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A set of requests."""

    name: str
    jobs: tuple[Job, ...]
    steady: bool = True
    """Whether all rows run from the first to the last token: then only the time after
    all prompts were read counts, else all of it."""

    @property
    def rows(self) -> int:
        """The most requests that run at once."""
        return len(self.jobs) if self.steady else 8

    @property
    def tokens(self) -> int:
        """Tokens of all prompts and answers."""
        return sum(len(job.prompt) + job.n_predict for job in self.jobs)


def named(name: str, n_vocab: int, n_predict: int) -> Workload:
    """The workload of one of the names that `explain` lists.

    Raises ValueError for any other name.
    """
    chance = random.Random(7)

    def prompt(length: int) -> tuple[int, ...]:
        return tuple(chance.randrange(4, n_vocab) for _ in range(length))

    if name == "joins":
        jobs = tuple(
            Job(prompt(chance.randrange(32, 512)), chance.randrange(8, 96), 4 * turn)
            for turn in range(32)
        )
        return Workload(name, jobs, steady=False)
    if name == "shared":
        common = prompt(1024)
        return Workload(
            name,
            tuple(Job(common + prompt(32), n_predict, 2 * turn) for turn in range(16)),
            steady=False,
        )
    lengths: list[int] = []
    for part in name.split("+"):
        rows, found, length = part.rpartition("x")
        try:
            lengths += [int(length)] * (int(rows) if found else 1)
        except ValueError:
            raise ValueError(f"`{name}` is no workload: {explain()}") from None
    jobs = tuple(Job(prompt(length), n_predict) for length in lengths)
    return Workload(name, jobs)


def explain() -> str:
    """The names in words."""
    return (
        "ROWSxLENGTH (`8x1024`), a sum of them (`16384+7x512`), `joins` (32 requests, "
        "one every four steps) or `shared` (16 requests with 1024 tokens in common)"
    )
