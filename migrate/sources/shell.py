"""Cuts a shell script into words, and words into parts, by the rules of POSIX sh.

Nothing is run and nothing is expanded here: a word keeps its expansions as parts, in
the quotes they stood in, because what they give depends on the commands before them.
What bash and zsh add and start scripts use is read too: arrays, `[[ ]]`, `$'...'`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

PartKind: TypeAlias = Literal["text", "parameter", "arithmetic", "command"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word."""

    kind: PartKind
    text: str
    """The text without quotes, or what stands between the brackets of an expansion."""
    quoted: bool
    written: str
    """As it stands in the script, for messages."""


@dataclass(frozen=True, slots=True)
class RawWord:
    """A word before its expansion."""

    parts: tuple[Part, ...]
    line: int
    items: tuple[RawWord, ...] | None = None
    """The elements of `name=( ... )`."""

    @property
    def bare(self) -> str:
        """The text of a word without quotes and expansions, else empty."""
        if self.items is None and all(
            part.kind == "text" and not part.quoted for part in self.parts
        ):
            return "".join(part.text for part in self.parts)
        return ""


@dataclass(frozen=True, slots=True)
class Operator:
    """`;`, `&`, `|`, a bracket, or the end of a line."""

    text: str
    line: int


Token: TypeAlias = RawWord | Operator


class Unreadable(ValueError):
    """A text that no shell would read: a quote or bracket that is not closed."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


_OPERATORS = ("&&", "||", ";;", "|&", "\n", ";", "&", "|", "(", ")")
_REDIRECTION = re.compile(r"(\d*|&)(<<<|<<-|<<|>>|>\||>&|<&|<>|>|<)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=$")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f"}
_ESCAPES |= {"v": "\v", "e": "\x1b", "\\": "\\", "'": "'", '"': '"'}


@dataclass(slots=True)
class Lexer:
    """Reads tokens from a text; lines count from `first_line`."""

    text: str
    first_line: int = 1
    at: int = 0
    breaks: list[int] = field(default_factory=list)
    here: list[tuple[str, bool]] = field(default_factory=list)
    """Delimiters of here-documents whose text begins at the next line."""

    def __post_init__(self) -> None:
        self.breaks = [m.start() for m in re.finditer("\n", self.text)]

    def line(self, at: int | None = None) -> int:
        """The line of a place in the text."""
        here = self.at if at is None else at
        return self.first_line + bisect_right(self.breaks, here - 1)

    def tokens(self) -> list[Token]:
        """All tokens; redirections are left out, with the files they name."""
        found: list[Token] = []
        while (token := self.next()) is not None:
            found.append(token)
        return found

    def next(self) -> Token | None:
        """The next word or operator, or None at the end."""
        while True:
            self._skip_blanks()
            if self.at >= len(self.text):
                return None
            if self._redirection():
                continue
            for text in _OPERATORS:
                if self.text.startswith(text, self.at):
                    token = Operator(text, self.line())
                    self.at += len(text)
                    if text == "\n":
                        self._here_documents()
                    return token
            return self.word()

    def _skip_blanks(self) -> None:
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t\r":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text.startswith("\\\r\n", self.at):
                self.at += 3
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return

    def _redirection(self) -> bool:
        match = _REDIRECTION.match(self.text, self.at)
        if match is None or self.text.startswith(("<(", ">("), self.at):
            return False
        self.at = match.end()
        self._skip_blanks()
        target = self.word()
        if match[2] in ("<<", "<<-"):
            name = "".join(part.text for part in target.parts)
            self.here.append((name, match[2] == "<<-"))
        return True

    def _here_documents(self) -> None:
        for name, strip in self.here:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                row = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if (row.lstrip("\t") if strip else row) == name:
                    break
        self.here.clear()

    def word(self, ends: str = " \t\r\n;&|<>()") -> RawWord:
        """The word that begins here, up to one of the characters `ends`."""
        line = self.line()
        parts: list[Part] = []
        plain = ""

        def flush() -> None:
            nonlocal plain
            if plain:
                parts.append(Part("text", plain, False, plain))
                plain = ""

        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char == "(" and not parts and _ARRAY.fullmatch(plain):
                flush()
                return RawWord(tuple(parts), line, self._array())
            if text.startswith(("<(", ">("), self.at) and not parts and not plain:
                parts.append(self._substitution(self.at, 2, quoted=False))
                continue
            if char in ends:
                break
            if char == "\\":
                if text.startswith("\\\n", self.at):
                    self.at += 2
                    continue
                flush()
                kept = text[self.at + 1 : self.at + 2]
                parts.append(Part("text", kept, True, "\\" + kept))
                self.at += 2
            elif char == "'":
                flush()
                parts.append(self._single())
            elif char == '"' or text.startswith('$"', self.at):
                flush()
                self.at += char == "$"
                parts.extend(self._double())
            elif text.startswith("$'", self.at):
                flush()
                parts.append(self._ansi())
            elif char == "`" or (char == "$" and self._expands()):
                flush()
                parts.append(self._expansion(quoted=False))
            else:
                plain += char
                self.at += 1
        flush()
        return RawWord(tuple(parts), line)

    def _array(self) -> tuple[RawWord, ...]:
        line = self.line()
        self.at += 1
        items: list[RawWord] = []
        while True:
            token = self.next()
            if token is None:
                raise Unreadable("`(` is not closed", line)
            if isinstance(token, RawWord):
                items.append(token)
            elif token.text == ")":
                return tuple(items)

    def _single(self) -> Part:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unreadable("`'` is not closed", self.line())
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        return Part("text", inner, True, f"'{inner}'")

    def _ansi(self) -> Part:
        first = self.at
        self.at += 2
        out = ""
        while self.at < len(self.text) and self.text[self.at] != "'":
            char = self.text[self.at]
            self.at += 1
            if char == "\\" and self.at < len(self.text):
                char = self.text[self.at]
                self.at += 1
                char = _ESCAPES.get(char, "\\" + char)
            out += char
        if self.at >= len(self.text):
            raise Unreadable("`$'` is not closed", self.line(first))
        self.at += 1
        return Part("text", out, True, self.text[first : self.at])

    def _double(self) -> list[Part]:
        first = self.at
        self.at += 1
        parts: list[Part] = []
        plain = ""
        text = self.text
        while self.at < len(text) and text[self.at] != '"':
            char = text[self.at]
            if char == "\\" and text[self.at + 1 : self.at + 2] in tuple('$`"\\\n'):
                kept = text[self.at + 1]
                plain += "" if kept == "\n" else kept
                self.at += 2
            elif char == "`" or (char == "$" and self._expands()):
                if plain:
                    parts.append(Part("text", plain, True, plain))
                    plain = ""
                parts.append(self._expansion(quoted=True))
            else:
                plain += char
                self.at += 1
        if self.at >= len(text):
            raise Unreadable('`"` is not closed', self.line(first))
        self.at += 1
        if plain or not parts:
            parts.append(Part("text", plain, True, plain))
        return parts

    def _expands(self) -> bool:
        after = self.text[self.at + 1 : self.at + 2]
        return after in ("{", "(") or _NAME.match(after) is not None

    def _expansion(self, *, quoted: bool) -> Part:
        first, text = self.at, self.text
        if text[first] == "`":
            end = first + 1
            while end < len(text) and text[end] != "`":
                end += 2 if text[end] == "\\" else 1
            if end >= len(text):
                raise Unreadable("`` ` `` is not closed", self.line())
            self.at = end + 1
            return Part("command", text[first + 1 : end], quoted, text[first : self.at])
        if text.startswith("$((", first):
            end = self._closing(first + 3, "(", ")")
            if text.startswith("))", end):
                self.at = end + 2
                inner = text[first + 3 : end]
                return Part("arithmetic", inner, quoted, text[first : self.at])
        if text.startswith("$(", first):
            return self._substitution(first, 2, quoted=quoted)
        if text.startswith("${", first):
            end = self._closing(first + 2, "{", "}")
            self.at = end + 1
            inner = text[first + 2 : end]
        else:
            match = _NAME.match(text, first + 1)
            assert match is not None
            self.at, inner = match.end(), match[0]
        return Part("parameter", inner, quoted, text[first : self.at])

    def _substitution(self, first: int, skip: int, *, quoted: bool) -> Part:
        end = self._closing(first + skip, "(", ")")
        self.at = end + 1
        written = self.text[first : self.at]
        return Part("command", self.text[first + skip : end], quoted, written)

    def _closing(self, at: int, opening: str, closing: str) -> int:
        """Where the bracket that is open at `at` closes; quotes are stepped over."""
        first, depth, text = at, 1, self.text
        while at < len(text):
            char = text[at]
            if char == "\\":
                at += 1
            elif char == "'":
                end = text.find("'", at + 1)
                at = end if end > 0 else at
            elif char == '"':
                at += 1
                while at < len(text) and text[at] != '"':
                    at += 2 if text[at] == "\\" else 1
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if not depth:
                    return at
            at += 1
        raise Unreadable(f"`{opening}` is not closed", self.line(first))
