"""The Korean texts keep up with the English ones, once there are Korean pages."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from mlxceld.documents.facts import MODES, SIGNALS, VARIABLES, events, exit_statuses
from mlxceld.documents.korean import KOREAN, missing, unknown
from mlxceld.documents.language import ENGLISH, Language
from mlxceld.documents.tables import fill
from mlxceld.flips import FLIPS
from mlxceld.kinds import Choice
from mlxceld.options import BY_KEY
from tests.documents.tools import ROOT


def differ(english: str, korean: str) -> list[str]:
    """What a translation may not change: literals, and numbers outside of them.

    Korean writes small numbers as digits where English has words.
    """
    literals = [set(re.findall(r"`[^`]*`", text)) for text in (english, korean)]
    plain = [re.sub(r"`[^`]*`", " ", text) for text in (english, korean)]
    said, kept = (Counter(re.findall(r"\d+", text)) for text in plain)
    return [*(literals[0] ^ literals[1]), *(said - kept)]


with_pages = pytest.mark.skipif(
    not (ROOT / "docs" / "ko").exists(), reason="there are no Korean pages"
)


@with_pages
def test_every_text_is_there() -> None:
    assert missing() == []


@with_pages
def test_no_text_is_left_of_what_is_gone() -> None:
    assert unknown() == []


def test_what_is_missing_is_listed() -> None:
    assert "options: engine.parallel" in missing(Language(code="xx"))
    assert "words: default" in missing(Language(code="xx"))


@with_pages
def test_the_korean_tables_have_the_flags_of_the_english_ones() -> None:
    for name in ("options", "reference", "environment", "ignored", "refused"):
        page = f"<!-- begin: {name} -->\n<!-- end: {name} -->"
        english, korean = (fill(page, "page.md", one) for one in (ENGLISH, KOREAN))
        flags = [
            re.findall(r"(?<=`)--?[a-z][a-z0-9-]*", text) for text in (english, korean)
        ]
        assert set(flags[0]) == set(flags[1])


@with_pages
def test_an_option_has_the_same_parts() -> None:
    for key, text in KOREAN.options.items():
        option = BY_KEY[key]
        assert text.short, key
        assert not text.short.endswith("."), key
        assert text.long.count("\n\n") == option.long.count("\n\n"), key
        assert bool(text.default) == bool(option.default_text), key
        words = option.kind.words if isinstance(option.kind, Choice) else ()
        assert list(text.choices) == list(words), key


@with_pages
def test_literals_and_numbers_of_an_option_are_the_same() -> None:
    for key, text in KOREAN.options.items():
        option = BY_KEY[key]
        assert differ(option.short, text.short) == [], key
        assert differ(option.long, text.long) == [], key
        assert differ(option.default_text, text.default) == [], key
        if isinstance(option.kind, Choice):
            for word, english in option.kind.choices:
                assert differ(english, text.choices[word]) == [], key


@with_pages
def test_literals_and_numbers_of_the_other_tables_are_the_same() -> None:
    english = {
        "modes": {row.name: row.label for row in MODES},
        "exits": {member.name: member.text for member in exit_statuses()},
        "signals": {signal.name: signal.text for signal in SIGNALS},
        "events": {str(member.value): member.text for member in events()},
        "flips": {flip.id: flip.text for flip in FLIPS},
        "variables": dict(VARIABLES),
        "words": {word: word for word in KOREAN.words},
    }
    for table, texts in english.items():
        for key, text in getattr(KOREAN, table).items():
            assert differ(texts[key], text) == [], (table, key)


@pytest.mark.parametrize("table", ["categories", "words", "exits", "events"])
def test_a_text_of_a_cell_is_one_line(table: str) -> None:
    for text in getattr(KOREAN, table).values():
        assert text == " ".join(text.split())
        assert "|" not in text
