"""Reads a command line into what was said, before anybody decides what it means.

argparse guesses: it takes `-k` for `-kvu`, reads `-np2` as `-n p2`, and its rules for
single dashes differ between Python releases. So the words are brought into one form
first (`-np2`, `-np=2`, `--n_parallel 2` become `flag=value`), flags are looked up
exactly, and argparse, built from the option table, never has anything to guess.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from mlxceld.foreign import CACHE_REUSE, IGNORED, REFUSED, Arity, Foreign
from mlxceld.near import did_you_mean
from mlxceld.options import OPTIONS, Option
from mlxceld.problems import Problem

Form: TypeAlias = Literal["changed", "all", "json"]
Whose: TypeAlias = Literal["user", "system"]


@dataclass(frozen=True, slots=True)
class Action:
    """A flag that is no option: it says what to do, or where the options are."""

    name: str
    flags: tuple[str, ...]
    short: str
    metavar: str = ""
    words: tuple[str, ...] = ()
    """Words that may follow; others are left to the next flag."""


ACTIONS: tuple[Action, ...] = (
    Action("help", ("-h", "--usage"), "Show one line for each option"),
    Action("long_help", ("--help",), "Show everything about each option"),
    Action("version", ("--version",), "Show the version"),
    Action("config", ("--config",), "Read this TOML file and no other", "FILE"),
    Action(
        "check_config",
        ("--check-config",),
        "Check the configuration, show the plan, and stop: status 0 or 78",
    ),
    Action(
        "print_config",
        ("--print-config",),
        "Show every value with its origin, as TOML or JSON, and stop",
        "changed|all|json",
        ("changed", "all", "json"),
    ),
    Action(
        "install_service",
        ("--install-service",),
        "Print the systemd unit or launchd file that serves with the other options of "
        "this command line, for this user or for the machine, and stop",
        "user|system",
        ("user", "system"),
    ),
    Action("write", ("--write",), "Put the file of --install-service in its place"),
)


@dataclass(frozen=True, slots=True)
class Given:
    """One option on the command line, as it was written."""

    option: Option
    flag: str
    text: str


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a command line says. Values are still text."""

    given: tuple[Given, ...] = ()
    ignored: tuple[str, ...] = ()
    """Flags of llama-server that have no meaning here, each once."""
    cache_reuse: str | None = None
    warnings: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()
    config: str | None = None
    help: Literal["short", "long"] | None = None
    version: bool = False
    check_config: bool = False
    print_config: Form | None = None
    install_service: Whose | None = None
    """Whose manager of services gets a file."""
    write: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a flag is and how many words follow it."""

    what: Option | Action | Foreign | str
    arity: Arity = "one"
    words: tuple[str, ...] = ()
    needs: str = ""


def _entries() -> dict[str, _Entry]:
    known: dict[str, _Entry] = {}
    for option in OPTIONS:
        if "flag" not in option.where:
            continue
        arity: Arity = "none" if option.is_switch else "one"
        for flag in option.flags:
            known[flag] = _Entry(option, arity, needs=option.kind.wanted)
        for flag in (*option.negated, *(flag for flag, _ in option.constants)):
            known[flag] = _Entry(option, "none")
    for action in ACTIONS:
        arity = "maybe" if action.words else "one" if action.metavar else "none"
        for flag in action.flags:
            known[flag] = _Entry(action, arity, action.words, f"a {action.metavar}")
    for foreign in (*IGNORED, CACHE_REUSE):
        for flag in foreign.flags:
            known[flag] = _Entry(foreign, foreign.value, foreign.words, "a value")
    for flag, why in REFUSED.items():
        known[flag] = _Entry(why, "maybe")
    return known


KNOWN = _entries()
"""Every flag that is recognised; our own come first."""

_ATTACHED = sorted(
    (f for f, e in KNOWN.items() if not f.startswith("--") and e.arity == "one"),
    key=len,
    reverse=True,
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # Everything a user can get wrong was found before argparse sees a word.
        raise AssertionError(message)


class _Record(argparse.Action):
    """Adds to `namespace.given`, in the order of the words; `metavar` is for texts."""

    def __init__(self, *args: Any, option: Option, text: str | None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.option = option
        self.text = text

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        text = self.text if values in (None, []) else values
        namespace.given.append(Given(self.option, option_string or "", str(text)))


def build_parser(
    options: Iterable[Option] = OPTIONS,
) -> argparse.ArgumentParser:
    """The argparse parser of the option table; it wants words that `parse` has seen."""
    parser = _Parser(prog="mlxcel-server", add_help=False, allow_abbrev=False)
    for action in ACTIONS:
        if not action.metavar:
            parser.add_argument(*action.flags, dest=action.name, action="store_true")
        elif action.words:
            parser.add_argument(
                *action.flags, dest=action.name, nargs="?", const=action.words[0]
            )
        else:
            parser.add_argument(*action.flags, dest=action.name)
    for option in options:
        common: dict[str, Any] = {
            "action": _Record,
            "option": option,
            "dest": option.key,
            "default": argparse.SUPPRESS,
        }
        if "flag" not in option.where:
            continue
        if option.is_switch:
            parser.add_argument(*option.flags, nargs="?", text="true", **common)
        else:
            parser.add_argument(*option.flags, text=None, **common)
        if option.negated:
            parser.add_argument(*option.negated, nargs=0, text="false", **common)
        for flag, text in option.constants:
            parser.add_argument(flag, nargs=0, text=text, **common)
    return parser


def _parser(tokens: Iterable[str]) -> argparse.ArgumentParser:
    """A parser of the options that are named: a hundred others take a while to add."""
    entries = (KNOWN[token.partition("=")[0]] for token in tokens)
    named = {e.what.key: e.what for e in entries if isinstance(e.what, Option)}
    return build_parser(named.values())


@dataclass(slots=True)
class _Reader:
    """Brings words into one form; collects what is wrong with them."""

    words: Sequence[str]
    at: int = 0
    tokens: list[str] = field(default_factory=list)
    ignored: dict[str, None] = field(default_factory=dict)
    cache_reuse: str | None = None
    warnings: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    after_secret: bool = False

    def read(self) -> None:
        while self.at < len(self.words):
            self.step()

    def step(self) -> None:
        """Read one flag with the words that belong to it, or one stray word."""
        word = self.words[self.at]
        self.at += 1
        if word == "-" or not word.startswith("-") or word == "--":
            self._stray(word)
        else:
            self._flag(word)

    def _stray(self, word: str) -> None:
        # The word may be the second half of a key that was not quoted.
        shown = "an argument that is not shown" if self.after_secret else f"`{word}`"
        self.problems.append(
            Problem(
                f"{shown} belongs to no flag",
                hint="a model is named with `--model PATH`; see `--help`",
            )
        )

    def _flag(self, word: str) -> None:
        written, sep, text = word.partition("=")
        value = text if sep else None
        flag = written.replace("_", "-") if written.startswith("--") else written
        entry = KNOWN.get(flag)
        if entry is None and not word.startswith("--"):
            flag, value = _split_attached(word) or (flag, value)
            entry = KNOWN.get(flag)
        if entry is None:
            self.after_secret = False
            self.problems.append(
                Problem("unknown flag", written, did_you_mean(flag, KNOWN, 0.5))
            )
            # Its value, if it has one, goes along: one mistake, not two.
            if not sep and self.at < len(self.words):
                self.at += not self.words[self.at].startswith("-")
            return
        what = entry.what
        self.after_secret = isinstance(what, Option) and what.secret
        switch = isinstance(what, Option) and flag in what.flags and what.is_switch
        if value is not None and entry.arity == "none" and not switch:
            self.problems.append(Problem("takes no value", written))
            return
        if value is None:
            value = self._following(entry)
            if value is None and entry.arity in ("one", "two"):
                found = "the end"
                if self.at < len(self.words):
                    found = f"the flag `{self.words[self.at].partition('=')[0]}`"
                self.problems.append(
                    Problem(f"needs a value: found {found}, wanted {entry.needs}", flag)
                )
                return
        if isinstance(what, str):
            self.problems.append(Problem(what, flag))
        elif what is CACHE_REUSE:
            self.cache_reuse = value
        elif isinstance(what, Foreign):
            if what.note and flag not in self.ignored:
                self.warnings.append(Problem(f"has no effect: {what.note}", flag))
            self.ignored[flag] = None
        else:
            self.tokens.append(flag if value is None else f"{flag}={value}")

    def _following(self, entry: _Entry) -> str | None:
        """The word or words after a flag that belong to it."""
        if entry.arity == "none" or self.at >= len(self.words):
            return None
        word = self.words[self.at]
        if entry.arity == "maybe":
            takes = word in entry.words or (
                isinstance(entry.what, str) and not word.startswith("-")
            )
            self.at += takes
            return word if takes else None
        if _is_flag(word):
            return None
        self.at += 1
        if entry.arity == "two" and self.at < len(self.words):
            self.at += 1
        return word


def _is_flag(word: str) -> bool:
    name = word.partition("=")[0]
    return (name.replace("_", "-") if name.startswith("--") else name) in KNOWN


def _split_attached(word: str) -> tuple[str, str] | None:
    """`-np2` as flag and number; the longest flag that fits wins."""
    for flag in _ATTACHED:
        if word.startswith(flag) and re.match(r"-?[0-9]", word[len(flag) :]):
            return flag, word[len(flag) :]
    return None


def span(argv: Sequence[str], at: int) -> int:
    """The index behind the flag at `at` and the words that belong to it."""
    reader = _Reader(argv, at)
    reader.step()
    return reader.at


def parse(argv: Sequence[str]) -> CommandLine:
    """What `argv` (without the name of the program) says. Never raises."""
    reader = _Reader(argv)
    reader.read()
    parser = _parser(reader.tokens)
    seen = parser.parse_args(reader.tokens, argparse.Namespace(given=[]))
    problems = list(reader.problems)
    form = seen.print_config
    if form is not None and form not in get_args(Form):
        problems.append(
            Problem(f"found `{form}`, wanted changed, all or json", "--print-config")
        )
    whose = seen.install_service
    if whose is not None and whose not in get_args(Whose):
        what = f"found `{whose}`, wanted user or system"
        problems.append(Problem(what, "--install-service"))
    if seen.write and whose is None:
        problems.append(
            Problem("has no meaning without `--install-service`", "--write")
        )
    if seen.config is not None and not seen.config.strip():
        problems.append(Problem("found nothing, wanted a file", "--config"))
    return CommandLine(
        given=tuple(seen.given),
        ignored=tuple(reader.ignored),
        cache_reuse=reader.cache_reuse,
        warnings=tuple(reader.warnings),
        problems=tuple(problems),
        config=seen.config,
        help="long" if seen.long_help else "short" if seen.help else None,
        version=seen.version,
        check_config=seen.check_config,
        print_config=form,
        install_service=whose,
        write=seen.write,
    )
