"""The words of a shell, compared by hand with what bash 5.2 makes of them."""

from __future__ import annotations

import pytest

from mlxceld.migrate.sources.expand import State, expand
from mlxceld.migrate.sources.shell import Unreadable
from mlxceld.migrate.sources.statements import commands
from mlxceld.migrate.sources.walk import walk_of
from mlxceld.migrate.sources.words import no_files

KNOWN = """X='a b/c'
Y=' p  q '
E=
N=12
A=(one 'two  three' '')
"""


def fields(line: str) -> list[str]:
    """The arguments of the one command of a line, after `KNOWN` has been read."""
    walk = walk_of("f", (), None, no_files, 1)
    walk.run(KNOWN)
    (command,) = commands(line)
    found = [word for raw in command.words for word in expand(raw, walk.state)]
    assert not any(word.doubt for word in found)
    return [word.text for word in found][1:]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("p a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("p 'it'\\''s' \"a'b\" 'c\"d'", ["it's", "a'b", 'c"d']),
        ('p "\\$X \\" \\\\ \\a"', ['$X " \\ \\a']),
        ("p '' \"\" $E", ["", ""]),
        ("p $X", ["a", "b/c"]),
        ('p "$X" "${X}"', ["a b/c", "a b/c"]),
        ("p 1$X", ["1a", "b/c"]),
        ("p 1${Y}2", ["1", "p", "q", "2"]),
        ("p --x=$N --y=${N}k", ["--x=12", "--y=12k"]),
        ('p ${Z:-d e} "${Z:-d e}"', ["d", "e", "d e"]),
        ("p ${E:-q} [${E-q}]", ["q", "[]"]),
        ("p ${N:+--n $N} ${E:+no}", ["--n", "12"]),
        ("p ${X%/*} ${X##*/} ${X#?}", ["a", "b", "c", "b/c"]),
        ('p "${A[@]}"', ["one", "two  three", ""]),
        ("p ${A[@]}", ["one", "two", "three"]),
        ('p x"${A[@]}"y', ["xone", "two  three", "y"]),
        ("p ${A[1]} $A", ["two", "three", "one"]),
        ('p $((N * 2)) "$((N+1))"', ["24", "13"]),
        ("p a\\\n  b # c", ["a", "b"]),
        ("p a#b '#' # c", ["a#b", "#"]),
        ("p $'a\\tb' 100$", ["a\tb", "100$"]),
        ("p a >log 2>&1 b <in", ["a", "b"]),
        ("p {a} a=1 --json '{\"a\": [1]}'", ["{a}", "a=1", "--json", '{"a": [1]}']),
    ],
)
def test_words_are_those_of_a_shell(line: str, expected: list[str]) -> None:
    assert fields(line) == expected


def test_an_unknown_default_is_said_once() -> None:
    state = State("run.sh")
    (command,) = commands("p ${PORT:-8080}")
    (word,) = expand(command.words[1], state)
    assert (word.text, word.doubt) == ("8080", "")
    (remark,) = state.remarks
    assert remark.text == "`PORT` is not set here, its default is used"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("$KEY", "`$KEY` is not set here"),
        ("${KEY}", "`${KEY}` is not set here"),
        ("${KEY:?no key}", "`${KEY:?...}` is not set here"),
        ("$(nproc)", "`$(nproc)` is not run here"),
        ("`nproc`", "`$(nproc)` is not run here"),
        ("$((CORES / 2))", "`$((CORES / 2))` is not worked out here"),
        ("$1", "`$1` is what the script is called with"),
        ("${#KEY}", "`${#KEY}` is not worked out here"),
        ("${!KEY}", "`${!KEY}` is not worked out here"),
    ],
)
def test_what_is_not_known_is_kept_as_written(word: str, reason: str) -> None:
    (command,) = commands(f"p {word}")
    (found,) = expand(command.words[1], State("run.sh"))
    assert found.text == word
    assert found.doubt == reason


def test_the_home_folder_is_written_as_a_tilde() -> None:
    (command,) = commands('p $HOME/m "$HOME/my models/m" a$HOME "${HOME}"')
    found = [word for raw in command.words[1:] for word in expand(raw, State("f"))]
    assert [word.text for word in found] == [
        "~/m",
        "~/my models/m",
        "a$HOME",
        "${HOME}",
    ]
    assert [bool(word.doubt) for word in found] == [False, False, True, True]


def test_commands_end_where_a_shell_ends_them() -> None:
    found = commands("a 1; b && c || d | e &\nif f; then g; fi\n(h)\ni <<X\nj\nX\nk")
    names = [command.words[0].bare for command in found]
    assert names == ["a", "b", "c", "d", "e", "f", "g", "h", "i", "k"]
    assert [command.after for command in found][:5] == [";", "&&", "||", "|", "&"]
    assert [len(command.conditions) for command in found] == [
        0,
        0,
        0,
        0,
        0,
        1,
        1,
        0,
        0,
        0,
    ]
    assert [command.line for command in found] == [1, 1, 1, 1, 1, 2, 2, 3, 4, 7]


def test_conditions_in_double_brackets_are_one_command() -> None:
    found = commands('[[ -n "$A" && $B > 3 ]] && run')
    assert [command.words[0].bare for command in found] == ["[[", "run"]
    assert found[1].before == "&&"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a\nb 'c", 2, "`'` is not closed"),
        ('a "b\n\n', 1, '`"` is not closed'),
        ("a\n\nb $(c", 3, "`(` is not closed"),
        ("A=(1\n2", 1, "`(` is not closed"),
        ("a ${b", 1, "`{` is not closed"),
    ],
)
def test_an_open_quote_has_a_place(text: str, line: int, what: str) -> None:
    with pytest.raises(Unreadable) as error:
        walk_of("f", (), None, no_files, 1).run(text)
    assert (error.value.what, error.value.line) == (what, line)
