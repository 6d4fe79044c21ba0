"""Set-ups for tests of the conversion, as the readers of sources would find them."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from typing import Any

from mlxceld.migrate.convert import convert
from mlxceld.migrate.found import (
    Entry,
    Found,
    Kind,
    Place,
    Program,
    Remark,
    Variable,
    Word,
)
from mlxceld.migrate.migration import Line, Migration, Outcome
from mlxceld.toml_lines import key_lines

LLAMA: Program = "llama-server"
OURS: Program = "mlxcel-server"
MLX_LM: Program = "mlx_lm.server"


def words(
    text: str,
    program: Program | None = LLAMA,
    *,
    kind: Kind = "command",
    env: Mapping[str, str] | None = None,
    folder: str = "",
    remarks: tuple[Remark, ...] = (),
) -> Found:
    """A command line; words and values with a `$` in them are in doubt."""
    return Found(
        kind,
        "llm",
        program,
        command=(program or "",),
        words=tuple(Word(w, Place("run", 1), _doubt(w)) for w in shlex.split(text)),
        environment=tuple(
            Variable(name, value, Place("llm.env", line, name), _doubt(value))
            for line, (name, value) in enumerate((env or {}).items(), 1)
        ),
        files=("run",),
        folder=folder,
        remarks=remarks,
    )


def _doubt(text: str) -> str:
    return f"`{text}` is not known" if "$" in text else ""


def variables(program: Program | None = None, **env: str) -> Found:
    """A file of variables."""
    return words("", program, kind="env", env=env)


def toml(text: str, file: str = "old.toml") -> Found:
    """A TOML file."""
    places = key_lines(text)
    entries = []
    for key, value in tomllib.loads(text).items():
        inner = value if isinstance(value, dict) else {}
        for name, item in inner.items():
            place = Place(file, places[(key, name)][0], f"{key}.{name}")
            entries.append(Entry(f"{key}.{name}", item, place))
        if not isinstance(value, dict):
            entries.append(Entry(key, value, Place(file, places[(key,)][0], key)))
    return Found("toml", file, OURS, entries=tuple(entries), files=(file,))


def nowhere(_: str) -> bool:
    """No file exists."""
    return False


def carried(found: Found, **options: Any) -> Migration:
    """The conversion on a machine without any models."""
    return convert(found, **{"exists": nowhere, **options})


def numbers(outcome: Outcome) -> tuple[int, int, int, bool]:
    """Slots, slot context, pool, and whether it is shared."""
    plan = outcome.plan
    assert plan is not None, outcome.refusal
    return plan.slots, plan.slot_ctx, plan.pool, plan.shared


def line(migration: Migration, said: str) -> Line:
    """The line about something that was said."""
    (found,) = [line for line in migration.lines if line.said == said]
    return found
