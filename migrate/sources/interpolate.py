"""`${VAR:-default}` and its kind, as Compose fills them in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":-|:\?|:\+|-|\?|\+")


@dataclass(frozen=True, slots=True)
class Filled:
    """A text with its variables filled in."""

    text: str
    doubt: str = ""
    notes: tuple[str, ...] = ()
    """Which defaults were used."""


class _Malformed(ValueError):
    """A `${` that Compose does not read."""


def interpolate(text: str, lookup: Callable[[str], str | None]) -> Filled:
    """Fill in variables; `$$` is a dollar sign.

    A variable that is not given has its default, else nothing: the text then keeps
    the expansion as written and is in doubt.
    """
    try:
        return _filled(text, lookup)
    except _Malformed as error:
        return Filled(text, f"{error} is nothing that Compose reads")


def _filled(text: str, lookup: Callable[[str], str | None]) -> Filled:
    out = ""
    doubt = ""
    notes: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "$":
            out += text[at]
            at += 1
            continue
        if text.startswith("$$", at):
            out += "$"
            at += 2
            continue
        if text.startswith("${", at):
            end = _closing(text, at + 2)
            written, inner = text[at : end + 1], text[at + 2 : end]
            at = end + 1
        elif match := _NAME.match(text, at + 1):
            written, inner = text[at : match.end()], match[0]
            at = match.end()
        else:
            out += "$"
            at += 1
            continue
        filled = _one(inner, written, lookup)
        out += filled.text
        doubt = doubt or filled.doubt
        notes += filled.notes
    return Filled(out, doubt, tuple(notes))


def _closing(text: str, at: int) -> int:
    depth = 1
    for place in range(at, len(text)):
        if text.startswith("${", place):
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if not depth:
                return place
    raise _Malformed("a `${` without its `}`")


def _one(inner: str, written: str, lookup: Callable[[str], str | None]) -> Filled:
    match = _NAME.match(inner)
    if match is None:
        raise _Malformed("a `${` without a name")
    name, rest = match[0], inner[match.end() :]
    value = lookup(name)
    if not rest:
        if value is None:
            return Filled(written, f"`{name}` is not given")
        return Filled(value)
    operator = _OPERATOR.match(rest)
    if operator is None:
        raise _Malformed(f"what follows `${{{name}`")
    sign, word = operator[0], rest[operator.end() :]
    present = value is not None and (value != "" or not sign.startswith(":"))
    if sign.endswith("+"):
        return _filled(word, lookup) if present else Filled("")
    if present:
        return Filled(value or "")
    if sign.endswith("?"):
        return Filled(written, f"`{name}` is not given, and has to be")
    filled = _filled(word, lookup)
    note = f"`{name}` is not given, its default is used"
    return Filled(filled.text, filled.doubt, (note, *filled.notes))
