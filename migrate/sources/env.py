"""Reads files of environment variables, in the three ways they are read in the field.

systemd takes quotes and backslashes and expands nothing; `docker run --env-file` and
Podman take every line as it stands; Compose reads quotes, comments behind values and
`${VAR}`. A file that is given alone may be meant for any of them: where they read
different values, the value is in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..found import Found, Place, Remark, Variable
from .interpolate import interpolate

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class EnvFile:
    """What one file sets, in its order."""

    variables: tuple[Variable, ...]
    remarks: tuple[Remark, ...] = ()


def systemd(text: str, file: str) -> EnvFile:
    """As `EnvironmentFile=` reads it.

    A quote counts only at the beginning of a value or after another quoted piece; a
    backslash outside quotes is dropped; a comment needs a line of its own. Names that
    are none, `export A` among them, are left out by systemd.
    """
    variables: list[Variable] = []
    remarks: list[Remark] = []
    at, line, size = 0, 1, len(text)
    while at < size:
        while at < size and text[at] in " \t\r\n":
            line += text[at] == "\n"
            at += 1
        if at >= size:
            break
        first = line
        if text[at] in "#;":
            at = _end_of_line(text, at)
            continue
        end = _end_of_line(text, at)
        equals = text.find("=", at, end)
        if equals < 0:
            at = end
            continue
        name = text[at:equals].rstrip()
        value, at = _systemd_value(text, equals + 1)
        line += text.count("\n", equals, at)
        place = Place(file, first, name)
        if _NAME.fullmatch(name):
            variables.append(Variable(name, value, place))
        else:
            what = f"`{name}` is no name of a variable: systemd leaves the line out"
            remarks.append(Remark(what, place, review=name.startswith("export ")))
    return EnvFile(tuple(variables), tuple(remarks))


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _systemd_value(text: str, at: int) -> tuple[str, int]:
    """A value that begins at `at`, and where its line ends."""
    out = ""
    keep = 0
    """Up to here, blanks at the end belong to the value."""
    state = "before"
    while at < len(text):
        char = text[at]
        following = text[at + 1 : at + 2]
        at += 1
        if state == "single":
            if char == "'":
                state = "before"
            else:
                out += char
            keep = len(out)
        elif state == "double":
            if char == '"':
                state = "before"
            elif char == "\\" and following:
                at += 1
                if following in '"\\`$':
                    out += following
                elif following != "\n":
                    out += "\\" + following
            else:
                out += char
            keep = len(out)
        elif char == "\n":
            return out[:keep] + out[keep:].rstrip(), at - 1
        elif char == "\\":
            if following != "\n":
                out += following
            at += 1
            state, keep = "value", len(out)
        elif state == "before" and char in "'\"":
            state = "single" if char == "'" else "double"
        elif state == "before" and char in " \t\r":
            continue
        else:
            state = "value"
            out += char
    return out[:keep] + out[keep:].rstrip(), at


def docker(text: str, file: str) -> EnvFile:
    """As `docker run --env-file` and Podman read it: no quotes, no escapes.

    A bare name hands on a variable of whoever runs the command, which is not known.
    """
    variables: list[Variable] = []
    remarks: list[Remark] = []
    for line, row in enumerate(text.split("\n"), 1):
        row = row.rstrip("\r").lstrip()
        if not row or row.startswith("#"):
            continue
        name, said, value = row.partition("=")
        place = Place(file, line, name)
        if not said:
            remarks.append(_unset(name, place))
            continue
        variables.append(Variable(name, value, place))
        if value[:1] in ("'", '"') and value[-1:] == value[:1]:
            what = f"the quotes around the value of `{name}` are part of it here"
            remarks.append(Remark(what, place))
    return EnvFile(tuple(variables), tuple(remarks))


def _unset(name: str, place: Place) -> Remark:
    if _NAME.fullmatch(name):
        return Remark(f"`{name}` has no value here: unset", place)
    # What it is instead is not known, and it may be a secret.
    return Remark("sets no variable", Place(place.file, place.line))


def dotenv(
    text: str, file: str, lookup: Callable[[str], str | None] | None = None
) -> EnvFile:
    """As Compose reads `.env` and `env_file`.

    `lookup` gives variables from outside the file; the file's own come first.
    """
    variables: list[Variable] = []
    remarks: list[Remark] = []
    known: dict[str, str] = {}

    def value_of(name: str) -> str | None:
        if name in known:
            return known[name]
        return lookup(name) if lookup else None

    rows = text.split("\n")
    at = 0
    while at < len(rows):
        line = at + 1
        row = rows[at].rstrip("\r").strip()
        at += 1
        row = re.sub(r"^export\s+", "", row)
        if not row or row.startswith("#"):
            continue
        name, said, value = row.partition("=")
        name, value = name.strip(), value.strip()
        place = Place(file, line, name)
        if not said:
            remarks.append(_unset(name, place))
            continue
        quote = value[:1] if value[:1] in ("'", '"') else ""
        if quote:
            while _closing(value, quote) < 0 and at < len(rows):
                value += "\n" + rows[at].rstrip("\r")
                at += 1
            end = _closing(value, quote)
            value = value[1:end] if end > 0 else value
        else:
            value = re.sub(r"(^|\s)#.*$", "", value).rstrip()
        doubt = ""
        if quote != "'":
            result = interpolate(value, value_of)
            value, doubt = result.text, result.doubt
            remarks += [Remark(note, place) for note in result.notes]
        if quote == '"':
            value = re.sub(r'\\(["\\$])', r"\1", value).replace("\\n", "\n")
        known[name] = value
        variables.append(Variable(name, value, place, doubt))
    return EnvFile(tuple(variables), tuple(remarks))


def _closing(value: str, quote: str) -> int:
    at = 1
    while at < len(value):
        if value[at] == "\\" and quote == '"':
            at += 1
        elif value[at] == quote:
            return at
        at += 1
    return -1


def alone(text: str, file: str) -> EnvFile:
    """A file whose reader is not known.

    The value is the one Compose would read, quotes off. Where systemd would read
    another one the value is in doubt; that Docker and Podman would keep the quotes is
    only remarked.
    """
    plain = dotenv(text, file)
    others: Mapping[str, str] = {v.name: v.value for v in systemd(text, file).variables}
    quoted = {
        remark.place.line: remark
        for remark in docker(text, file).remarks
        if "quotes" in remark.text
    }
    variables: list[Variable] = []
    last = {variable.name: variable for variable in plain.variables}
    for variable in plain.variables:
        other = others.get(variable.name)
        doubt = variable.doubt
        if other is not None and other != last[variable.name].value and not doubt:
            doubt = "systemd would read another value than Compose"
        variables.append(replace(variable, doubt=doubt))
    remarks = list(plain.remarks)
    if quoted:
        where = next(iter(quoted.values())).place
        what = "with `docker run --env-file` the quotes would be part of the values"
        remarks.append(Remark(what, where))
    return EnvFile(tuple(variables), tuple(remarks))


def read(text: str, file: str) -> list[Found]:
    """A file of variables as a source of its own."""
    content = alone(text, file)
    return [
        Found(
            kind="env",
            name=file,
            environment=content.variables,
            remarks=content.remarks,
            files=(file,),
        )
    ]
