"""Text as the source of a man page, so that no word of it is taken for a command.

troff silently drops a line that begins with a dot or a quote, and a page is clean for
`mandoc -T lint -W style` only if its lines are short and its special characters have
names. Everything that goes into a page goes through here: prose with backticks around
literals comes in, lines of roff come out. The pages are ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

WIDTH = 76
"""The longest line of a page; mandoc warns above 80 bytes."""

_NAMES = {
    "\\": r"\e",
    "-": r"\-",
    "'": r"\(aq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
}

_SPAN = re.compile(r"`([^`]+)`")

_SENTENCE = re.compile(r"[.!?:](\\fR)?\)?$")


def escape(text: str) -> str:
    """`text` such that troff prints exactly its characters.

    The start of a line is the business of `lines`.
    """
    return "".join(
        _NAMES.get(char, char if ord(char) < 128 else f"\\[u{ord(char):04X}]")
        for char in text
    )


def bold(text: str) -> str:
    """A literal, escaped."""
    return rf"\fB{escape(text)}\fR"


def italic(text: str) -> str:
    """A placeholder, escaped."""
    return rf"\fI{escape(text)}\fR"


def inline(text: str) -> str:
    """Prose on one line; what stands between backticks is a literal."""
    parts = _SPAN.split(text)
    return "".join(
        bold(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )


def prose(text: str) -> list[str]:
    """One paragraph of prose as lines: every sentence begins one."""
    return lines(inline(" ".join(text.split())))


def lines(roff: str) -> list[str]:
    """Roff that was escaped, broken into lines that troff takes for text."""
    rows: list[str] = []
    row = ""
    for word in roff.split():
        if row and (len(row) + 1 + len(word) > WIDTH or _SENTENCE.search(row)):
            rows.append(row)
            row = word
        else:
            row = f"{row} {word}" if row else word
    if row:
        rows.append(row)
    return [rf"\&{row}" if row.startswith((".", "'")) else row for row in rows]


def title(
    name: str, section: int, date: str, source: str, manual: str = "mlxceld manual"
) -> str:
    """The first lines; the date is a constant, or pages would differ from day to day.

    Nothing is hyphenated or stretched: names of options must come out whole.
    """
    first = f'.TH {name.upper()} {section} {date} "{source}" "{manual}"'
    return "\n".join([first, ".nh", ".ad l"])


def heading(text: str) -> str:
    """A section."""
    return f".SH {escape(text.upper())}"


def subheading(text: str) -> str:
    """A part of a section."""
    return f".SS {escape(text)}"


def paragraphs(texts: Iterable[str]) -> Iterator[str]:
    """Paragraphs of prose, the first right after a heading."""
    for number, text in enumerate(texts):
        if number:
            yield ".PP"
        yield from prose(text)


def item(tag: str, texts: Sequence[str]) -> Iterator[str]:
    """A tag (roff) and the paragraphs that explain it, indented under it."""
    yield ".TP"
    yield tag
    yield from body(texts)


def body(texts: Sequence[str]) -> Iterator[str]:
    """The paragraphs under a tag: `.PP` would lose the indent, `.IP` keeps it."""
    for number, text in enumerate(texts):
        if number:
            yield ".IP"
        yield from prose(text)


def choices(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A list of words and their meanings inside an item."""
    yield ".RS"
    for word, text in pairs:
        yield from item(bold(word), [text])
    yield ".RE"


def example(rows: Iterable[str]) -> Iterator[str]:
    """Lines that stay as they are: commands, files, tables of numbers."""
    yield ".EX"
    for row in rows:
        text = escape(row)
        yield rf"\&{text}" if text.startswith((".", "'")) else text
    yield ".EE"
