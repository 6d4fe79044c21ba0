"""What a source says, word by word, before anybody asks what it means.

Every reader in `sources` turns one kind of file into this shape and nothing else: it
knows the quoting rules of its format and no option. Where a word was written is kept
to the end, so that the report can name file and line for each of its lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "toml",
    "command",
    "script",
    "env",
    "systemd",
    "launchd",
    "quadlet",
    "compose",
    "ini",
]
"""The kinds of source."""

Program: TypeAlias = Literal["mlxcel-server", "llama-server", "mlx_lm.server"]
"""Whose words they are: the same flag means different things to each of them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written."""

    file: str = ""
    """As the user named it; empty for words given on the tool's own command line."""
    line: int = 0
    """From 1; 0 where there are no lines."""
    name: str = ""
    """The directive, variable or key around it: `ExecStart`, `LLAMA_ARG_CTX_SIZE`."""

    def __str__(self) -> str:
        spot = f"{self.file}:{self.line}" if self.file and self.line else self.file
        return f"{spot}: {self.name}" if spot and self.name else spot or self.name


@dataclass(frozen=True, slots=True)
class Word:
    """One argument as the program would get it."""

    text: str
    place: Place
    doubt: str = ""
    """Why the program may get something else; empty when it certainly gets this.

    A phrase without a full stop: "`$(nproc)` is not run here".
    """


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable as the program would get it."""

    name: str
    value: str
    place: Place
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a file that holds values instead of words (TOML)."""

    key: str
    """Dotted: `engine.ctx_size`, or `ctx_size` at the top level."""
    value: Any
    place: Place


@dataclass(frozen=True, slots=True)
class Remark:
    """Something in the source that is no option, or that could not be followed."""

    text: str
    place: Place
    review: bool = False
    """Whether the meaning of the set-up may hang on it."""


@dataclass(frozen=True, slots=True)
class Found:
    """One set-up of one server. A file may hold several (services, presets)."""

    kind: Kind
    name: str
    """What the report calls it: the unit, service, section or file."""
    program: Program | None = None
    """None where the source does not tell (an env file)."""
    command: tuple[str, ...] = ()
    """The words that start the program, without its arguments, as written."""
    words: tuple[Word, ...] = ()
    """The arguments after the program."""
    environment: tuple[Variable, ...] = ()
    """In the order in which they take effect: a later one of a name wins."""
    entries: tuple[Entry, ...] = ()
    remarks: tuple[Remark, ...] = ()
    files: tuple[str, ...] = ()
    """Every file that was read, the named one first."""
    folder: str = ""
    """From where the program sees relative names (`WorkingDirectory=`, `working_dir`).

    Empty where the source does not tell; such names are then left for review.
    """
    is_container: bool = False
    """Whether it runs inside a container, where files have other names."""
    commands: int = 1
    """How many commands its unit runs; a drop-in would replace them all."""
    user: str = ""
    """Who runs it (`User=`, `UserName`); empty where that is who starts it."""
