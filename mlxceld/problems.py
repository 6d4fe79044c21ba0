"""One shape for everything a user can get wrong, and the one place it is rendered.

Whoever finds a problem says where it is, what was found and what to do; nobody
prints. The command line, `--check-config` and the log all render the same value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or worth knowing.

    `where` names the place as its user knows it (`mlxcel.toml:12`,
    `environment variable LLAMA_ARG_CTX_SIZE`, `--parallel`) and is empty when the
    problem belongs to no single place.
    """

    what: str
    where: str = ""
    hint: str = ""

    def render(self) -> str:
        """One line, and a second one that starts with `hint:` where there is a hint."""
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}\n  hint: {self.hint}" if self.hint else line


class Refused(Exception):
    """The daemon will not start (or reload) with what it was given.

    Holds every problem found, so that a user mends a file once and not once per
    mistake.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(p.render() for p in self.problems))


class Unreachable(Refused):
    """What is asked for may be right, but cannot be had now: a later start may do."""
