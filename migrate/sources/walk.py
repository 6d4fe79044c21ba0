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
from .scope import Scope, is_option
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
    other_language,
    unknown_program,
    unwrap,
)

_DEEPEST, _MOST = 8, 200
"""How deep functions may call each other, and how often, so that it ends."""

_DECLARES = frozenset({"export", "declare", "typeset", "readonly", "local"})


_HARMLESS = re.compile(
    r"brew shellenv|shell\.\w+ hook|ssh-agent|direnv hook|mise activate|pyenv init"
)
"""What is often given to `eval`, and sets no option of a server."""


@dataclass(slots=True)
class Walk(Scope):
    """One way through a script, from its first command to its last."""

    files: Files = no_files
    level: int = 1
    """How many scripts may still be read on the way."""
    starts: list[Start] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    folder: str = ""
    """Where `cd` has gone to, as far as that is known."""
    functions: dict[str, tuple[str, list[Command]]] = field(default_factory=dict)
    """The file that defines a function, and its commands."""
    calls: int = 0
    """How many functions have called each other to get here."""
    called: int = 0
    """How many calls there were."""
    alternatives: int = 0
    """How many commands behind `&&` and `||` were met."""

    def run(self, text: str, first_line: int = 1) -> None:
        """Walk through the commands of a text. Raises Unreadable."""
        if re.match(r"#!.*\bzsh\b", text):
            self.state.splits = False
        own: list[Command] = []
        defined: dict[str, list[Command]] = {}
        for command in commands(text, first_line):
            body = defined.setdefault(command.function, [])
            (body if command.function else own).append(command)
        for name, body in defined.items():
            self.functions[name] = (self.state.file, body)
        self._walk(own)

    def _walk(self, several: Sequence[Command]) -> None:
        outside = self.state.conditions
        previous: Command | None = None
        for command in several:
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
                self.assign(name, raw, adds)
            return
        name = words[0].bare
        if name in ("for", "select") and len(words) > 1:
            self.loop(words)
        elif name in _DECLARES:
            self.declare(name, words[1:])
        elif name == "set":
            self.set(words[1:])
        elif name == "shift" and self.state.arguments:
            self.shift(words[1].bare if len(words) > 1 else "1")
        elif name == "unset":
            for word in words[1:]:
                self.unset(word.bare)
        else:
            self._program(command, words, assigned)

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
        if fields[0].text in self.functions and self._may_call():
            self._call(fields)
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

    def _may_call(self) -> bool:
        self.called += 1
        return self.calls < _DEEPEST and self.called < _MOST

    def _call(self, fields: list[Word]) -> None:
        """A function of the script, with arguments of its own."""
        state = self.state
        file, arguments = state.file, state.arguments
        state.file, body = self.functions[fields[0].text]
        state.arguments = tuple(fields[1:])
        self.calls += 1
        self._walk(body)
        self.calls -= 1
        state.file, state.arguments = file, arguments

    def run_functions(self) -> None:
        """Walk through every function as if it were called, without arguments."""
        for name, (file, body) in self.functions.items():
            before = len(self.starts)
            self.state.file = file
            self._walk(body)
            line = body[0].line if body else 0
            what = f"stands in the function `{name}`, which is not called here"
            remark = Remark(what, self.state.place(line))
            self.starts[before:] = [
                replace(start, remarks=(*start.remarks, remark))
                for start in self.starts[before:]
            ]

    def _evaluate(self, fields: list[Word]) -> None:
        """`eval`: its words are one more line of the script."""
        before = len(self.starts)
        text = " ".join(word.text for word in fields)
        self.run(text, fields[0].place.line if fields else 1)
        doubts = tuple(
            Remark(f"`eval`: {word.doubt}", word.place, review=True)
            for word in fields
            if word.doubt and not _HARMLESS.search(word.text)
        )
        if len(self.starts) == before:
            # Nothing is started by it; what it sets may be for what comes later.
            self.state.remarks += doubts
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
            if is_option(name) and name not in self.state.exported:
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
    if other_language(name, text):
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
    state = State(file, file, arguments=arguments)
    for variable in environment:
        state.values[variable.name] = Value(
            variable.value, variable.place, variable.doubt
        )
        state.exported.pop(variable.name, None)
        state.exported[variable.name] = None
    return Walk(state, files=files, level=level)


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
