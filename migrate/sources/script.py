"""Reads start scripts, and makes what other readers found into one shape."""

from __future__ import annotations

from collections.abc import Sequence

from mlxceld.problems import Problem, Refused

from ..found import Found, Kind, Remark, Variable, Word
from .shell import Unreadable
from .walk import ended, walk_of
from .words import Files, Start, no_files


def found(
    kind: Kind, name: str, start: Start, file: str, remarks: Sequence[Remark] = ()
) -> Found:
    """A start as what one source says."""
    files = dict.fromkeys((*((file,) if file else ()), *start.files))
    return Found(
        kind=kind,
        name=name,
        program=start.program,
        command=start.command,
        words=start.words,
        environment=start.environment,
        remarks=(*remarks, *start.remarks),
        files=tuple(files),
        folder=start.folder,
        is_container=start.is_container,
    )


def script_unread(word: Word) -> Problem:
    """The problem of a unit whose script is not on this machine."""
    what = f"it starts the script `{word.text}`, which cannot be read here"
    return Problem(what, str(word.place), "give the script itself")


def read(
    text: str,
    file: str,
    *,
    environment: Sequence[Variable] = (),
    arguments: tuple[Word, ...] | None = None,
    files: Files = no_files,
) -> list[Found]:
    """Every server that a script starts. Raises Refused."""
    walk = walk_of(file, environment, arguments, files, 1)
    try:
        walk.run(text)
        if not walk.starts:
            walk.run_functions()
    except Unreadable as error:
        raise Refused([Problem(error.what, f"{file}:{error.line}")]) from None
    starts = ended(walk, ())
    many = len(starts) > 1
    return [
        found("script", f"{file} ({number})" if many else file, start, file)
        for number, start in enumerate(starts, 1)
    ]
