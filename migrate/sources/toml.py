"""Reads TOML files: ours, and the flat ones of version 1."""

from __future__ import annotations

import tomllib

from mlxceld.problems import Problem, Refused
from mlxceld.toml_lines import endless_line, error_place, key_lines

from ..found import Entry, Found, Place


def read(text: str, file: str) -> list[Found]:
    """The keys of a file, `table.key` or `key` at the top. Raises Refused.

    Values inside a table are not taken apart any further: some options are tables.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, _, message = error_place(error, text)
        if text.startswith("\ufeff"):
            line, message = 1, "the file begins with a byte order mark"
        raise Refused([Problem(f"no valid TOML: {message}", f"{file}:{line}")]) from (
            None
        )
    except ValueError:
        what = "no valid TOML: an endless number"
        raise Refused([Problem(what, f"{file}:{endless_line(text)}")]) from None
    lines = key_lines(text)
    entries: list[Entry] = []
    for key, value in values.items():
        if isinstance(value, dict):
            for inner, item in value.items():
                first, _ = lines.get((key, inner), (0, 0))
                dotted = f"{key}.{inner}"
                entries.append(Entry(dotted, item, Place(file, first, dotted)))
        else:
            first, _ = lines.get((key,), (0, 0))
            entries.append(Entry(key, value, Place(file, first, key)))
    return [
        Found(
            kind="toml",
            name=file,
            program="mlxcel-server",
            entries=tuple(entries),
            files=(file,),
        )
    ]
