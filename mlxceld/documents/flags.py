"""The flags of a program in one shape, wherever they come from.

The daemon's come from the option table, those of other commands from their argparse
parser. Man pages, completions and tests read this shape and know neither.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mlxceld.argv import ACTIONS, Action
from mlxceld.flips import FLIPS
from mlxceld.help import default_text
from mlxceld.kinds import Choice, FilePath
from mlxceld.options import CATEGORIES, OPTIONS, Option

Takes: TypeAlias = Literal["nothing", "text", "file", "words", "maybe"]
"""What follows a flag; "maybe" is one of the words, and only after `=`."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of a command line under all its spellings; an argument has none."""

    names: tuple[str, ...]
    short: str
    """One line without a full stop."""
    takes: Takes = "nothing"
    metavar: str = ""
    words: tuple[tuple[str, str], ...] = ()
    """Words it takes, each with its meaning or nothing."""
    off: tuple[str, ...] = ()
    """Spellings that take nothing and turn it off."""
    constants: tuple[tuple[str, str], ...] = ()
    """Spellings that take nothing, and the value they stand for."""
    long: tuple[str, ...] = ()
    """Paragraphs."""
    facts: tuple[str, ...] = ()
    """Paragraphs about key, variables, default, version and reload."""
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Flags under one heading."""

    heading: str
    flags: tuple[Flag, ...]


def server_groups() -> Iterator[Group]:
    """The flags of `mlxcel-server`, in the order of the table."""
    yield Group("General", tuple(_action(action) for action in ACTIONS))
    for category, heading in CATEGORIES.items():
        flags = tuple(
            option_flag(option)
            for option in OPTIONS
            if option.category == category and "flag" in option.where
        )
        yield Group(heading, flags)


def _action(action: Action) -> Flag:
    takes: Takes = "nothing"
    if action.words:
        takes = "maybe"
    elif action.metavar:
        takes = "file" if action.metavar == "FILE" else "text"
    return Flag(
        action.flags,
        action.short,
        takes,
        action.metavar,
        tuple((word, "") for word in action.words),
    )


def option_flag(option: Option) -> Flag:
    """One entry of the option table."""
    kind = option.kind
    takes: Takes = "text"
    if option.is_switch:
        takes = "nothing"
    elif isinstance(kind, Choice):
        takes = "words"
    elif isinstance(kind, FilePath):
        takes = "file"
    return Flag(
        option.flags,
        option.short,
        takes,
        "" if option.is_switch else option.metavar,
        kind.choices if isinstance(kind, Choice) else (),
        option.negated,
        option.constants,
        tuple(option.long.split("\n\n")),
        tuple(option_facts(option)),
    )


def option_facts(option: Option) -> Iterator[str]:
    """Key, variables, default, since and reload in sentences."""
    yield from changes(option)
    reload = "reload" if option.reload == "live" else "restart"
    yield (
        f"Default: {default_text(option)}. Key: `{option.key}`. Environment: "
        f"{variables(option)}. Since {option.since}. Changes with a {reload}."
    )


def changes(option: Option) -> Iterator[str]:
    """What will become of an option or of its default, in sentences."""
    for flip in FLIPS:
        if flip.option == option.key:
            yield f"The default becomes `{flip.new}` in version {flip.version}."
    if option.deprecated:
        yield f"Deprecated: {option.deprecated}."


def variables(option: Option) -> str:
    """The environment variables of an option, ours first, with backticks."""
    names = (option.own_env, *option.env)
    text = ", ".join(f"`{name}`" for name in names)
    off = ", ".join(f"`{name}`" for name in option.negated_env)
    return f"{text}; off: {off}" if off else text


def parser_groups(parser: argparse.ArgumentParser) -> Iterator[Group]:
    """The arguments and flags of an argparse parser, in its own groups.

    Help texts are expanded as argparse does; hidden arguments are left out.
    """
    for group in parser._action_groups:
        flags = tuple(
            _argument(parser, action)
            for action in group._group_actions
            if action.help != argparse.SUPPRESS
        )
        if flags:
            title = (
                "arguments" if all(not flag.names for flag in flags) else group.title
            )
            yield Group((title or "options").capitalize(), flags)


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Flag:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    short, *rest = (" ".join(part.split()) for part in text.split("\n\n"))
    return Flag(
        tuple(action.option_strings),
        short,
        _takes(action),
        "" if action.nargs == 0 else _metavar(action),
        tuple((str(choice), "") for choice in action.choices or ()),
        long=tuple(rest),
        repeats=action.nargs in ("*", "+", argparse.REMAINDER),
    )


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar:
        return action.metavar
    if action.choices:
        return "|".join(str(choice) for choice in action.choices)
    return action.dest.upper()


def _takes(action: argparse.Action) -> Takes:
    if action.nargs == 0:
        return "nothing"
    if action.choices:
        return "words"
    return "file" if _metavar(action) in _FILES else "text"


_FILES = frozenset({"FILE", "PATH", "DIR", "SOURCE", "FILE|-"})
"""Placeholders of arguments that are names of files."""
