"""The Korean texts of the tables, kept beside the English ones in the same shape.

How to write them:
- `model.py`, `engine.py`, `sampling.py`, `server.py` and `logging.py` hold one
  `OptionText` for each option of their TOML table, by key: `short` (a noun phrase, no
  full stop), `long` (sentences; an empty line between paragraphs), `default` where the
  English entry has a `default_text`, and `choices` where it takes one of a few words.
- `words.py` holds everything else.
- What stands between backticks, and every number, is the same as in English: a test
  compares them, so that a text that was changed on one side only is found.
- Wide characters count twice in a line of 88 columns.
- `python -m mlxceld.generate` writes the tables into the pages of `docs/ko`. It stops
  at the first text that is missing and says where it belongs; `missing()` lists all.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlxceld.documents.facts import MODES, SIGNALS, VARIABLES, events, exit_statuses
from mlxceld.documents.korean import engine, logging, model, sampling, server, words
from mlxceld.documents.language import Language
from mlxceld.documents.tables import EXAMPLE
from mlxceld.flips import FLIPS
from mlxceld.foreign import REFUSED
from mlxceld.options import CATEGORIES, OPTIONS

FOLDER = "mlxceld/documents/korean"

WORDS = (
    EXAMPLE,
    "C",
    "N",
    "all together",
    "change",
    "default",
    "doubles",
    "environment",
    "event",
    "exit status",
    "here, `llama-compat`",
    "id",
    "key",
    "live",
    "llama-server",
    "meaning",
    "mode",
    "none",
    "one request may use",
    "option",
    "refused",
    "restart",
    "shared",
    "signal",
    "since version",
    "stays",
    "then",
    "today",
    "variable",
    "what changes",
    "what it does",
    "what it says",
    "what the daemon does",
    "why",
    "with N doubled, memory",
    *dict.fromkeys(REFUSED.values()),
)
"""The English words that the tables use in headings and cells."""

KOREAN = Language(
    code="ko",
    folder=FOLDER,
    options={
        **model.TEXTS,
        **engine.TEXTS,
        **sampling.TEXTS,
        **server.TEXTS,
        **logging.TEXTS,
    },
    categories=words.CATEGORIES,
    words=words.WORDS,
    modes=words.MODES,
    exits=words.EXITS,
    signals=words.SIGNALS,
    events=words.EVENTS,
    flips=words.FLIPS,
    variables=words.VARIABLES,
)


def wanted() -> Iterator[tuple[str, str]]:
    """Every text that a language has to have: the name of its table, and its key."""
    yield from (("options", option.key) for option in OPTIONS)
    yield from (("categories", category) for category in CATEGORIES)
    yield from (("words", word) for word in WORDS)
    yield from (("modes", row.name) for row in MODES)
    yield from (("exits", member.name) for member in exit_statuses())
    yield from (("signals", signal.name) for signal in SIGNALS)
    yield from (("events", str(member.value)) for member in events())
    yield from (("flips", flip.id) for flip in FLIPS)
    yield from (("variables", name) for name, _ in VARIABLES)


def missing(language: Language = KOREAN) -> list[str]:
    """What has no text yet, as `table: key`."""
    return [
        f"{table}: {key}"
        for table, key in wanted()
        if key not in getattr(language, table)
    ]


def unknown(language: Language = KOREAN) -> list[str]:
    """Texts of things that are no longer there, as `table: key`."""
    known = set(wanted())
    tables = sorted({table for table, _ in known})
    return [
        f"{table}: {key}"
        for table in tables
        for key in getattr(language, table)
        if (table, key) not in known
    ]
