"""Reads command lines: one line of shell, or words that were given one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlxceld.problems import Problem, Refused

from ..found import Found, Place, Variable, Word
from . import script
from .expand import State, expand
from .script import found
from .shell import Unreadable
from .statements import commands
from .walk import started
from .words import Files, Start, no_files

SHOWN = "command line"
"""What messages call a command that stands in no file."""


def read(
    text: str,
    file: str = "",
    *,
    environment: Sequence[Variable] = (),
    files: Files = no_files,
) -> list[Found]:
    """The servers of a line of shell, or of several. Raises Refused.

    A line that begins with a flag is taken for the arguments of a server.
    """
    if text.lstrip().startswith("-"):
        return [_arguments(text, file, environment)]
    try:
        result = script.read(text, file, environment=environment, files=files)
    except Refused as error:
        where = [replace(p, where=p.where.strip(":")) for p in error.problems]
        raise Refused(where) from None
    return [replace(one, kind="command", name=one.name or SHOWN) for one in result]


def _arguments(text: str, file: str, environment: Sequence[Variable]) -> Found:
    state = State(file)
    try:
        first = commands(text)[0]
    except Unreadable as error:
        raise Refused([Problem(error.what, file or SHOWN)]) from None
    words = [word for raw in first.words for word in expand(raw, state)]
    remarks = tuple(state.remarks)
    start = Start(None, (), tuple(words), tuple(environment), remarks)
    return found("command", file or SHOWN, start, file)


def read_words(
    texts: Sequence[str],
    *,
    environment: Sequence[Variable] = (),
    files: Files = no_files,
) -> Found:
    """The server of words that a shell has cut already. Raises Refused.

    Words that start no server that is known are kept, without a program.
    """
    words = tuple(Word(text, Place()) for text in texts)
    try:
        starts = started(words, environment, files)
    except Unreadable as error:
        raise Refused([Problem(error.what, SHOWN)]) from None
    if starts:
        return found("command", SHOWN, starts[0], "")
    named = 0 if words and words[0].text.startswith("-") else 1
    start = Start(None, tuple(texts[:named]), words[named:], tuple(environment))
    return found("command", SHOWN, start, "")
