"""The man pages of the commands, through argparse-manpage's `Manpage`.

`Manpage` makes the frame: title, NAME, SYNOPSIS and the order of the sections. What
stands in it is made here, because its own formatter escapes only dashes, loses lines
that begin with a dot, and wraps by the width of the terminal; its date depends on the
time zone. argparse-manpage is needed where pages are written, not where they are read:
the pages lie in the source tree.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mlxceld.argv import build_parser
from mlxceld.documents import pages, roff
from mlxceld.documents.facts import SIGNALS
from mlxceld.documents.flags import Group, parser_groups, server_groups
from mlxceld.help import ABOUT, USAGE


@dataclass(frozen=True, slots=True)
class Example:
    """Commands, and what they do."""

    text: str
    commands: tuple[str, ...]


SERVER_EXAMPLES: tuple[Example, ...] = (
    Example(
        "Serve a folder with MLX weights as llama-server would serve it: four slots of "
        "8192 tokens each, memory for 32768:",
        (
            "mlxcel-server -m ~/models/Llama-3.2-1B-Instruct-4bit \\",
            "    --mode llama-compat -c 32768 --parallel 4",
        ),
    ),
    Example(
        "Let the four share the 32768 tokens, so that one request may use them all "
        "while the others are short:",
        (
            "mlxcel-server -m ~/models/Llama-3.2-1B-Instruct-4bit \\",
            "    --mode llama-compat -c 32768 --parallel 4 --kv-unified",
        ),
    ),
    Example(
        "Check a configuration before a start, with its plan in tokens and bytes:",
        ("mlxcel-server --config /etc/mlxcel/mlxcel.toml --check-config",),
    ),
    Example(
        "Show where every value comes from that is not a default:",
        ("mlxcel-server --print-config",),
    ),
)
"""A test reads every command with the parser of the daemon."""


ALSO = ("mlxcel-migrate(1)", "mlxcel-verify(1)", "mlxcel.toml(5)")


@dataclass(slots=True)
class _Body:
    """Takes the place of `Manpage`'s own formatter."""

    middle: list[str] = field(default_factory=list)

    def format_parser(
        self, parser: argparse.ArgumentParser, extra_description: str | None = None
    ) -> list[str]:
        return self.middle

    def format_footer(self, data: dict[str, Any]) -> list[str]:
        return []


def server_page() -> str:
    """`man 1 mlxcel-server`."""
    middle = [
        roff.heading("Description"),
        *roff.paragraphs(ABOUT),
        roff.heading("Modes"),
        *pages.modes(),
        *_options(server_groups()),
    ]
    sections: list[tuple[str, Iterable[str]]] = [
        ("Exit status", pages.exit_status()),
        ("Signals", _signals()),
        ("Environment", pages.environment()),
        ("Files", pages.places()),
        ("Notes", pages.notes()),
        ("Examples", _examples(SERVER_EXAMPLES)),
        ("See also", [see_also(*ALSO)]),
    ]
    return _page(
        build_parser(),
        "serve one MLX model over the HTTP API of llama-server",
        [
            USAGE.removeprefix("usage: mlxcel-server "),
            "--check-config [options]",
            "--print-config[=changed|all|json] [options]",
            "--install-service[=user|system] [--write] [options]",
        ],
        middle,
        sections,
    )


def parser_page(
    parser: argparse.ArgumentParser,
    summary: str,
    more: Iterable[tuple[str, Iterable[str]]] = (),
) -> str:
    """The page of another command: what its argparse parser says, and `more`.

    Backticks in its texts mark literals, as in ours. `more` are pairs of heading and
    lines of roff.
    """
    middle = [
        roff.heading("Description"),
        *_plain(parser.description or ""),
        *_options(parser_groups(parser)),
    ]
    sections = sorted(
        [*_epilog(parser.epilog or ""), *more], key=lambda one: _place(one[0])
    )
    parser.epilog = None
    usage = (parser.usage or "").replace("%(prog)s", parser.prog)
    rows = [row.strip().removeprefix(parser.prog) for row in usage.splitlines()]
    return _page(parser, summary, rows or [_arguments(parser)], middle, sections)


ORDER = ("exit status", "files", "notes", "examples", "see also")
"""How man-pages(7) orders the sections after the options."""


def _place(heading: str) -> int:
    name = heading.lower()
    return ORDER.index(name) if name in ORDER else ORDER.index("notes")


def _plain(text: str) -> Iterator[str]:
    """Text for a terminal: paragraphs, and lines that are indented stay as they are."""
    for number, block in enumerate(re.split(r"\n{2,}", text.strip("\n"))):
        if number:
            yield ".PP"
        if block.startswith(" "):
            yield from roff.example(textwrap.dedent(block).splitlines())
        else:
            yield from roff.prose(block)


def _epilog(text: str) -> Iterator[tuple[str, list[str]]]:
    """Sections of a text for a terminal: a line that ends with a colon, and what
    stands indented below it."""
    for block in re.split(r"\n{2,}", text.strip("\n")):
        first, _, rest = block.partition("\n")
        if rest and first.endswith(":"):
            yield first.removesuffix(":"), [*_plain(rest)]
        elif block:
            yield "Notes", [*_plain(block)]


def _arguments(parser: argparse.ArgumentParser) -> str:
    words = ["[options]"]
    for group in parser_groups(parser):
        for flag in group.flags:
            if not flag.names:
                words.append(f"{flag.metavar} ..." if flag.repeats else flag.metavar)
    return " ".join(words)


def _page(
    parser: argparse.ArgumentParser,
    summary: str,
    synopsis: Iterable[str],
    middle: list[str],
    sections: Iterable[tuple[str, Iterable[str]]],
) -> str:
    from argparse_manpage.manpage import Manpage

    page = Manpage(parser)
    page.mf = _Body(middle)
    page.description = summary
    page.add_section("synopsis", "=", "\n".join(_synopsis(parser.prog, synopsis)))
    for heading, lines in sections:
        page.add_section(heading, "=", "\n".join(lines))
    # Its own first line escapes the dashes of the date, which mandoc cannot read then.
    _, *rest = str(page).splitlines()
    kept = [pages.title(parser.prog, 1), *(line for line in rest if line)]
    return "\n".join([COMMENT, *kept]) + "\n"


COMMENT = r".\" Written by `python -m mlxceld.generate` from the option table."


def _synopsis(program: str, rows: Iterable[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number:
            yield ".br"
        yield rf"{roff.bold(program)} {roff.escape(row.strip())}"


def _options(groups: Iterator[Group]) -> Iterator[str]:
    yield roff.heading("Options")
    yield from pages.groups(groups)


def _signals() -> Iterator[str]:
    for signal in SIGNALS:
        tag = ", ".join(roff.bold(name) for name in signal.names)
        yield from roff.item(tag, [signal.text])


def _examples(examples: Iterable[Example]) -> Iterator[str]:
    for number, one in enumerate(examples):
        if number:
            yield ".PP"
        yield from roff.prose(one.text)
        yield ".PP"
        yield ".RS 4"
        yield from roff.example(one.commands)
        yield ".RE"


def see_also(*names: str) -> str:
    """References to other pages, `name(section)`, by section and name."""
    parts = []
    for name in sorted(names, key=lambda name: (name[-2], name)):
        page, _, section = name.partition("(")
        parts.append(f"{roff.bold(page)}({section}")
    return ", ".join(parts)
