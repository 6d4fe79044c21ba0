"""Cuts the tokens of a script into commands, and says under which conditions they run.

Nothing is decided here: that a command stands in a branch is all that is known of it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

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
    function: str = ""
    """The function whose body it stands in."""

    def is_alternative(self, previous: Command | None) -> bool:
        """Whether `&&` or `||` may leave it out; `cd x && run` is no such thing."""
        if self.before == "&&" and previous is not None and previous.words:
            return previous.words[0].bare in _TESTS
        return self.before == "||"


_OPENS = frozenset({"if", "for", "while", "until", "select", "case"})
_CLOSES = frozenset({"fi", "done", "esac"})
_BETWEEN = frozenset({"then", "do", "!", "time"})


# Scripts that are read together must not share a number.
_NUMBERS = itertools.count(1)


@dataclass(slots=True)
class _Blocks:
    """What is open at a place of a script."""

    opened: list[tuple[int, int]] = field(default_factory=list)
    braces: list[str] = field(default_factory=list)
    """For each `{` the function whose body it begins, or nothing."""
    pending: str = ""
    """A function whose body has not begun yet."""
    kinds: list[str] = field(default_factory=list)
    """The keyword of each entry of `opened`."""
    in_pattern: bool = False
    """Whether the words are a pattern of `case`, and no command."""

    @property
    def function(self) -> str:
        return next((name for name in reversed(self.braces) if name), "")

    def keyword(self, bare: str) -> bool:
        """Take a word where a command may begin; False where it begins one."""
        if bare in ("else", "elif"):
            self.next_branch()
        elif bare in _OPENS:
            self.opened.append((next(_NUMBERS), 0))
            self.kinds.append(bare)
            self.in_pattern = bare == "case"
            return bare not in ("for", "select", "case")
        elif bare in _CLOSES:
            del self.opened[-1:], self.kinds[-1:]
            self.in_pattern = False
        elif bare == "{":
            self.braces.append(self.pending)
            self.pending = ""
        elif bare == "}":
            del self.braces[-1:]
        else:
            return bare in _BETWEEN
        return True

    def next_branch(self) -> None:
        self.in_pattern = self.kinds[-1:] == ["case"]
        if self.opened:
            number, branch = self.opened[-1]
            self.opened[-1] = (number, branch + 1)


def commands(text: str, first_line: int = 1) -> list[Command]:
    """The simple commands of a script, in the order they are written.

    Those of a function are marked with its name. Raises Unreadable.
    """
    found: list[Command] = []
    words: list[RawWord] = []
    before, test = "", False
    blocks = _Blocks()
    tokens: list[Token] = Lexer(text, first_line).tokens()
    last = tokens[-1].line if tokens else first_line
    for at, token in enumerate([*tokens, Operator("\n", last)]):
        if isinstance(token, RawWord):
            bare = token.bare
            if [word.bare for word in words] == ["function"]:
                words, blocks.pending = [], bare
            elif words or not blocks.keyword(bare):
                test = test or (not words and bare == "[[")
                words.append(token)
                test = test and bare != "]]"
            continue
        if test and token.text != "\n":
            continue
        test = False
        if token.text == "(":
            if len(words) == 1 and _closes(tokens, at + 1):
                words, blocks.pending = [], words[0].bare
            if not words:
                continue
        if blocks.in_pattern and words and words[0].bare != "case":
            words = []
        if words:
            opened = tuple(blocks.opened)
            name = blocks.function
            line = words[0].line
            found.append(Command(tuple(words), line, token.text, before, opened, name))
        if token.text == ")":
            blocks.in_pattern = False
        if token.text == ";;":
            blocks.next_branch()
        before = token.text if token.text in ("&&", "||", "|", "|&") else ""
        if token.text == "\n" and not words and found:
            # `a &&` at the end of a line goes on in the next one.
            before = found[-1].after if found[-1].after in ("&&", "||", "|") else ""
        words = []
    return found


def _closes(tokens: list[Token], at: int) -> bool:
    token = tokens[at] if at < len(tokens) else None
    return isinstance(token, Operator) and token.text == ")"
