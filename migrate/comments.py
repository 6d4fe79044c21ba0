"""Finds the comments of a TOML text, to prove that an edit lost none.

A `#` inside a string is no comment, so the scanner knows the four kinds of strings
and nothing else of the format. The text has to be valid.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|(?P<comment>\#[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment, from its `#` to the end of the line."""

    text: str
    start: int
    """The offset of the `#`."""
    line: int
    """From 1."""


def comments(text: str) -> list[Comment]:
    """The comments of a valid TOML text, in their order, without blanks at the end."""
    found: list[Comment] = []
    line, counted = 1, 0
    for token in _TOKEN.finditer(text):
        if token["comment"] is not None:
            line += text.count("\n", counted, token.start())
            counted = token.start()
            found.append(Comment(token["comment"].rstrip(), counted, line))
    return found


def lost(old: str, new: str) -> list[Comment]:
    """The comments of `old` that `new` has not, counted: two alike need two."""
    there = Counter(comment.text for comment in comments(new))
    gone = []
    for comment in comments(old):
        if there[comment.text]:
            there[comment.text] -= 1
        else:
            gone.append(comment)
    return gone
