"""The places of keys in a TOML text."""

from __future__ import annotations

import tomllib

import pytest

from mlxceld.toml_lines import error_place, key_lines

TEXT = """# a comment
version = 2

[engine]   # another
ctx_size = 8192
memory_limit = "75%" ; parallel = 2
""".replace(" ; ", "\n")


def test_keys_and_headers_have_their_lines() -> None:
    places = key_lines(TEXT)
    assert places[("version",)] == (2, 2)
    assert places[("engine",)] == (4, 4)
    assert places[("engine", "ctx_size")] == (5, 5)
    assert places[("engine", "parallel")] == (7, 7)


def test_values_over_several_lines_keep_first_and_last() -> None:
    places = key_lines('a = [\n  1, # ]\n  2,\n]\nb = """\nc = 1\n[x]\n"""\nd = 1\n')
    assert places == {("a",): (1, 4), ("b",): (5, 8), ("d",): (9, 9)}


def test_dotted_keys_and_inline_tables_reach_their_children() -> None:
    places = key_lines('\nengine.parallel = 2\nserver = { port = 1, "a b" = 2 }\n')
    assert places[("engine",)] == (2, 2)
    assert places[("engine", "parallel")] == (2, 2)
    assert places[("server", "port")] == (3, 3)
    assert places[("server", "a b")] == (3, 3)


def test_tables_of_an_array_are_numbered() -> None:
    places = key_lines("[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 3\n[c]\n")
    assert places[("a", 0, "x")] == (2, 2)
    assert places[("a", 1, "x")] == (4, 4)
    assert places[("a", 1, "b", "y")] == (6, 6)
    assert places[("c",)] == (7, 7)


def test_windows_line_ends_count_once() -> None:
    assert key_lines("a = 1\r\nb = 2\r\n") == {("a",): (1, 1), ("b",): (2, 2)}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("a = 1\nb = 08\n", 2, 6), ("a = 1\na = 2\n", 2, 6), ("a = 1\nb =", 2, 4)],
)
def test_a_syntax_error_has_a_place(text: str, line: int, column: int) -> None:
    with pytest.raises(tomllib.TOMLDecodeError) as error:
        tomllib.loads(text)
    at, col, message = error_place(error.value, text)
    assert (at, col) == (line, column)
    assert "(at" not in message
