"""The Korean pages mirror the English ones: headings, tables, code blocks, links.

The texts of the tables are compared in `test_korean_texts.py`. The examples are tried
on the English pages, so here it is enough that they are the same.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import PurePosixPath

import pytest

from tests.documents.examples import blocks
from tests.documents.tools import ROOT

ENGLISH = ROOT / "docs" / "en"
KOREAN = ROOT / "docs" / "ko"
PAGES = sorted(str(page.relative_to(ENGLISH)) for page in ENGLISH.rglob("*.md"))

KINDS = (
    ("heading", r"#+ "),
    ("row", r"\|"),
    ("bullet", r"- "),
    ("number", r"\d+\. "),
    ("marker", r"<!-- "),
    ("blank", r"$"),
    ("text", r""),
)
"""Kinds of lines and how they begin; the first that fits."""

HANGUL = re.compile(r"[가-힣]")


@dataclass
class Shape:
    """What a page is made of, without its words."""

    headings: list[int] = field(default_factory=list)
    """Their levels."""
    tables: list[list[int]] = field(default_factory=list)
    """The number of cells of each row, for each table."""
    lists: list[tuple[str, int]] = field(default_factory=list)
    """Bullets or numbers, and how many."""
    markers: list[str] = field(default_factory=list)
    paragraphs: int = 0


def shape(page: str) -> Shape:
    """The shape of a page; code blocks are compared as they are."""
    found = Shape()
    for kind, group in groupby(prose(page).splitlines(), kind_of):
        lines = list(group)
        if kind == "heading":
            found.headings += [len(line) - len(line.lstrip("#")) for line in lines]
        elif kind == "row":
            found.tables.append([len(cells(line)) for line in lines])
        elif kind in ("bullet", "number"):
            found.lists.append((kind, len(lines)))
        elif kind == "marker":
            found.markers += lines
        elif kind == "text":
            found.paragraphs += 1
    return found


def prose(page: str) -> str:
    """The page without code blocks, every entry of a list on one line."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", page)
    entry = r"(?m)^(?:- |\d+\. ).*(?:\n +\S.*)*"
    return re.sub(entry, lambda found: " ".join(found[0].split()), text)


def kind_of(line: str) -> str:
    return next(kind for kind, begin in KINDS if re.match(begin, line))


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    lines = prose(page).splitlines()
    return [cells(line) for line in lines if kind_of(line) == "row"]


def sections(page: str) -> list[str]:
    """The text under each heading, without tables."""
    lines = [line for line in prose(page).splitlines() if kind_of(line) != "row"]
    return re.split(r"(?m)^#+ .*$", "\n".join(lines))


def slugs(page: str) -> list[str]:
    """The names that GitHub gives to the headings, in their order."""
    headings = re.findall(r"(?m)^#+ (.+)$", prose(page))
    return [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]


def links(page: str, folder: str) -> list[tuple[str, int]]:
    """Where the links of a page lead: the target, and which heading of it."""
    found = []
    for target, anchor in re.findall(
        r"\]\(([^)#]*)(?:#([^)]+))?\)", page_text(page, folder)
    ):
        other = str(PurePosixPath(page).parent / target) if target else page
        number = slugs(page_text(other, folder)).index(anchor) if anchor else 0
        found.append((target, number))
    return found


def page_text(page: str, folder: str) -> str:
    return (ROOT / "docs" / folder / page).read_text(encoding="utf-8")


def told(text: str) -> tuple[set[str], Counter[str]]:
    """What a translation keeps: literals, and the numbers outside of them."""
    literals = {" ".join(word.split()) for word in re.findall(r"`([^`]+)`", text)}
    plain = re.sub(r"`[^`]+`|\]\([^)]*\)", " ", text)
    plain = re.sub(r"(?m)^\d+\. ", " ", plain)
    return literals, Counter(re.findall(r"\d+", plain))


def differ(english: str, korean: str) -> list[str]:
    """Literals that only one side has, and numbers that the Korean one lacks.

    Korean writes small numbers as digits where English has words.
    """
    (literals, numbers), (kept, more) = told(english), told(korean)
    return [*sorted(literals ^ kept), *(numbers - more)]


def in_english(text: str) -> bool:
    """Whether a text has words of English outside of literals, and none of Korean."""
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)
    return HANGUL.search(plain) is None and bool(re.search(r"\b[a-z]+ [a-z]+", plain))


def test_there_are_the_same_pages() -> None:
    assert sorted(str(p.relative_to(KOREAN)) for p in KOREAN.rglob("*.md")) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_same_headings_tables_lists_and_paragraphs(page: str) -> None:
    assert shape(page_text(page, "ko")) == shape(page_text(page, "en"))


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_are_the_same(page: str) -> None:
    english, korean = (
        [(one.language, one.words, one.text) for one in blocks(folder / page)]
        for folder in (ENGLISH, KOREAN)
    )
    assert korean == english


@pytest.mark.parametrize("page", PAGES)
def test_literals_and_numbers_of_a_section_are_the_same(page: str) -> None:
    english, korean = (sections(page_text(page, folder)) for folder in ("en", "ko"))
    for one, other in zip(english, korean, strict=True):
        assert differ(one, other) == [], other


@pytest.mark.parametrize("page", PAGES)
def test_literals_and_numbers_of_a_row_are_the_same(page: str) -> None:
    english, korean = (rows(page_text(page, folder)) for folder in ("en", "ko"))
    for one, other in zip(english, korean, strict=True):
        assert differ(" | ".join(one), " | ".join(other)) == [], other


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_the_same_places(page: str) -> None:
    english, korean = (links(page, folder) for folder in ("en", "ko"))
    same = [(target.replace("../en/", "../ko/"), number) for target, number in korean]
    assert sorted(same) == sorted(english)
    for target, _ in korean:
        assert (KOREAN / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_left_in_english(page: str) -> None:
    text = page_text(page, "ko")
    for kind, group in groupby(prose(text).splitlines(), kind_of):
        lines = list(group)
        for one in [" ".join(lines)] if kind == "text" else lines:
            if kind in ("text", "bullet", "number"):
                assert not in_english(one), one
    for row in rows(text):
        assert not any(in_english(cell) for cell in row), row


PAGE = """# A page

Two lines
of text.

- one entry
  in two lines
- another

| a | b |
| --- | --- |
| `x \\| y` | 3 |

```console
# no heading
$ true
```
"""


def test_the_shape_of_a_page_is_seen() -> None:
    assert shape(PAGE) == Shape([1], [[2, 2, 2]], [("bullet", 2)], [], 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A page", "## A page"),
        ("- another\n", ""),
        ("| `x \\| y` | 3 |", "| `x \\| y` | 3 | 4 |"),
        ("| `x \\| y` | 3 |\n", ""),
        ("Two lines\n", "Two lines\n\n"),
    ],
)
def test_a_page_of_another_shape_is_found(old: str, new: str) -> None:
    assert shape(PAGE.replace(old, new)) != shape(PAGE)


def test_a_changed_literal_or_number_is_found() -> None:
    assert differ("`--port` 8080", "포트 8080, `--port`") == []
    assert differ("`--port` 8080", "`--ports` 8080") == ["--port", "--ports"]
    assert differ("4 slots of 2048", "2048인 슬롯 3개") == ["4"]


def test_a_text_that_was_forgotten_is_found() -> None:
    assert in_english("the options of a server")
    assert not in_english("`the options` of")
    assert not in_english("서버의 옵션")
