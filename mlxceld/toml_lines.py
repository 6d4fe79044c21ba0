"""Says on which lines of a TOML text each key stands.

`tomllib` gives values without their places, and a message that names `file:line`
needs the place. The scanner cuts a text that is known to be valid into statements: a
line, and further lines until `tomllib` accepts them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys from the top down; an array of tables adds the number of the table from 0."""

Lines: TypeAlias = tuple[int, int]
"""First and last line, from 1."""

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def key_lines(text: str) -> dict[KeyPath, Lines]:
    """The lines of every key and table header of a valid TOML text.

    Keys inside an inline table stand on the lines of the whole statement. A dotted
    key also gives its parents a place, that of their first child.
    """
    places: dict[KeyPath, Lines] = {}
    tables: dict[KeyPath, int] = {}
    prefix: KeyPath = ()
    for statement, lines in _statements(text):
        stripped = statement.lstrip()
        if stripped.startswith("["):
            prefix = _header(stripped, tables)
            _add(places, prefix, lines)
            continue
        for path in _leaves(tomllib.loads(statement)):
            _add(places, prefix + path, lines)
    return places


def _statements(text: str) -> Iterator[tuple[str, Lines]]:
    rows = text.replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(rows):
        first = at
        if not rows[at].strip() or rows[at].lstrip().startswith("#"):
            at += 1
            continue
        while True:
            statement = "\n".join(rows[first : at + 1])
            at += 1
            if at >= len(rows) or _is_valid(statement):
                break
        yield statement, (first + 1, at)


def _is_valid(statement: str) -> bool:
    try:
        tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _header(statement: str, tables: dict[KeyPath, int]) -> KeyPath:
    """The path of `[a.b]` or `[[a.b]]`, with the numbers of the arrays it lies in."""
    parsed = tomllib.loads(statement)
    keys: list[str] = []
    node: object = parsed
    while isinstance(node, dict) and node:
        key, node = next(iter(node.items()))
        keys.append(key)
        if isinstance(node, list):
            break
    path: KeyPath = ()
    for key in keys[:-1]:
        path += (key,)
        if path in tables:
            path += (tables[path],)
    path += (keys[-1],)
    if statement.startswith("[["):
        tables[path] = tables.get(path, -1) + 1
        path += (tables[path],)
    return path


def _leaves(table: Mapping[str, object], path: KeyPath = ()) -> Iterator[KeyPath]:
    for key, value in table.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))


def _add(places: dict[KeyPath, Lines], path: KeyPath, lines: Lines) -> None:
    for end in range(1, len(path)):
        places.setdefault(path[:end], lines)
    places.setdefault(path, lines)


def endless_line(text: str) -> int:
    """The line of a number with more digits than Python reads, or 1."""
    found = re.search("[0-9_]{4000}", text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def error_place(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, int, str]:
    """Line, column and bare message of a syntax error of `text`.

    tomllib has them only in its message until Python 3.14.
    """
    message = str(error)
    found = _PLACE.search(message)
    rows = text.rstrip("\n").split("\n")
    if found is None or found[1] is None:
        line, column = len(rows), len(rows[-1]) + 1
    else:
        line, column = int(found[1]), int(found[2])
    return line, column, _PLACE.sub("", message)
