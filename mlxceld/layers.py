"""Reads the environment and the command line, each layer by itself.

A layer yields what was said, where, and what is wrong with it. Which layer wins is
decided in `config.py`; TOML files are read in `files.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast

from mlxceld.argv import CommandLine
from mlxceld.foreign import CACHE_REUSE, IGNORED
from mlxceld.kinds import FALSE_WORDS, BadValue, Integer, Value
from mlxceld.near import nearest
from mlxceld.options import OPTIONS, Option
from mlxceld.paths import CONFIG_VARIABLE
from mlxceld.problems import Problem
from mlxceld.samplingkinds import Repeated

HIDDEN = "a value that is not shown"


class Layer(IntEnum):
    """Where a value comes from; a higher layer wins."""

    DEFAULT = 0
    FILE = 1
    DROP_IN = 2
    ENVIRONMENT = 3
    FLAG = 4


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was said, in the words of messages and printed configurations."""

    layer: Layer
    text: str
    """`default`, `mlxcel.toml:12`, `environment LLAMA_ARG_PORT`, `flag --port`."""


DEFAULT = Origin(Layer.DEFAULT, "default")


@dataclass(frozen=True, slots=True)
class Said:
    """One option as one layer says it."""

    option: Option
    value: Value
    origin: Origin
    where: str
    """The place for a problem: with the whole name of a file."""


@dataclass(slots=True)
class Found:
    """What reading the layers brought to light."""

    said: list[Said] = field(default_factory=list)
    ignored: dict[str, None] = field(default_factory=dict)
    """Names without meaning here, in the order they were met."""
    warnings: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def bad_value(option: Option, error: BadValue, where: str) -> Problem:
    """The problem of a value that an option does not take; secrets are withheld."""
    found = HIDDEN if option.secret else error.found
    return Problem(f"{option.key}: found {found}, wanted {error.wanted}", where)


# ---- environment ----

_PREFIXES = ("LLAMA_ARG_", "MLXCELD_")


def read_environment(environ: Mapping[str, str], found: Found) -> None:
    """Add the variables; empty and blank ones count as unset, for every option."""
    said = {name: value for name, value in environ.items() if value.strip()}
    for option in OPTIONS:
        if "env" not in option.where:
            continue
        for name in option.env:
            if name in said:
                _variable(option, name, said[name], found)
        for name in option.negated_env:
            if name in said:
                _negated_variable(option, name, said[name], found)
        if option.own_env in said:
            _variable(option, option.own_env, said[option.own_env], found)
    _foreign_variables(said, found)
    known = list(_variables())
    for name in sorted(said):
        if name.startswith(_PREFIXES) and name not in known:
            hint = f"did you mean `{meant}`?" if (meant := _meant(name, known)) else ""
            found.warnings.append(Problem("unknown, has no effect", _env(name), hint))


def _meant(name: str, known: Sequence[str]) -> str | None:
    """The variable that was meant: by the name of the option, else the most alike.

    What all variables begin with makes none of them alike.
    """
    prefix = next(prefix for prefix in _PREFIXES if name.startswith(prefix))
    bare = name.removeprefix(prefix)
    for option in OPTIONS:
        if option.own_env == f"MLXCELD_{bare}":
            return next(iter(option.env), option.own_env)
    # Of two with the same rest, the one that begins like this one.
    ordered = sorted(known, key=lambda one: one.startswith(prefix))
    names = {re.sub("^(LLAMA_ARG|MLXCELD)_", "", one): one for one in ordered}
    alike = nearest(bare, names)
    return names[alike] if alike else None


def _env(name: str) -> str:
    return f"environment variable {name}"


def _variables() -> Iterator[str]:
    for option in OPTIONS:
        yield from (*option.env, *option.negated_env, option.own_env)
    yield CONFIG_VARIABLE
    for foreign in (*IGNORED, CACHE_REUSE):
        yield from foreign.env


def _variable(option: Option, name: str, text: str, found: Found) -> None:
    try:
        value = option.kind.parse(text)
    except BadValue as error:
        found.problems.append(bad_value(option, error, _env(name)))
        return
    origin = Origin(Layer.ENVIRONMENT, f"environment {name}")
    found.said.append(Said(option, value, origin, _env(name)))


def _negated_variable(option: Option, name: str, text: str, found: Found) -> None:
    origin = Origin(Layer.ENVIRONMENT, f"environment {name}")
    found.said.append(Said(option, False, origin, _env(name)))
    if text.strip().lower() in FALSE_WORDS:
        found.warnings.append(
            Problem(
                f"found `{text.strip()}`, but its presence alone turns {option.key} "
                "off, as in llama-server",
                _env(name),
                "remove the variable to leave the option on",
            )
        )


def _foreign_variables(said: Mapping[str, str], found: Found) -> None:
    for foreign in IGNORED:
        for name in foreign.env:
            if name not in said:
                continue
            found.ignored[name] = None
            asks = foreign.value != "none" or not _is_off(said[name])
            if foreign.note and asks:
                found.warnings.append(
                    Problem(f"has no effect: {foreign.note}", _env(name))
                )


def _is_off(text: str) -> bool:
    return text.strip().lower() in FALSE_WORDS


# ---- command line ----


def read_command_line(line: CommandLine, found: Found) -> None:
    """Add the flags; of a flag that is repeated the last one counts.

    Those of lists to which each adds one item are the exception.
    """
    last: dict[str, Said] = {}
    for given in line.given:
        option = given.option
        try:
            value = option.kind.parse(given.text)
        except BadValue as error:
            found.problems.append(bad_value(option, error, given.flag))
            continue
        earlier = last.get(option.key)
        if isinstance(option.kind, Repeated) and earlier is not None:
            value = (*cast("tuple[str, ...]", earlier.value), *cast(Any, value))
        origin = Origin(Layer.FLAG, f"flag {given.flag}")
        last[option.key] = Said(option, value, origin, given.flag)
    found.said += last.values()
    for said in last.values():
        if said.option.secret and said.value:
            found.warnings.append(
                Problem(
                    "everybody on this machine can read it in the list of processes",
                    said.where,
                    f"use the variable {said.option.own_env} or a file",
                )
            )
    found.ignored |= dict.fromkeys(line.ignored)
    found.warnings += line.warnings
    found.problems += line.problems


def read_cache_reuse(
    line: CommandLine, environ: Mapping[str, str], usage: Found, found: Found
) -> None:
    """llama-server's smallest chunk to reuse: 0 is off, more is not supported here.

    The flag wins over the variable; both are checked, `usage` and `found` take the
    problems of either.
    """
    flag = CACHE_REUSE.flags[0]
    said = [(_env(name), environ.get(name, ""), found) for name in CACHE_REUSE.env]
    said = [one for one in said if one[1].strip()]
    if line.cache_reuse is not None:
        said.append((flag, line.cache_reuse, usage))
    chunk, where = 0, ""
    for place, text, taker in said:
        try:
            chunk, where = Integer(unit="tokens").parse(text), place
        except BadValue as error:
            what = f"cache_reuse: found {error.found}, wanted {error.wanted}"
            taker.problems.append(Problem(what, place))
    if chunk > 0:
        usage.warnings.append(
            Problem(
                f"reuse of chunks of {chunk} tokens inside a prompt is known and not "
                "supported here",
                where,
                "only the longest common beginning of two prompts is reused",
            )
        )
