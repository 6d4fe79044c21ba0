"""Prose comes out of troff with every character that went in."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.documents import roff
from tests.documents.tools import have


def test_dashes_backslashes_and_quotes_have_names() -> None:
    assert roff.escape(r"a-b\c'd`e^f~g") == r"a\-b\ec\(aqd\(gae\(haf\(tig"


def test_characters_outside_ascii_are_named_by_number() -> None:
    assert roff.escape("naïve") == r"na\[u00EF]ve"


def test_what_stands_between_backticks_is_bold() -> None:
    assert roff.inline("use `--mode` or not") == r"use \fB\-\-mode\fR or not"


def test_every_sentence_begins_a_line() -> None:
    text = "One thing. And `another`. 3.5 stays together"
    assert roff.prose(text) == [
        "One thing.",
        r"And \fBanother\fR.",
        "3.5 stays together",
    ]


def test_lines_are_short_enough_for_every_checker() -> None:
    assert max(len(row) for row in roff.prose("many words " * 100)) <= 76


@pytest.mark.parametrize("text", [".so file", "'tis", "...", ".`TH`"])
def test_a_line_that_looks_like_a_command_is_text(text: str) -> None:
    (line,) = roff.prose(text)
    assert not line.startswith((".", "'"))


def test_a_second_paragraph_under_a_tag_keeps_its_indent() -> None:
    assert list(roff.item("tag", ["one", "two"])) == [".TP", "tag", "one", ".IP", "two"]


def test_examples_keep_their_lines() -> None:
    assert list(roff.example(["  a  b", ".c"])) == [".EX", "  a  b", r"\&.c", ".EE"]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text("ab.'\\-`~^\"é", min_size=1, max_size=6), min_size=1))
def test_no_word_is_lost(parts: list[str]) -> None:
    # An odd backtick is no literal, two make one: they are left out of the comparison.
    page = "\n".join(
        [
            roff.title("x", 1, "2026-01-01", "s"),
            roff.heading("name"),
            r"x \- y",
            roff.heading("end"),
            *roff.prose(" ".join(parts)),
        ]
    )
    done = subprocess.run(
        [have("mandoc"), "-T", "utf8"], input=page, capture_output=True, text=True
    )
    shown = re.sub(".\b", "", done.stdout).partition("END\n")[2].splitlines()[:-1]
    wanted = " ".join(" ".join(parts).replace("`", "").split())
    assert " ".join(" ".join(shown).replace("`", "").split()) == wanted
