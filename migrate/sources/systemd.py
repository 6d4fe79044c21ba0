"""Reads systemd services: drop-ins, environment, and the servers of `ExecStart=`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mlxceld.problems import Problem, Refused

from ..found import Found, Place, Remark, Variable, Word
from . import env
from .script import found, script_unread
from .shell import Unreadable
from .units import (
    Expansion,
    Unit,
    Unquotable,
    parse,
    specified,
    split,
)
from .walk import started, unread
from .words import Files, no_files

_PREFIX = re.compile(r"[-@:+!|]*")


@dataclass(frozen=True, slots=True)
class Around:
    """The environment that systemd gives to a service."""

    variables: tuple[Variable, ...]
    remarks: tuple[Remark, ...]
    files: tuple[str, ...]
    """Which env files were read."""
    missing: str = ""
    """Why variables may be missing: an env file that was not read."""

    def lookup(self, name: str) -> Word | None:
        """The value of a variable, the last one of its name."""
        for variable in reversed(self.variables):
            if variable.name == name:
                return Word(variable.value, variable.place, variable.doubt)
        return None


def load(
    text: str, file: str, drop_ins: Iterable[tuple[str, str]] = (), name: str = ""
) -> Unit:
    """A unit from its text and that of its drop-ins: pairs of file and text."""
    settings = parse(text, file)
    files = [file]
    for drop_in, content in drop_ins:
        settings += parse(content, drop_in)
        files.append(drop_in)
    is_user = re.search(r"systemd/user/|/\.config/", file) is not None
    return Unit(
        name or file.rpartition("/")[2], file, tuple(settings), is_user, tuple(files)
    )


def assignments(unit: Unit, section: str, key: str) -> tuple[list[Word], list[Remark]]:
    """The words of all assignments of a key, specifiers filled in."""
    words: list[Word] = []
    remarks: list[Remark] = []
    for setting in unit.all(section, key):
        try:
            words += [specified(word, unit) for word in split(setting)]
        except Unquotable:
            what = f"quotes are not closed: systemd leaves this `{key}=` out"
            remarks.append(Remark(what, setting.place, review=True))
    return words, remarks


def variables_of(words: Iterable[Word]) -> list[Variable]:
    """`A=1` words as variables; others are no assignments and are left out."""
    found_: list[Variable] = []
    for word in words:
        name, said, value = word.text.partition("=")
        if said and re.fullmatch(r"[A-Za-z_]\w*", name):
            place = replace(word.place, name=name)
            found_.append(Variable(name, value, place, word.doubt))
    return found_


def surroundings(unit: Unit, files: Files, before: Sequence[Variable] = ()) -> Around:
    """What `[Service]` sets: env files win over `Environment=`."""
    words, remarks = assignments(unit, "Service", "Environment")
    variables = [*before, *variables_of(words)]
    read: list[str] = []
    missing = ""
    for setting in unit.all("Service", "EnvironmentFile"):
        optional = setting.value.startswith("-")
        named = Word(setting.value.removeprefix("-"), setting.place)
        word = specified(named, unit)
        text = None if word.doubt else files(word.text)
        if text is not None:
            content = env.systemd(text, word.text)
            variables += content.variables
            remarks += content.remarks
            read.append(word.text)
        elif optional and not word.doubt:
            what = f"`{word.text}` is not here; systemd would go on without it"
            remarks.append(Remark(what, setting.place))
            missing = missing or f"`{word.text}` may set it"
        else:
            what = f"`{word.text}` was not read, and may set options"
            remarks.append(Remark(what, setting.place, review=True))
            missing = f"`{word.text}` may set it"
    for name in unit.all("Service", "PassEnvironment"):
        for word in split(name):
            if word.text.startswith(("LLAMA_", "MLXCEL")):
                what = f"`{word.text}` comes from the manager's environment"
                remarks.append(Remark(what, name.place, review=True))
    gone = {
        word.text
        for setting in unit.all("Service", "UnsetEnvironment")
        for word in split(setting)
    }
    kept = tuple(
        variable
        for variable in variables
        if variable.name not in gone and f"{variable.name}={variable.value}" not in gone
    )
    return Around(kept, tuple(remarks), tuple(read), missing)


def command_lines(unit: Unit, key: str = "ExecStart") -> list[list[Word]]:
    """The command lines of a key, before variables; a prefix of systemd stays on.

    Raises Unquotable.
    """
    lines: list[list[Word]] = []
    for setting in unit.all("Service", key):
        line: list[Word] = []
        for word in split(setting):
            if word.text == ";":
                lines.append(line)
                line = []
            else:
                line.append(word)
        lines.append(line)
    return [line for line in lines if line]


def _program_first(words: list[Word]) -> tuple[list[Word], bool]:
    """A command line without systemd's prefixes, and whether variables are filled."""
    first = words[0]
    match = _PREFIX.match(first.text)
    prefix = match[0] if match else ""
    rest = [replace(first, text=first.text[len(prefix) :]), *words[1:]]
    if "@" in prefix and len(rest) > 1:
        # The second word is only what the program is told its name is.
        rest.pop(1)
    return rest, ":" not in prefix


def read(
    text: str,
    file: str,
    *,
    drop_ins: Iterable[tuple[str, str]] = (),
    name: str = "",
    files: Files = no_files,
    before: Sequence[Variable] = (),
) -> list[Found]:
    """The servers that a service starts. Raises Refused.

    `name` is the unit's where the file has another one (an instance of a template);
    `before` are variables from outside, which the unit's own override.
    """
    unit = load(text, file, drop_ins, name)
    around = surroundings(unit, files, before)
    remarks = [*around.remarks, *_general(unit)]
    try:
        lines = command_lines(unit)
    except Unquotable as error:
        where = next(s.place for s in unit.settings if s.value == str(error))
        raise Refused([Problem("quotes are not closed", str(where))]) from None
    result: list[Found] = []
    for line in lines:
        words = [specified(word, unit) for word in line]
        words = [replace(w, text=";") if w.text == r"\;" else w for w in words]
        words, fills = _program_first(words)
        if fills:
            words = Expansion(around.lookup, around.missing).words(words)
        try:
            starts = started(words, around.variables, files, file=file)
            if not starts and (missing := unread(words, files)):
                raise Refused([script_unread(missing)])
        except Unreadable as error:
            raise Refused([Problem(error.what, f"{file}:{error.line}")]) from None
        for start in starts:
            number = f" ({len(result) + 1})" if result else ""
            one = found("systemd", unit.name + number, start, file, remarks)
            read_files = dict.fromkeys((*unit.files, *around.files, *one.files))
            folder = one.folder or ("" if start.is_container else _folder(unit))
            one = replace(
                one,
                files=tuple(read_files),
                folder=folder,
                commands=len(lines),
                user=_user(unit),
            )
            result.append(one)
    return result


def _folder(unit: Unit) -> str:
    """`WorkingDirectory=`; without one a service runs in the root folder."""
    setting = unit.last("Service", "WorkingDirectory")
    if setting is None:
        return "" if unit.is_user else "/"
    word = specified(Word(setting.value.removeprefix("-"), setting.place), unit)
    return "" if word.doubt or word.text.startswith("~") else word.text


def _user(unit: Unit) -> str:
    """`User=`, where that is not root."""
    setting = unit.last("Service", "User")
    word = specified(Word(setting.value, setting.place), unit) if setting else None
    return "" if word is None or word.text in ("root", "0") else word.text


def _general(unit: Unit) -> list[Remark]:
    remarks: list[Remark] = []
    if unit.name.rpartition(".")[0].endswith("@"):
        what = "a template: `%i` is another text for each instance"
        remarks.append(Remark(what, Place(unit.file)))
    return remarks
