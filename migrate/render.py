"""Writes a configuration file that did not exist before.

Every key carries the short text of the option table above it and the place it comes
from behind it, so that its reader needs neither the report nor the manual.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from mlxceld.files import VERSION
from mlxceld.kinds import Value
from mlxceld.options import BY_KEY, TABLES, Option

from .migration import Line, Migration

MARK = "# Carried over by mlxcel-migrate from"
"""How every file begins that is written here."""


def render(migration: Migration, values: Mapping[str, Value]) -> str:
    """The text of a new file with these values, which the daemon reads back from it."""
    return "\n".join(_lines(migration, values)) + "\n"


def _lines(migration: Migration, values: Mapping[str, Value]) -> Iterator[str]:
    found = migration.found
    source = one_line(found.name)
    source = "a command line" if source == "command line" else source
    yield f"{MARK} {source}."
    yield from reviews(migration)
    yield f"version = {VERSION}"
    for table in TABLES:
        keys = [key for key in values if BY_KEY[key].table == table]
        if not keys:
            continue
        yield ""
        yield f"[{table}]"
        for key in keys:
            option = BY_KEY[key]
            yield f"# {option.short}."
            origin = _origin(migration, key)
            text = assignment(option, values[key])
            # Behind a text of several lines a comment would be hard to find.
            if origin and "\n" in text:
                yield f"# ({origin})"
            yield f"{text}  # {origin}" if origin and "\n" not in text else text


def reviews(migration: Migration) -> Iterator[str]:
    """What a person has to look at, as comments."""
    for line in migration.review:
        parts = [part for part in (spot(line), line.said, line.why) if part]
        yield f"# Needs review: {one_line(': '.join(parts))}"


def spot(line: Line) -> str:
    """Where a line of the report was said, without what it says itself."""
    place = line.place
    if place.name and place.name in line.said:
        place = replace(place, name="")
    return one_line(str(place))


def assignment(option: Option, value: Value) -> str:
    """`name = value` as TOML; long texts with newlines span several lines."""
    import tomli_w

    written = tomllib.loads(f"x = {option.kind.render(value)}")["x"]
    # TOML reads every newline inside such a text as the same one.
    if isinstance(written, str) and "\n" in written and "\r" not in written:
        text: str = tomli_w.dumps({option.name: written}, multiline_strings=True)
        return text.removesuffix("\n")
    return f"{option.name} = {option.kind.render(value)}"


def _origin(migration: Migration, key: str) -> str:
    lines = [line for line in migration.lines if _key(line) == key]
    if not lines:
        return ""
    line = lines[-1]
    if line.fate == "pinned":
        return one_line(line.why)
    return one_line(str(line.place)) or "the command line"


def _key(line: Line) -> str:
    return line.became.partition("=")[0].strip()


def one_line(text: str) -> str:
    """`text` without what would end a comment or a line of the report."""
    return "".join(c if c.isprintable() else "?" for c in text)
