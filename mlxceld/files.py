"""Reads one TOML file of the configuration, and says on which line it is wrong.

Everything that is wrong in a file is found in one go: values of the wrong type, keys
in the wrong table, names of older releases, misspelt keys and tables.
"""

from __future__ import annotations

import contextlib
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlxceld.foreign import CACHE_REUSE, IGNORED
from mlxceld.kinds import BadValue, Boolean, FilePath, Integer, Number, found_toml
from mlxceld.layers import Found, Layer, Origin, Said, bad_value
from mlxceld.near import did_you_mean
from mlxceld.options import BY_KEY, OLD_KEYS, OPTIONS, TABLES
from mlxceld.problems import Problem
from mlxceld.toml_lines import endless_line, error_place, key_lines

VERSION = 2
"""The version of the file format."""


def read_file(path: Path, layer: Layer, found: Found, by: str = "") -> None:
    """Add one TOML file. `by` says who named it, for the case that it is not there."""
    try:
        data = path.read_bytes()
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        where = f"{by} {path}" if by else str(path)
        found.problems.append(Problem(f"cannot be read: {what}", where))
        return
    text = _text(data, path, found)
    if text is None:
        return
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found.problems.append(_syntax_problem(error, text, path))
        return
    except RecursionError:
        found.problems.append(Problem("not valid TOML: nested too deeply", str(path)))
        return
    except ValueError:
        where = f"{path}:{endless_line(text)}"
        found.problems.append(Problem("not valid TOML: an endless number", where))
        return
    _File(path, layer, text, found).read(tables)


def _text(data: bytes, path: Path, found: Found) -> str | None:
    if data.startswith(b"\xef\xbb\xbf"):
        found.problems.append(
            Problem(
                "begins with a byte order mark, which TOML does not allow",
                f"{path}:1",
                "save the file as UTF-8 without BOM",
            )
        )
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found.problems.append(
            Problem(
                f"not UTF-8: found the byte 0x{data[error.start]:02x}",
                f"{path}:{line}",
                "save the file as UTF-8",
            )
        )
        return None


def _syntax_problem(error: tomllib.TOMLDecodeError, text: str, path: Path) -> Problem:
    line, column, message = error_place(error, text)
    row = text.split("\n")[line - 1].strip() if text else ""
    what = f"not valid TOML: {message[:1].lower()}{message[1:]}, at column {column}"
    hint = ""
    key, equals, value = (part.strip() for part in row.partition("="))
    if equals and re.fullmatch(r"[A-Za-z0-9_.-]+", key):
        known = [o for o in OPTIONS if key in (o.name, o.key)]
        if known and not known[0].secret and not re.search("[\"']", value):
            what += f", in `{key} = {value}`"
        else:
            what += f", in the value of `{key}`"
        if re.fullmatch(r"[+-]?0[0-9_]+", value):
            hint = "numbers have no zeros in front"
        elif "overwrite" in message:
            hint = "a key may be given only once"
        elif re.fullmatch(r"[+-]?\.[0-9]+", value):
            hint = "numbers have a digit before the point"
        elif "nvalid value" in message and re.match(r"[A-Za-z_~/.]", value):
            hint = "texts stand in quotes"
            kind = known[0].kind if known else None
            if isinstance(kind, Boolean):
                hint = "write `true` or `false`"
            elif isinstance(kind, Integer | Number):
                hint = f"wanted {kind.wanted}"
    return Problem(what, f"{path}:{line}", hint)


@dataclass(slots=True)
class _File:
    path: Path
    layer: Layer
    text: str
    found: Found

    def read(self, tables: Mapping[str, object]) -> None:
        lines = key_lines(self.text)
        problems: list[tuple[int, Problem]] = []
        for key, value in tables.items():
            line = lines.get((key,), (0, 0))[0]
            if key == "version":
                self._version(value, line, problems)
            elif key not in TABLES:
                problem = (
                    self._unknown_table(key, line)
                    if isinstance(value, dict | list) and key not in _NAMES
                    else self._unknown("", key, line)
                )
                problems.append((line, problem))
            elif not isinstance(value, dict):
                what = f"found {found_toml(value)}, wanted the table [{key}]"
                hint = key_hint("", key) if key in _NAMES else ""
                problems.append((line, Problem(what, self._where(line), hint)))
            else:
                for name, inner in value.items():
                    line = lines.get((key, name), (0, 0))[0]
                    self._key(key, name, inner, line, problems)
        problems.sort(key=lambda pair: pair[0])
        self.found.problems += [problem for _, problem in problems]

    def _others_read(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
        return False

    def _where(self, line: int) -> str:
        return f"{self.path}:{line}"

    def _version(
        self, value: object, line: int, problems: list[tuple[int, Problem]]
    ) -> None:
        if value == VERSION and isinstance(value, int):
            return
        what = f"version: found {found_toml(value)}, wanted {VERSION}"
        hint = ""
        if value == 1:
            hint = "version 1 is the old flat format; `mlxcel-migrate` carries it over"
        problems.append((line, Problem(what, self._where(line), hint)))

    def _key(
        self,
        table: str,
        name: str,
        value: object,
        line: int,
        problems: list[tuple[int, Problem]],
    ) -> None:
        option = BY_KEY.get(f"{table}.{name}")
        where = self._where(line)
        if option is None:
            problems.append((line, self._unknown(table, name, line)))
            return
        if "file" not in option.where:
            what = f"{option.key} cannot be set in a file"
            hint = f"use `{option.flag}` or {option.own_env}"
            problems.append((line, Problem(what, where, hint)))
            return
        try:
            checked = option.kind.check(value)
        except BadValue as error:
            problems.append((line, bad_value(option, error, where)))
            return
        if isinstance(option.kind, FilePath):
            checked = option.kind.against(str(self.path.parent), str(checked))
        short = self.path.name
        if self.layer is Layer.DROP_IN:
            short = f"{self.path.parent.name}/{short}"
        if option.secret and checked and self._others_read():
            what = f"everybody who may read this file can read {option.key}"
            hint = f"`chmod 600 {self.path}`, or keep it elsewhere"
            self.found.warnings.append(Problem(what, where, hint))
        origin = Origin(self.layer, f"{short}:{line}")
        self.found.said.append(Said(option, checked, origin, where))

    def _unknown_table(self, name: str, line: int) -> Problem:
        tables = ", ".join(f"[{table}]" for table in TABLES)
        return Problem(
            f"unknown table [{name}]",
            self._where(line),
            did_you_mean(name, TABLES) or f"the tables are {tables}",
        )

    def _unknown(self, table: str, name: str, line: int) -> Problem:
        place = f"in [{table}]" if table else "at the top of the file"
        what = f"unknown key `{name}` {place}"
        return Problem(what, self._where(line), key_hint(table, name))


_NAMES = {option.name for option in OPTIONS} | {
    old for option in OPTIONS for old in option.renamed_from
}


def key_hint(table: str, name: str) -> str:
    """Where a key that is not known belongs."""
    plain = name.lower().replace("-", "_")
    if plain in OLD_KEYS:
        return OLD_KEYS[plain]
    flag = f"--{plain.replace('_', '-')}"
    short = f"-{plain}"
    for option in OPTIONS:
        if option.name == plain and option.table == table:
            return f"did you mean `{option.name}`?"
    for option in OPTIONS:
        if option.name == plain:
            return f"`{option.name}` belongs in [{option.table}]"
    for option in OPTIONS:
        if plain in option.renamed_from or {flag, short} & set(option.flags):
            return f"write `{option.name}` in [{option.table}]"
    if any({flag, short} & set(foreign.flags) for foreign in (*IGNORED, CACHE_REUSE)):
        return "it has no meaning here; leave it out"
    here = [option.name for option in OPTIONS if option.table == table]
    return did_you_mean(name, here) or did_you_mean(name, [o.key for o in OPTIONS])
