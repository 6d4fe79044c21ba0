"""Prints a configuration with the origin of every value, as TOML or JSON.

The TOML can be fed back: it means the same on the same machine. Secrets are left out
as comments, so that a mask never becomes a key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from mlxceld.argv import Form
from mlxceld.config import Resolved
from mlxceld.files import VERSION
from mlxceld.kinds import FilePath
from mlxceld.layers import HIDDEN
from mlxceld.options import OPTIONS, TABLES, Option, in_table


def print_config(resolved: Resolved, form: Form) -> str:
    """The text of `--print-config`: what was set, or everything as TOML or JSON."""
    if form == "json":
        return _json(resolved)
    return "\n".join(_toml(resolved, everything=form == "all")) + "\n"


def _toml(resolved: Resolved, *, everything: bool) -> Iterator[str]:
    yield f"version = {VERSION}"
    for table in TABLES:
        options = [
            option
            for option in in_table(table)
            if everything or resolved.is_set(option.key)
        ]
        if not options:
            continue
        yield ""
        yield f"[{table}]"
        rows = [(_assignment(resolved, o), _comment(resolved, o)) for o in options]
        width = min(40, max(len(left) for left, _ in rows))
        for left, right in rows:
            yield f"{left:{width}}  # {right}"


def _assignment(resolved: Resolved, option: Option) -> str:
    value = resolved.value(option)
    if value is None:
        return f"# {option.name}: {option.default_text}"
    if option.secret and value:
        return f"# {option.name}: {HIDDEN}"
    if isinstance(option.kind, FilePath):
        # A name in a file is seen from the folder of that file; a whole name is right
        # wherever this text is stored.
        value = os.path.abspath(str(value))
    return f"{option.name} = {option.kind.render(value)}"


def _comment(resolved: Resolved, option: Option) -> str:
    text = resolved.origins[option.key].text
    return "".join(c if c.isprintable() else "?" for c in text)


def _json(resolved: Resolved) -> str:
    table: dict[str, object] = {}
    for option in OPTIONS:
        value = resolved.value(option)
        hidden = option.secret and bool(value)
        entry: dict[str, object] = {"value": None if hidden else value}
        if hidden:
            entry["hidden"] = True
        entry["origin"] = resolved.origins[option.key].text
        table[option.key] = entry
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"
