"""Walks through a script: follows its variables and finds the servers it starts.

The script is read, never run, and followed one level: a script that it calls or
sources is read too, one that this one calls is not. What stands under a condition may
not happen, so a variable set there is in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..found import Remark, Variable, Word
from .containers import CONTAINERS, started_container
from .expand import State, Value, assignment, expand, expand_one, folder_of
from .shell import RawWord
from .statements import Command, commands
from .words import (
    Files,
    Start,
    base_name,
    find_program,
    is_called_server,
    is_shell,
    looks_like_arguments,
    no_files,
    unknown_program,
    unwrap,
)

_DECLARES = frozenset({"export", "declare", "typeset", "readonly", "local"})
_OPTIONS = ("LLAMA_ARG_", "LLAMA_API_KEY", "MLXCEL")


@dataclass(slots=True)
class Walk:
    """One way through a script, from its first command to its last."""

    state: State
    files: Files
    level: int = 1
    """How many scripts may still be read on the way."""
    starts: list[Start] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    all_exported: bool = False
    folder: str = ""
    """Where `cd` has gone to, as far as that is known."""
    alternatives: int = 0
    """How many commands behind `&&` and `||` were met."""

    def run(self, text: str, first_line: int = 1) -> None:
        """Walk through the commands of a text. Raises Unreadable."""
        if re.match(r"#!.*\bzsh\b", text):
            self.state.splits = False
        outside = self.state.conditions
        previous: Command | None = None
        for command in commands(text, first_line):
            conditions = (*outside, *command.conditions)
            if command.is_alternative(previous):
                # A branch of its own: no other command stands in it.
                conditions = (*conditions, (-1, self.alternatives))
                self.alternatives += 1
            self.state.conditions = conditions
            self._command(command)
            previous = command
        self.state.conditions = outside

    def _command(self, command: Command) -> None:
        words = list(command.words)
        assigned: list[tuple[str, RawWord, bool]] = []
        while words and (pair := assignment(words[0])):
            assigned.append(pair)
            words.pop(0)
        if not words:
            for name, raw, adds in assigned:
                self._assign(name, raw, adds)
            return
        name = words[0].bare
        if name in ("for", "select") and len(words) > 1:
            self._loop(words)
        elif name in _DECLARES:
            self._declare(name, words[1:])
        elif name == "set":
            self._set(words[1:])
        elif name == "shift" and self.state.arguments:
            self.state.arguments = self.state.arguments[1:]
        elif name == "unset":
            for word in words[1:]:
                self._unset(word.bare)
        else:
            self._program(command, words, assigned)

    def _assign(self, name: str, raw: RawWord, adds: bool) -> None:
        state = self.state
        place = state.place(raw.line, name)
        when = state.conditions
        old = state.get(name)
        if raw.items is not None:
            items = [word for item in raw.items for word in expand(item, state)]
            whens = [when] * len(items)
            if adds and old is not None and old.items is not None:
                items = [*old.items, *items]
                whens = [*old.whens, *whens]
            value = Value("", place, "", tuple(items), when, tuple(whens))
        else:
            word = expand_one(raw, state)
            text = (old.text if adds and old else "") + word.text
            doubt = word.doubt or (old.doubt if adds and old else "")
            value = Value(text, place, doubt, None, when)
        if old is not None and name in state.exported and not when and _counts(name):
            text = f"`{name}` is set again in line {raw.line}, and the last one counts"
            state.remarks.append(Remark(text, old.place))
        state.values[name] = value
        if self.all_exported:
            state.exported[name] = None

    def _loop(self, words: list[RawWord]) -> None:
        name, line = words[1].bare, words[1].line
        if not name or name[0] == "(":
            return
        place = self.state.place(line, name)
        self.state.values[name] = Value(
            f"${name}", place, f"`${name}` takes several values (line {line})"
        )

    def _declare(self, command: str, words: list[RawWord]) -> None:
        exports = command == "export"
        for raw in words:
            if pair := assignment(raw):
                self._assign(*pair)
                if exports:
                    self.state.exported[pair[0]] = None
            elif raw.bare.startswith("-"):
                exports = exports or "x" in raw.bare
            elif exports and raw.bare:
                self.state.exported[raw.bare] = None

    def _set(self, raw: list[RawWord]) -> None:
        if raw and raw[0].bare == "--":
            # The script gives itself other arguments.
            reason = (
                "the arguments are set under a condition"
                if self.state.conditions
                else ""
            )
            self.state.arguments = tuple(
                replace(word, doubt=word.doubt or reason)
                for one in raw[1:]
                for word in expand(one, self.state)
            )
            return
        words = [word.bare for word in raw]
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if re.match(r"[-+][A-Za-z]*a", word) or following == "allexport":
                self.all_exported = word[0] == "-"

    def _unset(self, name: str) -> None:
        if not name or name.startswith("-"):
            return
        maybe = bool(self.state.conditions)
        if maybe and (old := self.state.values.get(name)):
            reason = f"`{name}` is unset under a condition"
            self.state.values[name] = replace(old, doubt=old.doubt or reason)
        elif not maybe:
            self.state.values.pop(name, None)
            self.state.exported.pop(name, None)
            self.state.unset.add(name)

    def _program(
        self,
        command: Command,
        words: list[RawWord],
        assigned: list[tuple[str, RawWord, bool]],
    ) -> None:
        fields = [word for raw in words for word in expand(raw, self.state)]
        if not fields:
            return
        if fields[0].text in (".", "source"):
            self._source(fields[1:])
            return
        if fields[0].text == "eval":
            self._evaluate(fields[1:])
            return
        if fields[0].text in ("cd", "pushd"):
            self._enter(fields[1:])
            return
        environment = [
            Variable(name, value.text, value.place, value.doubt)
            for name in self.state.exported
            if (value := self.state.get(name)) and value.items is None
        ]
        for name, raw, _ in assigned:
            word = expand_one(raw, self.state)
            place = replace(word.place, name=name)
            environment.append(Variable(name, word.text, place, word.doubt))
        found = started(fields, environment, self.files, self.level, self.state.file)
        around = self._around(command) if found else []
        for start in found:
            folder = start.folder or ("" if start.is_container else self.folder)
            remarks = [*start.remarks, *around]
            self.starts.append(replace(start, remarks=tuple(remarks), folder=folder))

    def _evaluate(self, fields: list[Word]) -> None:
        """`eval`: its words are one more line of the script."""
        before = len(self.starts)
        text = " ".join(word.text for word in fields)
        self.run(text, fields[0].place.line if fields else 1)
        doubts = tuple(
            Remark(f"`eval`: {word.doubt}", word.place, review=True)
            for word in fields
            if word.doubt
        )
        self.starts[before:] = [
            replace(start, remarks=(*start.remarks, *doubts))
            for start in self.starts[before:]
        ]

    def _enter(self, fields: list[Word]) -> None:
        """`cd`: an unknown folder, or one under a condition, is not known."""
        own = folder_of(self.state.file)
        target = next((w for w in fields if not w.text.startswith("-")), None)
        if target is None or target.doubt or self.state.conditions:
            self.folder = ""
        elif target.text == own or target.text.startswith(("/", "~")):
            self.folder = target.text
        elif self.folder:
            self.folder = f"{self.folder}/{target.text}"

    def _around(self, command: Command) -> list[Remark]:
        """What the script does with a server, apart from starting it."""
        place = self.state.place(command.line)
        remarks = []
        if command.after == "&":
            remarks.append(Remark("runs in the background (`&`)", place))
        if command.after in ("|", "|&"):
            remarks.append(Remark("its output goes to another program", place))
        if self.state.conditions:
            remarks.append(Remark("starts under a condition or in a loop", place))
        for name, value in self.state.values.items():
            if _counts(name) and name not in self.state.exported:
                text = f"`{name}` is not exported: the server does not see it"
                remarks.append(Remark(text, value.place))
        return remarks

    def _source(self, fields: list[Word]) -> None:
        if not fields:
            return
        target = fields[0]
        text = None
        if not target.doubt and self.level:
            name, text = _beside(target.text, self.state.file, self.files)
        if text is None:
            what = f"`{target.text}` is sourced, but was not read"
            self.state.remarks.append(Remark(what, target.place, review=True))
            return
        self.read.append(name)
        outer, self.state.file = self.state.file, name
        self.level -= 1
        try:
            self.run(text)
        finally:
            self.state.file, self.level = outer, self.level + 1


def _counts(name: str) -> bool:
    return name.startswith(_OPTIONS)


def _beside(name: str, file: str, files: Files) -> tuple[str, str | None]:
    """A file by its name, or else seen from the folder of the script."""
    text = files(name)
    if text is None and file and not name.startswith(("/", "~")):
        name = f"{folder_of(file)}/{name}"
        text = files(name)
    return name, text


def started(
    words: Sequence[Word],
    environment: Sequence[Variable] = (),
    files: Files = no_files,
    level: int = 1,
    file: str = "",
) -> list[Start]:
    """The servers that a command starts, through wrappers, shells and scripts.

    `environment` is what the command sees; each start carries all of it, and what
    was added on the way. Raises Unreadable where a script cannot be read.
    """
    unwrapped = unwrap(words)
    inner = unwrapped.words
    if not inner:
        return []
    seen = (*environment, *unwrapped.environment)
    if base_name(inner[0].text) in CONTAINERS:
        return started_container(inner, unwrapped.before, files, seen)
    if (start := find_program(inner)) is not None:
        command = (*unwrapped.before, *start.command)
        return [replace(start, command=command, environment=seen)]
    if is_shell(inner[0].text):
        return _shell(inner, unwrapped.before, seen, files, level, file)
    if re.search(r"/|\.(sh|bash|zsh)$", inner[0].text) and not inner[0].doubt:
        found = _script(inner, unwrapped.before, seen, files, level, file)
        if found:
            return found
    if looks_like_arguments(inner[1:]) and (
        inner[0].doubt or is_called_server(inner[0].text)
    ):
        remark = unknown_program(inner[0])
        command = (*unwrapped.before, inner[0].text)
        return [Start(None, command, tuple(inner[1:]), seen, (remark,))]
    return []


def _shell(
    words: list[Word],
    before: list[str],
    environment: Sequence[Variable],
    files: Files,
    level: int,
    file: str,
) -> list[Start]:
    """`sh -c "..."` and `sh script`."""
    rest = words[1:]
    while rest and rest[0].text.startswith("-"):
        flag = rest.pop(0).text
        if not flag.startswith("--") and "c" in flag and rest:
            text, arguments = rest[0], tuple(rest[2:])
            walk = walk_of(
                text.place.file or file, environment, arguments, files, level
            )
            walk.run(text.text, text.place.line or 1)
            return ended(walk, before)
        if flag in ("-o", "+o") and rest:
            rest.pop(0)
    if rest and not rest[0].doubt:
        return _script(rest, before, environment, files, level, file)
    return []


def _script(
    words: list[Word],
    before: list[str],
    environment: Sequence[Variable],
    files: Files,
    level: int,
    file: str,
) -> list[Start]:
    if not level:
        return []
    name, text = _beside(words[0].text, file, files)
    if text is None or (text[:1] != "#" and not name.endswith("sh")):
        return []
    walk = walk_of(name, environment, tuple(words[1:]), files, level - 1)
    walk.read.append(name)
    walk.run(text)
    return ended(walk, [*before, name])


def unread(words: Sequence[Word], files: Files, file: str = "") -> Word | None:
    """The script that a command starts, if it could not be read."""
    inner = unwrap(words).words
    if inner and is_shell(inner[0].text):
        inner = [word for word in inner[1:] if not word.text.startswith("-")]
    if not inner or not re.search(r"\.(sh|bash|zsh)$", inner[0].text):
        return None
    _, text = _beside(inner[0].text, file, files)
    return inner[0] if text is None else None


def walk_of(
    file: str,
    environment: Sequence[Variable],
    arguments: tuple[Word, ...] | None,
    files: Files,
    level: int,
) -> Walk:
    state = State(file, arguments=arguments)
    for variable in environment:
        state.values[variable.name] = Value(
            variable.value, variable.place, variable.doubt
        )
        state.exported.pop(variable.name, None)
        state.exported[variable.name] = None
    return Walk(state, files, level)


def ended(walk: Walk, before: Sequence[str]) -> list[Start]:
    return [
        replace(
            start,
            command=(*before, *start.command),
            remarks=(*walk.state.remarks, *start.remarks),
            files=(*walk.read, *start.files),
        )
        for start in walk.starts
    ]
