"""Reads Podman's `.container` units.

Podman makes a service of them whose `ExecStart=` is `podman run IMAGE` with the words
of `Exec=`. So two environments count: that of `[Service]` fills `${NAME}` into the
words, and that of `[Container]` is what the server sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mlxceld.problems import Problem, Refused

from ..found import Found, Place, Remark, Variable, Word
from . import env
from .containers import container_run, handed_on, in_container
from .script import found
from .systemd import (
    assignments,
    load,
    surroundings,
    variables_of,
)
from .units import Expansion, Unit, Unquotable, specified, split
from .words import Files, no_files

_OPTIONS = {
    "PublishPort": "--publish",
    "Entrypoint": "--entrypoint",
    "WorkingDir": "--workdir",
}


def read(
    text: str,
    file: str,
    *,
    drop_ins: Iterable[tuple[str, str]] = (),
    files: Files = no_files,
    before: Sequence[Variable] = (),
) -> list[Found]:
    """The server that a container unit starts. Raises Refused."""
    unit = load(text, file, drop_ins)
    around = surroundings(unit, files, before)
    expansion = Expansion(around.lookup, around.missing)
    image = unit.last("Container", "Image")
    if image is None:
        raise Refused([Problem("there is no `Image=` in `[Container]`", file)])
    try:
        words = _run_words(unit, expansion)
    except Unquotable:
        raise Refused([Problem("quotes are not closed", file)]) from None
    inside, remarks, read_files = _inside(unit, files, expansion)
    run = container_run([Word("podman", image.place), *words])
    start = in_container(run) if run else None
    if start is None:
        return []
    start = handed_on(start, around.variables)
    start = replace(start, environment=(*inside, *start.environment))
    one = found("quadlet", unit.name, start, file, [*around.remarks, *remarks])
    every = dict.fromkeys((*unit.files, *around.files, *read_files))
    return [replace(one, files=tuple(every))]


def _run_words(unit: Unit, expansion: Expansion) -> list[Word]:
    """The words of the `podman run` that Podman would write, without environment."""
    image = unit.last("Container", "Image")
    assert image is not None
    words = [Word("run", Place(unit.file))]
    for key, flag in _OPTIONS.items():
        for setting in unit.all("Container", key):
            words += [Word(flag, setting.place), Word(setting.value, setting.place)]
    for setting in unit.all("Container", "PodmanArgs"):
        words += split(setting)
    words.append(Word(image.value, image.place))
    if arguments := unit.last("Container", "Exec"):
        words += split(arguments)
    return expansion.words([specified(word, unit) for word in words])


def _inside(
    unit: Unit, files: Files, expansion: Expansion
) -> tuple[list[Variable], list[Remark], list[str]]:
    """The environment inside the container: `Environment=` wins over env files."""
    variables: list[Variable] = []
    remarks: list[Remark] = []
    read_files: list[str] = []
    for setting in unit.all("Container", "EnvironmentFile"):
        word = specified(Word(setting.value, setting.place), unit)
        text = None if word.doubt else files(word.text)
        if text is None:
            what = f"`{word.text}` was not read, and may set options"
            remarks.append(Remark(what, setting.place, review=True))
            continue
        content = env.docker(text, word.text)
        variables += content.variables
        remarks += content.remarks
        read_files.append(word.text)
    words, more = assignments(unit, "Container", "Environment")
    # `[0]` is left out of the expansion, as the program of a command line is.
    filled = expansion.words([Word("", Place()), *words])[1:]
    return variables + variables_of(filled), remarks + more, read_files
