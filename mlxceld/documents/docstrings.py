"""Reads what an enum says about its members, from its source.

Exit statuses and events of the log are explained where they are defined, in docstrings
or beside the value; the tables of the documents quote that. The source is not
imported: docstrings of members are gone then, and the log needs more than the standard
library.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an enum."""

    name: str
    value: str | int
    text: str
    """What is said about it, on one line; empty where nothing is."""


def members(source: Path, name: str) -> tuple[Member, ...]:
    """The members of the enum `name` in their order.

    Raises LookupError when the file has no such class.
    """
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return tuple(_members(node.body))
    raise LookupError(f"{source} has no class {name}")


def _members(body: list[ast.stmt]) -> list[Member]:
    found: list[Member] = []
    for number, node in enumerate(body):
        if not isinstance(node, ast.Assign) or not isinstance(
            node.targets[0], ast.Name
        ):
            continue
        try:
            said = ast.literal_eval(node.value)
        except ValueError:
            continue
        value, *texts = said if isinstance(said, tuple) else (said,)
        text = texts[0] if texts else _text(body[number + 1 :])
        found.append(Member(node.targets[0].id, value, text))
    return found


def _text(after: list[ast.stmt]) -> str:
    if after and isinstance(after[0], ast.Expr):
        value = after[0].value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return " ".join(value.value.split())
    return ""
