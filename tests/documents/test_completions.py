"""Completions offer what the parsers take, in the shells themselves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from mlxceld.argv import build_parser
from mlxceld.documents.commands import COMMANDS
from tests.documents.tools import ROOT, have, run

FOLDER = ROOT / "completions"
NAMES = ["mlxcel-server", *(command.name for command in COMMANDS)]


def offered(*words: str) -> list[str]:
    """What bash offers for the last of `words`, split as readline splits them."""
    program = words[0]
    script = (
        f"set -u; source {FOLDER / program}.bash; "
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
        f"{'_' + program.replace('-', '_')}; "
        'for word in ${COMPREPLY[@]+"${COMPREPLY[@]}"}; do printf "%s\\n" "$word"; done'
    )
    done = run([have("bash"), "--norc", "-c", script])
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_a_flag_is_completed() -> None:
    assert offered("mlxcel-server", "--par") == ["--parallel"]
    assert offered("mlxcel-server", "--mo") == ["--model", "--mode"]


def test_everything_is_offered_where_nothing_is_typed() -> None:
    every = {flag for a in build_parser()._actions for flag in a.option_strings}
    assert set(offered("mlxcel-server", "")) == every


def test_the_words_of_a_choice_are_offered() -> None:
    modes = ["legacy", "llama-compat", "per-seq"]
    assert offered("mlxcel-server", "--mode", "") == modes
    assert offered("mlxcel-server", "--mode", "l") == modes[:2]


def test_a_value_after_an_equals_sign_is_completed() -> None:
    assert offered("mlxcel-server", "--mode", "=") == [
        *("legacy", "llama-compat", "per-seq")
    ]
    assert offered("mlxcel-server", "--mode", "=", "per") == ["per-seq"]
    assert offered("mlxcel-server", "--print-config", "=", "j") == ["json"]


def test_nothing_is_offered_where_files_and_numbers_belong() -> None:
    """bash then offers names of files by itself."""
    assert offered("mlxcel-server", "--model", "") == []
    assert offered("mlxcel-server", "-c", "") == []
    assert offered("mlxcel-server", "--port", "--") == []


def test_a_flag_with_an_optional_word_lets_others_follow() -> None:
    words = offered("mlxcel-server", "--print-config", "")
    assert words[:3] == ["changed", "all", "json"]
    assert "--port" in words


def test_the_migration_completes_flags_and_files() -> None:
    assert offered("mlxcel-migrate", "--wr") == ["--write"]
    assert offered("mlxcel-migrate", "--report", "") == ["text", "json"]
    assert offered("mlxcel-migrate", "") == []


def test_bash_completes_the_command_when_the_file_is_read() -> None:
    for name in NAMES:
        script = f"source {FOLDER / name}.bash; complete -p {name}"
        done = run([have("bash"), "--norc", "-c", script])
        function = "_" + name.replace("-", "_")
        assert done.stdout == f"complete -o default -F {function} {name}\n"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shell", "file"), [("bash", "{}.bash"), ("zsh", "_{}"), ("fish", "{}.fish")]
)
def test_the_shell_takes_the_file(shell: str, file: str, name: str) -> None:
    program = have(shell, always=shell == "bash")
    done = run([program, "-n", FOLDER / file.format(name)])
    assert (done.returncode, done.stderr) == (0, "")


def zsh_flags(text: str) -> set[str]:
    return set(re.findall(r"^    '(?:\([^)]*\))?\*?(--?[a-z0-9-]+?)=?-?\[", text, re.M))


def fish_flags(text: str) -> set[str]:
    rows = [row.partition(" -d ")[0] for row in text.splitlines()]
    found = [pair for row in rows for pair in re.findall(r" -([sol]) (\S+)", row)]
    return {f"{'--' if kind == 'l' else '-'}{name}" for kind, name in found}


@pytest.mark.parametrize(
    ("file", "flags"), [("_{}", zsh_flags), ("{}.fish", fish_flags)]
)
def test_zsh_and_fish_know_every_flag(
    file: str, flags: Callable[[str], set[str]]
) -> None:
    parsers = [build_parser(), *(command.parser() for command in COMMANDS)]
    for name, parser in zip(NAMES, parsers, strict=True):
        every = {flag for a in parser._actions for flag in a.option_strings}
        assert flags((FOLDER / file.format(name)).read_text()) == every


def test_fish_offers_words_and_flags() -> None:
    script = (
        f"source {FOLDER / 'mlxcel-server.fish'}; "
        "complete -C 'mlxcel-server --mode l'; complete -C 'mlxcel-server --ctx-size-'"
    )
    done = run([have("fish", always=False), "--no-config", "-c", script])
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [
        *("legacy", "llama-compat", "--ctx-size-per-seq")
    ]
