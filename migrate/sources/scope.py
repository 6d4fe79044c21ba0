"""What the commands of a script do to its variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..found import Remark, Word
from .expand import State, Value, assignment, expand, expand_one
from .shell import RawWord

_OPTIONS = ("LLAMA_ARG_", "LLAMA_API_KEY", "MLXCEL")


def is_option(name: str) -> bool:
    """Whether a variable is one that a server reads."""
    return name.startswith(_OPTIONS)


@dataclass(slots=True)
class Scope:
    """The variables of a script, and which of them programs can see."""

    state: State
    all_exported: bool = False
    """Whether `set -a` is on."""

    def assign(self, name: str, raw: RawWord, adds: bool) -> None:
        """`NAME=value`, and `NAME+=value` where it `adds`."""
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
        if old is not None and name in state.exported and not when and is_option(name):
            text = f"`{name}` is set again in line {raw.line}, and the last one counts"
            state.remarks.append(Remark(text, old.place))
        state.values[name] = value
        if self.all_exported:
            state.exported[name] = None

    def loop(self, words: list[RawWord]) -> None:
        """`for NAME in ...`: the variable has several values."""
        name, line = words[1].bare, words[1].line
        if not name or name[0] == "(":
            return
        place = self.state.place(line, name)
        self.state.values[name] = Value(
            f"${name}", place, f"`${name}` takes several values (line {line})"
        )

    def declare(self, command: str, words: list[RawWord]) -> None:
        """`export`, `declare` and their kind."""
        exports = command == "export"
        for raw in words:
            if pair := assignment(raw):
                self.assign(*pair)
                if exports:
                    self.state.exported[pair[0]] = None
            elif raw.bare.startswith("-"):
                exports = exports or "x" in raw.bare
            elif exports and raw.bare:
                self.state.exported[raw.bare] = None
            else:
                self._may_set(command, expand(raw, self.state))

    def _may_set(self, command: str, words: list[Word]) -> None:
        """`export $(...)`: names and values that only a run of the script knows."""
        for word in words:
            if word.doubt:
                what = f"`{command}` may set options here: {word.doubt}"
                self.state.remarks.append(Remark(what, word.place, review=True))

    def set(self, raw: list[RawWord]) -> None:
        """`set -a`, and `set --` with other arguments."""
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

    def shift(self, count: str) -> None:
        """`shift`, with the number of arguments that it takes away."""
        known = self.state.arguments or ()
        if count.isdigit() and not self.state.conditions:
            self.state.arguments = known[int(count) :]
            return
        reason = "it is not certain how many arguments `shift` takes away"
        self.state.arguments = tuple(
            replace(word, doubt=word.doubt or reason) for word in known
        )

    def unset(self, name: str) -> None:
        """`unset NAME`."""
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
