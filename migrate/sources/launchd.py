"""Reads launchd's property lists, with the line of every argument."""

from __future__ import annotations

import plistlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from xml.parsers import expat

from mlxceld.problems import Problem, Refused

from ..found import Found, Place, Variable, Word
from .script import found, script_unread
from .shell import Unreadable
from .walk import started, unread
from .words import Files, no_files

# What plistlib raises for lists that are none is not one kind of error.
_NO_LIST: tuple[type[Exception], ...] = (
    *(plistlib.InvalidFileException, ValueError, AttributeError),
    *(LookupError, TypeError, OverflowError),
)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)


def quiet(data: bytes) -> bytes:
    """A property list whose comments are blank, with every byte at its place.

    launchd takes `--` in a comment, as in one around an old argument; no XML parser
    does.
    """
    blank = re.compile(rb"[^\n]")
    return _COMMENT.sub(lambda match: blank.sub(b" ", match[0]), data)


@dataclass(slots=True)
class _Lines:
    """The line of every value of an XML property list, by its path of keys."""

    found: dict[tuple[str | int, ...], int] = field(default_factory=dict)
    path: list[str | int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    key: str = ""
    text: str | None = None

    def read(self, data: bytes) -> None:
        parser = expat.ParserCreate()

        def start(name: str, _attributes: Mapping[str, str]) -> None:
            if name == "plist":
                return
            if name == "key":
                self.text = ""
                return
            if self.kinds:
                if self.kinds[-1] == "array":
                    number = self.path[-1]
                    assert isinstance(number, int)
                    self.path[-1] = number + 1
                else:
                    self.path[-1] = self.key
            self.found[tuple(self.path)] = parser.CurrentLineNumber
            if name in ("array", "dict"):
                self.kinds.append(name)
                self.path.append(-1 if name == "array" else "")

        def end(name: str) -> None:
            if name == "key":
                self.key, self.text = self.text or "", None
            elif name in ("array", "dict"):
                self.kinds.pop()
                self.path.pop()

        def characters(text: str) -> None:
            if self.text is not None:
                self.text += text

        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = characters
        parser.Parse(data, True)


def load(data: bytes, file: str) -> tuple[dict[str, Any], dict[Any, int]]:
    """The values of a property list and the lines of an XML one. Raises Refused."""
    lines = _Lines()
    is_binary = data.startswith(b"bplist")
    try:
        if is_binary:
            values = plistlib.loads(data)
        else:
            data = quiet(data)
            values = plistlib.loads(data, fmt=plistlib.FMT_XML)
            lines.read(data)
    except expat.ExpatError as error:
        where = f"{file}:{error.lineno}" if error.lineno else file
        what = f"no valid XML: {expat.errors.messages.get(error.code, error.args[0])}"
        hint = "the `<?xml` line has to be the first one"
        blank = not data.startswith(b"<") and data.lstrip().startswith(b"<?xml")
        raise Refused([Problem(what, where, hint if blank else "")]) from None
    except _NO_LIST as error:
        raise Refused([Problem(f"no property list: {error}".rstrip(": "), file)]) from (
            None
        )
    if not isinstance(values, dict):
        raise Refused([Problem("found no dictionary, wanted a launchd job", file)])
    return values, lines.found


def read(
    data: bytes,
    file: str,
    *,
    files: Files = no_files,
    before: Sequence[Variable] = (),
) -> list[Found]:
    """The servers that a job starts. Raises Refused.

    launchd expands nothing: no variables, no `~`.
    """
    values, lines = load(data, file)
    words = _arguments(values, lines, file)
    if not words:
        what = "there is no `ProgramArguments` and no `Program`"
        raise Refused([Problem(what, file)])
    variables = list(before)
    environment = values.get("EnvironmentVariables")
    if isinstance(environment, dict):
        for name, value in environment.items():
            place = Place(file, lines.get(("EnvironmentVariables", name), 0), name)
            variables.append(
                Variable(name, _text(value), place, _doubt(value, "variable"))
            )
    try:
        starts = started(words, variables, files, file=file)
        if not starts and (missing := unread(words, files)):
            raise Refused([script_unread(missing)])
    except Unreadable as error:
        raise Refused([Problem(error.what, f"{file}:{error.line}")]) from None
    label = values.get("Label")
    name = label if isinstance(label, str) else file
    folder = values.get("WorkingDirectory", "/")
    said = values.get("UserName")
    user = said if isinstance(said, str) and said != "root" else ""
    folder = folder if isinstance(folder, str) else ""
    return [
        replace(one, folder=one.folder or folder, user=user)
        for one in (found("launchd", name, start, file) for start in starts)
    ]


def _arguments(values: dict[str, Any], lines: dict[Any, int], file: str) -> list[Word]:
    program = values.get("Program")
    arguments = values.get("ProgramArguments")
    words: list[Word] = []
    if isinstance(arguments, list):
        for number, value in enumerate(arguments):
            line = lines.get(("ProgramArguments", number), 0)
            place = Place(file, line, "ProgramArguments")
            words.append(Word(_text(value), place, _doubt(value, "argument")))
    if isinstance(program, str):
        place = Place(file, lines.get(("Program",), 0), "Program")
        # `Program` is what runs; the first argument is only the name it is told.
        words = [Word(program, place), *words[1:]]
    return words


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _doubt(value: object, what: str) -> str:
    if isinstance(value, str):
        return ""
    return f"launchd takes only `<string>` as an {what}".replace("an v", "a v")
