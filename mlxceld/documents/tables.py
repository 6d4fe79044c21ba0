"""The tables inside the pages of `docs/` and the README, between markers.

A page holds `<!-- begin: NAME -->` and `<!-- end: NAME -->` on lines of their own, and
what stands between them is written here. Some names take a word after a colon:
`options:slots` is the table of one category. The language is that of the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from mlxceld.documents.facts import (
    MODES,
    SIGNALS,
    VARIABLES,
    C,
    N,
    P,
    events,
    exit_statuses,
    roundings,
)
from mlxceld.documents.language import ENGLISH, Language
from mlxceld.flips import FLIPS
from mlxceld.foreign import IGNORED, REFUSED
from mlxceld.help import default_text
from mlxceld.kinds import Choice
from mlxceld.options import CATEGORIES, OPTIONS, Option

_MARKER = re.compile(r"^<!-- (begin|end): ([a-z:-]+) -->$")


class BadMarker(Exception):
    """A marker without its other half, or with a name that is not known."""


def fill(page: str, name: str, language: Language = ENGLISH) -> str:
    """The text of a page with its tables made anew.

    `name` of the page is for messages. Raises `BadMarker` with the line.
    """
    return "\n".join(_filled(page.split("\n"), name, language))


def _filled(rows: Sequence[str], name: str, language: Language) -> Iterator[str]:
    inside, since = "", 0
    for number, row in enumerate(rows, 1):
        found = _MARKER.match(row.strip())
        if found is None:
            if not inside:
                yield row
            continue
        what, table = found[1], found[2]
        if what == "begin":
            if inside:
                raise BadMarker(f"{name}:{number}: `{inside}` of line {since} is open")
            inside, since = table, number
            yield row
            yield from _table(table, f"{name}:{number}", language)
        else:
            if inside != table:
                raise BadMarker(f"{name}:{number}: `{table}` ends and did not begin")
            inside = ""
            yield row
    if inside:
        raise BadMarker(f"{name}:{since}: `{inside}` has no end")


def _table(name: str, where: str, language: Language) -> Iterator[str]:
    table, _, category = name.partition(":")
    yield ""
    if table == "options" and category in CATEGORIES:
        yield from _of_category(category, language)
    elif category or table not in TABLES:
        known = ", ".join(f"`{known}`" for known in TABLES)
        raise BadMarker(
            f"{where}: there is no table `{name}`, only {known}, "
            f"and `options:` with one of {', '.join(CATEGORIES)}"
        )
    else:
        yield from TABLES[table](language)
    yield ""


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown; bars in cells are escaped."""
    yield _row(heads)
    yield _row(["---"] * len(heads))
    for row in rows:
        yield _row(row)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(*names: str) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _options(language: Language) -> Iterator[str]:
    for number, category in enumerate(CATEGORIES):
        if number:
            yield ""
        yield f"### {language.category(category)}"
        yield ""
        yield from _of_category(category, language)


def _of_category(category: str, language: Language) -> Iterator[str]:
    words = ("option", "key", "default", "change", "what it does")
    heads = [language.word(word) for word in words]
    rows = (
        (
            spellings(option),
            _code(option.key) if "file" in option.where else "",
            default(option, language),
            language.word(option.reload),
            language.option(option).short,
        )
        for option in OPTIONS
        if option.category == category
    )
    yield from markdown(heads, rows)


def spellings(option: Option) -> str:
    """All flags of an option, with the placeholder of its value behind the last."""
    if "flag" not in option.where:
        return ""
    *first, last = option.flags
    if not option.is_switch and not isinstance(option.kind, Choice):
        last = f"{last} {option.metavar}"
    constants = [flag for flag, _ in option.constants]
    return _code(*first, last, *option.negated, *constants)


def default(option: Option, language: Language) -> str:
    """The default as it is written, or in words where nothing is a value of its own."""
    if option.default is None:
        return language.option(option).default
    if option.default in ((), ""):
        return language.word("none")
    return f"`{default_text(option)}`"


def _reference(language: Language) -> Iterator[str]:
    for number, option in enumerate(OPTIONS):
        if number:
            yield ""
        text = language.option(option)
        yield f"### {_code(option.key)}"
        yield ""
        yield f"{text.short}."
        for paragraph in text.long.split("\n\n"):
            yield ""
            yield paragraph
        yield ""
        if isinstance(option.kind, Choice):
            for word in option.kind.words:
                yield f"- `{word}`: {text.choices[word]}"
            yield ""
        words = ("option", "environment", "default", "change")
        yield from markdown(
            [language.word(word) for word in words],
            [
                (
                    spellings(option),
                    _code(option.own_env, *option.env, *option.negated_env),
                    default(option, language),
                    language.word(option.reload),
                )
            ],
        )


def _environment(language: Language) -> Iterator[str]:
    heads = [language.word("variable"), language.word("option")]
    rows = [
        (_code(option.own_env, *option.env, *option.negated_env), f"`{option.flag}`")
        for option in OPTIONS
        if "env" in option.where
    ]
    rows += [
        (f"`{name}`", language.variable(name, text).rstrip("."))
        for name, text in VARIABLES
    ]
    yield from markdown(heads, rows)


def _flips(language: Language) -> Iterator[str]:
    words = ("id", "option", "today", "then", "since version", "what changes")
    rows = (
        (
            flip.id,
            f"`{flip.option}`",
            f"`{flip.old}`",
            f"`{flip.new}`",
            flip.version,
            language.flip(flip.id, flip.text),
        )
        for flip in FLIPS
    )
    yield from markdown([language.word(word) for word in words], rows)


def _modes(language: Language) -> Iterator[str]:
    words = ("mode", "one request may use", "all together", "with N doubled, memory")
    rows = []
    for row in MODES:
        pool, comma, shared = row.pool.partition(", ")
        tail = f", {language.word(shared)}" if comma else ""
        rows.append(
            (
                language.mode(row.name, row.label),
                f"{row.slot}: {row.plan.slot_ctx}",
                f"{pool}: {row.plan.pool}{tail}",
                language.word("doubles" if row.grows else "stays"),
            )
        )
    yield f"{language.word(EXAMPLE)}:"
    yield ""
    yield from markdown([language.word(word) for word in words], rows)


EXAMPLE = f"The numbers are for C = {C}, N = {N} and P = {P}"
"""What stands above the table of modes."""


def _rounding(language: Language) -> Iterator[str]:
    words = ("C", "N", "here, `llama-compat`", "llama-server")
    rows = (
        (
            str(row.ctx_size),
            str(row.parallel),
            language.word("refused") if row.here is None else str(row.here),
            str(row.llama_server),
        )
        for row in roundings()
    )
    yield from markdown([language.word(word) for word in words], rows)


def _exits(language: Language) -> Iterator[str]:
    heads = [language.word("exit status"), language.word("meaning")]
    rows = (
        (str(member.value), language.exit(member.name, member.text.rstrip(".")))
        for member in exit_statuses()
    )
    yield from markdown(heads, rows)


def _signals(language: Language) -> Iterator[str]:
    heads = [language.word("signal"), language.word("what the daemon does")]
    rows = (
        (_code(*signal.names), language.signal(signal.name, signal.text))
        for signal in SIGNALS
    )
    yield from markdown(heads, rows)


def _events(language: Language) -> Iterator[str]:
    heads = [language.word("event"), language.word("what it says")]
    rows = (
        (
            f"`{member.value}`",
            language.event(str(member.value), member.text.rstrip(".")),
        )
        for member in events()
    )
    yield from markdown(heads, rows)


def _ignored(language: Language) -> Iterator[str]:
    heads = [language.word("option"), language.word("variable")]
    rows = (
        (_code(*foreign.flags), _code(*foreign.env))
        for foreign in sorted(IGNORED, key=lambda one: one.flags[-1].lstrip("-"))
    )
    yield from markdown(heads, rows)


def _refused(language: Language) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for flag, why in REFUSED.items():
        reasons.setdefault(why, []).append(flag)
    heads = [language.word("option"), language.word("why")]
    rows = ((_code(*flags), language.word(why)) for why, flags in reasons.items())
    yield from markdown(heads, rows)


TABLES: dict[str, Callable[[Language], Iterator[str]]] = {
    "options": _options,
    "reference": _reference,
    "environment": _environment,
    "flips": _flips,
    "modes": _modes,
    "rounding": _rounding,
    "exit-statuses": _exits,
    "signals": _signals,
    "events": _events,
    "ignored": _ignored,
    "refused": _refused,
}
"""Every table by the name of its marker."""
