"""Cuts the tokens of a script into commands, and says under which conditions they run.

Nothing is decided here: that a command stands in a branch is all that is known of it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from .shell import Lexer, Operator, RawWord, Token

_TESTS = frozenset({"[", "[[", "test", "((", "command", "which", "type", "grep"})


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words, and the operator after it."""

    words: tuple[RawWord, ...]
    line: int
    after: str
    before: str = ""
    """The operator that joins it to the command before: `&&`, `||`, `|` or nothing."""
    conditions: tuple[tuple[int, int], ...] = ()
    """The `if`, `case` and loops it stands in: a number, and that of the branch."""

    def is_alternative(self, previous: Command | None) -> bool:
        """Whether `&&` or `||` may leave it out; `cd x && run` is no such thing."""
        if self.before == "&&" and previous is not None and previous.words:
            return previous.words[0].bare in _TESTS
        return self.before == "||"


_OPENS = frozenset({"if", "for", "while", "until", "select", "case"})
_CLOSES = frozenset({"fi", "done", "esac"})
_BETWEEN = frozenset({"then", "do", "{", "}", "!", "time"})


# Scripts that are read together must not share a number.
_NUMBERS = itertools.count(1)


def _next_branch(opened: list[tuple[int, int]]) -> None:
    if opened:
        number, branch = opened[-1]
        opened[-1] = (number, branch + 1)


def commands(text: str, first_line: int = 1) -> list[Command]:
    """The simple commands of a script, in the order they are written.

    Functions are read as if their body stood in the script. Raises Unreadable.
    """
    found: list[Command] = []
    words: list[RawWord] = []
    before, test = "", False
    opened: list[tuple[int, int]] = []
    tokens: list[Token] = Lexer(text, first_line).tokens()
    last = tokens[-1].line if tokens else first_line
    for token in [*tokens, Operator("\n", last)]:
        if isinstance(token, RawWord):
            bare = token.bare
            if not words and bare in ("else", "elif"):
                _next_branch(opened)
            elif not words and bare in _OPENS:
                opened.append((next(_NUMBERS), 0))
                if bare in ("for", "select", "case"):
                    words.append(token)
            elif not words and bare in _CLOSES:
                del opened[-1:]
            elif words or bare not in _BETWEEN:
                test = test or (not words and bare == "[[")
                words.append(token)
                test = test and bare != "]]"
            continue
        if test and token.text != "\n":
            continue
        test = False
        if token.text == "(" and not words:
            continue
        if words:
            line = words[0].line
            found.append(Command(tuple(words), line, token.text, before, tuple(opened)))
        if token.text == ";;":
            _next_branch(opened)
        before = token.text if token.text in ("&&", "||", "|", "|&") else ""
        if token.text == "\n" and not words and found:
            # `a &&` at the end of a line goes on in the next one.
            before = found[-1].after if found[-1].after in ("&&", "||", "|") else ""
        words = []
    return found
