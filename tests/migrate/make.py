"""Hand-made migrations, for tests of what comes after the conversion."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from mlxceld.kinds import Value
from mlxceld.migrate.found import Entry, Found, Kind, Place, Program, Variable, Word
from mlxceld.migrate.migration import Line, Migration, Outcome
from mlxceld.options import BY_KEY
from mlxceld.plan import Plan, Wish, make_plan
from mlxceld.toml_lines import key_lines


def plan(**wish: Any) -> Plan:
    return make_plan(Wish(**wish))


def of_toml(
    text: str,
    values: Mapping[str, Value],
    renamed: Mapping[str, str] | None = None,
    *,
    removed: tuple[str, ...] = (),
    pinned: Mapping[str, str] | None = None,
    file: str = "old.toml",
) -> Migration:
    """What the conversion says about a TOML text: `renamed` are old and new keys,
    `pinned` are keys and reasons."""
    renamed, pinned = renamed or {}, pinned or {}
    places = key_lines(text)
    lines = []
    for old, new in renamed.items():
        place = Place(file, places[tuple(old.split("."))][0], old)
        shown = BY_KEY[new].kind.render(values[new])
        lines.append(Line(f"{old} = ...", place, "changed", f"{new} = {shown}"))
    for key, why in pinned.items():
        shown = BY_KEY[key].kind.render(values[key])
        lines.append(Line("", Place(), "pinned", f"{key} = {shown}", why))
    entries = tuple(
        Entry(key, value, Place(file, places[tuple(key.split("."))][0], key))
        for key, value in flat(tomllib.loads(text)).items()
    )
    return Migration(
        found=Found("toml", file, "mlxcel-server", entries=entries, files=(file,)),
        adopt=False,
        values=values,
        pinned=frozenset(pinned),
        removed=(*renamed, *removed),
        lines=tuple(lines),
    )


def flat(tables: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            found |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            found[key] = value
    return found


def of_words(
    words: str,
    values: Mapping[str, Value],
    *,
    kind: Kind = "command",
    name: str = "llm",
    program: Program = "llama-server",
    environment: Mapping[str, str] | None = None,
    lines: tuple[Line, ...] = (),
    files: tuple[str, ...] = (),
    today: Outcome | None = None,
) -> Migration:
    """What the conversion says about a command line."""
    place = Place(files[0] if files else "", 1)
    return Migration(
        found=Found(
            kind,
            name,
            program,
            command=(program,),
            words=tuple(Word(word, place) for word in words.split()),
            environment=tuple(
                Variable(key, value, place)
                for key, value in (environment or {}).items()
            ),
            files=files,
        ),
        adopt=False,
        values=values,
        pinned=frozenset(),
        lines=lines,
        today=today or Outcome(None),
    )
