"""The tables in the pages say what the sources say, in numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import pytest

from mlxceld.argv import ACTIONS, build_parser
from mlxceld.documents.docstrings import members
from mlxceld.documents.facts import PACKAGE, SIGNALS, events, exit_statuses, files
from mlxceld.documents.korean import WORDS, wanted
from mlxceld.documents.language import ENGLISH, Language, Missing, OptionText
from mlxceld.documents.tables import TABLES, BadMarker, fill
from mlxceld.exits import Exit
from mlxceld.kinds import Choice
from mlxceld.logs import Event
from mlxceld.options import OPTIONS


def made(name: str, language: Language = ENGLISH) -> list[str]:
    """The lines between the markers of a table, without empty ones."""
    page = f"<!-- begin: {name} -->\nold\n<!-- end: {name} -->"
    rows = fill(page, "page.md", language).split("\n")
    assert rows[0] == f"<!-- begin: {name} -->"
    assert rows[-1] == f"<!-- end: {name} -->"
    return [row for row in rows[1:-1] if row]


def cells(name: str) -> list[list[str]]:
    """The cells of the only table, without its head."""
    rows = [row for row in made(name) if row.startswith("|")]
    assert set(rows[1]) <= set("|- ")
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_what_stands_outside_the_markers_is_kept() -> None:
    page = "before\n\n<!-- begin: flips -->\nold\n<!-- end: flips -->\n  after\n"
    new = fill(page, "page.md")
    assert new.startswith("before\n\n<!-- begin: flips -->\n\n| id |")
    assert new.endswith("|\n\n<!-- end: flips -->\n  after\n")
    assert "old" not in new
    assert fill(new, "page.md") == new


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("a\n<!-- begin: flips -->\n", "p.md:2: `flips` has no end"),
        ("<!-- end: flips -->", "p.md:1: `flips` ends and did not begin"),
        (
            "<!-- begin: flips -->\n<!-- end: modes -->",
            "p.md:2: `modes` ends and did not begin",
        ),
        (
            "<!-- begin: flips -->\n<!-- begin: modes -->",
            "p.md:2: `flips` of line 1 is open",
        ),
        ("<!-- begin: flops -->", "p.md:1: there is no table `flops`"),
        ("<!-- begin: options:slot -->", "p.md:1: there is no table `options:slot`"),
    ],
)
def test_a_marker_that_is_wrong_is_named_with_its_line(page: str, message: str) -> None:
    with pytest.raises(BadMarker) as caught:
        fill(page, "p.md")
    assert str(caught.value).startswith(message)


def test_the_modes_in_numbers() -> None:
    assert made("modes")[0] == "The numbers are for C = 8192, N = 4 and P = 4096:"
    assert [row[1:] for row in cells("modes")] == [
        ["C: 8192", "C x N: 32768", "doubles"],
        ["floor(C / N): 2048", "C: 8192", "stays"],
        ["C: 8192", "C: 8192, shared", "stays"],
        ["P: 4096", "P x N: 16384", "doubles"],
        ["min(P, C): 4096", "C: 8192, shared", "stays"],
    ]


def test_where_llama_server_rounds_up() -> None:
    assert cells("rounding") == [
        ["8192", "4", "2048", "2048"],
        ["32768", "3", "10922", "11008"],
        ["8192", "3", "2730", "2816"],
        ["4096", "7", "585", "768"],
        ["1000", "1", "1000", "1024"],
        ["1000", "2", "refused", "512"],
        ["2048", "5", "refused", "512"],
    ]


def test_the_flip_of_the_mode() -> None:
    (row,) = cells("flips")
    assert row[:5] == [
        *("MLX-F001", "`engine.mode`", '`"legacy"`', '`"llama-compat"`', "1.0")
    ]


def test_every_exit_status_and_event_is_explained() -> None:
    assert [row[0] for row in cells("exit-statuses")] == [str(int(s)) for s in Exit]
    assert [row[0] for row in cells("events")] == [f"`{event}`" for event in Event]
    for table in ("exit-statuses", "events", "signals"):
        assert all(row[1] for row in cells(table))


def test_the_members_that_are_read_from_the_source_are_those_of_the_enums() -> None:
    assert [(m.name, m.value) for m in exit_statuses()] == [
        (status.name, int(status)) for status in Exit
    ]
    assert [(m.name, m.value) for m in events()] == [(e.name, str(e)) for e in Event]
    with pytest.raises(LookupError, match="no class Nothing"):
        members(PACKAGE / "exits.py", "Nothing")


def test_the_signals_are_those_that_the_daemon_handles() -> None:
    source = (PACKAGE / "service" / "lifecycle.py").read_text()
    handled = set(re.findall(r"\bsignal\.(SIG(?:TERM|INT|HUP|USR1|USR2|QUIT))", source))
    assert {name for signal in SIGNALS for name in signal.names} == handled


def test_the_places_of_the_configuration_file() -> None:
    assert files() == (
        "$CONFIGURATION_DIRECTORY/mlxcel.toml",
        "~/.config/mlxcel/mlxcel.toml",
        "/opt/homebrew/etc/mlxcel/mlxcel.toml",
        "/usr/local/etc/mlxcel/mlxcel.toml",
        "/etc/mlxcel/mlxcel.toml",
    )


def flags(name: str, language: Language = ENGLISH) -> set[str]:
    text = "\n".join(row for row in made(name, language) if row.startswith("|"))
    return set(re.findall(r"(?<=`)--?[a-z][a-z0-9-]*", text))


def wanted_flags() -> set[str]:
    every = {flag for a in build_parser()._actions for flag in a.option_strings}
    return every - {flag for action in ACTIONS for flag in action.flags}


def test_the_tables_of_options_have_every_flag_of_the_parser() -> None:
    # Texts name flags too; those of the parser are all there are.
    assert flags("options") == wanted_flags()
    assert flags("reference") >= wanted_flags()


def test_every_option_is_in_the_tables_of_options_and_variables() -> None:
    options, reference = "\n".join(made("options")), "\n".join(made("reference"))
    environment = "\n".join(made("environment"))
    for option in OPTIONS:
        assert f"| `{option.key}` |" in options
        assert option.short in options
        for text in (f"### `{option.key}`", option.long.split("\n\n")[-1]):
            assert text in reference
        for name in (option.own_env, *option.env, *option.negated_env):
            assert f"`{name}`" in environment


def test_the_table_of_one_category_is_a_part_of_the_whole() -> None:
    whole, part = "\n".join(made("options")), made("options:slots")
    assert "\n".join(part) in whole
    assert any("`engine.parallel`" in row for row in part)
    assert not any("`server.port`" in row for row in part)


class Marked(dict[str, str]):
    """Texts of a language that has one for everything, and remembers what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        self.asked.add(key)
        return f"«{key}»"


def whole() -> tuple[Language, Marked]:
    """A language with a text for everything, and the words that were asked for."""
    texts: Mapping[str, OptionText] = {
        option.key: OptionText(
            f"«{option.name}»",
            "«long»",
            "«default»" if option.default_text else "",
            dict(option.kind.choices) if isinstance(option.kind, Choice) else {},
        )
        for option in OPTIONS
    }
    words = Marked()
    language = Language(
        code="xx",
        folder="here",
        options=texts,
        categories=Marked(),
        words=words,
        modes=Marked(),
        exits=Marked(),
        signals=Marked(),
        events=Marked(),
        flips=Marked(),
        variables=Marked(),
    )
    return language, words


def test_another_language_has_the_same_tables_with_other_words() -> None:
    language, words = whole()
    for name in TABLES:
        english, other = made(name), made(name, language)
        assert [row.count("|") for row in other if row.startswith("|")] == [
            row.count("|") for row in english if row.startswith("|")
        ]
        if name == "options":
            assert flags(name, language) == wanted_flags()
    assert words.asked == set(WORDS)


def without(language: Language, table: str, key: str) -> Language:
    texts = {k: "text" for t, k in wanted() if t == table and k != key}
    changed: dict[str, Any] = {table: texts}
    return dataclasses.replace(language, **changed)


@pytest.mark.parametrize(
    ("table", "key", "name"),
    [
        ("categories", "slots", "options"),
        ("modes", "legacy", "modes"),
        ("exits", "OK", "exit-statuses"),
        ("signals", "SIGHUP", "signals"),
        ("events", "listening", "events"),
        ("flips", "MLX-F001", "flips"),
        ("variables", "MLXCELD_CONFIG", "environment"),
    ],
)
def test_a_text_that_is_missing_is_named(table: str, key: str, name: str) -> None:
    language, _ = whole()
    with pytest.raises(Missing, match=f"here/words.py has no text `{key}` in {table}"):
        made(name, without(language, table, key))


def test_an_option_without_a_text_is_named_with_its_file() -> None:
    language, _ = whole()
    texts = {k: v for k, v in language.options.items() if k != "engine.parallel"}
    with pytest.raises(Missing, match=r"here/engine\.py has no text `engine\.parallel"):
        made("options", dataclasses.replace(language, options=texts))
