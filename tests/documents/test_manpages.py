"""The man pages are clean, complete, and the same everywhere."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxceld.argv import ACTIONS, build_parser, parse
from mlxceld.documents import manpages
from mlxceld.documents.commands import COMMANDS
from mlxceld.documents.flags import parser_groups, server_groups, variables
from mlxceld.help import ABOUT, USAGE, default_text, long_help
from mlxceld.kinds import Choice
from mlxceld.options import CATEGORIES, OPTIONS, Option
from tests.documents.tools import MAN, ROOT, have, rendered, run, words

every_page = pytest.mark.parametrize("page", MAN, ids=lambda page: page.name)

WORDS = {word for o in OPTIONS if isinstance(o.kind, Choice) for word in o.kind.words}
"""Every word that some option takes."""

SERVER, CONFIG = ROOT / "man" / "mlxcel-server.1", ROOT / "man" / "mlxcel.toml.5"


@every_page
def test_mandoc_finds_nothing_to_say(page: Path) -> None:
    done = run([have("mandoc"), "-T", "lint", "-W", "style", page])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@every_page
def test_groff_finds_nothing_to_say(page: Path) -> None:
    done = run([have("groff"), "-ww", "-man", "-Tutf8", page])
    assert (done.returncode, done.stderr) == (0, "")


@every_page
def test_whatis_finds_the_name(page: Path) -> None:
    done = run([have("lexgrog"), page])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f'"{page.stem} - ' in done.stdout


@every_page
def test_a_page_is_ascii_and_names_no_folder_of_its_maker(page: Path) -> None:
    text = page.read_bytes().decode("ascii")
    assert str(Path.home()) not in text
    assert str(ROOT) not in text


@every_page
def test_references_lead_to_pages_that_exist(page: Path) -> None:
    text = rendered(page).partition("SEE ALSO ")[2]
    found = re.findall(r"([a-z.-]+)\(([0-9])\)", text)
    assert found
    assert {f"{name}.{section}" for name, section in found} <= {p.name for p in MAN}


def headings(page: Path) -> list[str]:
    return re.findall(r"^\.SH (.+)$", page.read_text(), re.MULTILINE)


def test_the_sections_are_in_the_order_of_man_pages() -> None:
    assert headings(SERVER) == [
        *("NAME", "SYNOPSIS", "DESCRIPTION", "MODES", "OPTIONS", "EXIT STATUS"),
        *("SIGNALS", "ENVIRONMENT", "FILES", "NOTES", "EXAMPLES", "SEE ALSO"),
    ]
    assert headings(CONFIG) == [
        *("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT", "FILES"),
        *("NOTES", "EXAMPLES", "SEE ALSO"),
    ]


@pytest.fixture(scope="module")
def server() -> str:
    return rendered(SERVER)


@pytest.fixture(scope="module")
def config() -> str:
    return rendered(CONFIG)


def texts(option: Option) -> Iterator[str]:
    """Everything that the table says about an option."""
    yield f"{option.short}."
    yield from option.long.split("\n\n")
    if isinstance(option.kind, Choice):
        yield from (f"{word} {text}" for word, text in option.kind.choices)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_no_word_of_the_table_is_lost(option: Option, server: str, config: str) -> None:
    for text in texts(option):
        assert words(text) in server
        assert words(text) in config


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_an_option_shows_key_variables_default_version_and_reload(
    option: Option, server: str, config: str
) -> None:
    changes = "a reload" if option.reload == "live" else "a restart"
    facts = (
        f"Default: {default_text(option)}. Key: {option.key}. Environment: "
        f"{variables(option)}. Since {option.since}. Changes with {changes}."
    )
    assert words(facts) in server
    for flag in (*option.flags, *option.negated):
        assert f"{flag}" in config
    for name in (option.own_env, *option.env, *option.negated_env):
        assert name in config


def test_the_page_says_what_help_says(server: str) -> None:
    for paragraph in ABOUT:
        assert words(paragraph) in server
    for action in ACTIONS:
        assert f"{words(action.short)}." in server
    for heading in CATEGORIES.values():
        assert heading in server
    assert f"SYNOPSIS {USAGE.removeprefix('usage: ')} " in server


def test_no_line_of_the_long_help_is_lost(server: str) -> None:
    for line in long_help(100_000).splitlines():
        # Headings and spellings have another form there, and a test of their own.
        said = line.strip()
        if line.startswith("      ") and not said.startswith("[default: "):
            word, colon, meaning = said.partition(": ")
            is_choice = colon and word in WORDS
            assert words(f"{word} {meaning}" if is_choice else said) in server


def flags_of(page: Path) -> set[str]:
    """The spellings in the tags of the section of options."""
    text = page.read_text().partition(".SH OPTIONS")[2].partition(".SH ")[0]
    tags = re.findall(r"^\.TP\n(.*)$", text, re.MULTILINE)
    plain = " ".join(re.sub(r"\\f.|\\", "", tag) for tag in tags)
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", plain))


def spellings(parser: argparse.ArgumentParser) -> set[str]:
    return {flag for action in parser._actions for flag in action.option_strings}


def test_the_page_has_the_flags_of_the_parser_and_no_others() -> None:
    assert flags_of(SERVER) == spellings(build_parser())
    made = {
        name
        for group in server_groups()
        for flag in group.flags
        for name in (*flag.names, *flag.off, *(name for name, _ in flag.constants))
    }
    assert made == spellings(build_parser())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_page_of_a_command_says_what_its_help_says(
    command: manpages.Any,
) -> None:
    page = ROOT / "man" / f"{command.name}.1"
    parser = command.parser()
    assert flags_of(page) == spellings(parser)
    text = rendered(page)
    for group in parser_groups(parser):
        for flag in group.flags:
            assert words(flag.short) in text
    for part in (parser.description, parser.epilog):
        for line in (part or "").splitlines():
            assert words(line).lower().rstrip(":") in text.lower()


def test_the_examples_are_commands_that_the_daemon_takes() -> None:
    for example in manpages.SERVER_EXAMPLES:
        text = " ".join(line.removesuffix("\\") for line in example.commands)
        program, *said = shlex.split(text)
        assert program == "mlxcel-server"
        assert parse(said).problems == ()


def test_a_parser_without_texts_loses_no_argument() -> None:
    parser = argparse.ArgumentParser(prog="tool", add_help=False)
    parser.add_argument("--bare")
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    parser.add_argument("--share", help="half is 50%%, default %(default)s", default=7)
    text = manpages.parser_page(parser, "do something")
    assert r"\fB\-\-bare\fR \fIBARE\fR" in text
    assert "hidden" not in text
    assert "half is 50%, default 7" in text


def test_a_command_of_a_tool_without_a_text_is_listed() -> None:
    parser = argparse.ArgumentParser(prog="tool", add_help=False)
    commands = parser.add_subparsers()
    commands.add_parser("silent")
    commands.add_parser("loud", help="say it")
    text = manpages.parser_page(parser, "do something")
    assert r"\fIsilent|loud\fR" in text


def test_a_second_list_of_examples_is_a_section_of_its_own() -> None:
    parser = argparse.ArgumentParser(prog="tool", epilog="see:\n  .hidden -x\n")
    text = manpages.parser_page(parser, "do something")
    assert ".SH SEE\n.EX\n\\&.hidden \\-x\n.EE" in text


def test_references_are_ordered_by_section_and_name() -> None:
    assert manpages.see_also("b(5)", "c(1)", "a(1)") == (
        r"\fBa\fR(1), \fBc\fR(1), \fBb\fR(5)"
    )


def pythons() -> list[str]:
    """Every Python of this machine that is new enough."""
    names = [f"python3.{minor}" for minor in range(11, 16)]
    homes = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    found = []
    for python in [*names, *map(str, homes)]:
        code = "import sys; print(sys.version_info >= (3, 11), sys.executable)"
        try:
            done = subprocess.run([python, "-c", code], capture_output=True, text=True)
        except OSError:
            continue
        if done.stdout.startswith("True "):
            found.append(done.stdout.split()[1])
    return sorted(set(found))


NARROW = {"COLUMNS": "40", "TZ": "Asia/Seoul", "HOME": "/elsewhere"}
WIDE = {"COLUMNS": "200", "SOURCE_DATE_EPOCH": "1", "LC_ALL": "C"}


def test_the_bytes_do_not_depend_on_the_machine() -> None:
    paths = sysconfig.get_paths()
    here = f"{paths['purelib']}:{paths['platlib']}"
    # Nothing is installed there, so `migrate` is put where the build puts it.
    code = (
        "import sys, migrate; sys.modules['mlxceld.migrate'] = migrate\n"
        "from mlxceld.generate import main; sys.exit(main(['--check']))"
    )
    others = [(python, NARROW) for python in pythons()]
    for python, env in [(sys.executable, WIDE), *others]:
        done = run([python, "-c", code], PYTHONPATH=here, **env)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), python
