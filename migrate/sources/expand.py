"""What the words of a shell script come to, as far as the script itself says.

A variable that the script sets is known; one it does not set comes from whoever runs
it and is not. Nothing is run. A word that hangs on something unknown keeps the text
as it was written, with the reason for the doubt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..found import Place, Remark, Word
from .arithmetic import NotPlain, evaluate
from .shell import Lexer, Part, RawWord

Conditions: TypeAlias = tuple[tuple[int, int], ...]
"""Branches that a command stands in, from the outside in."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a shell variable holds."""

    text: str
    place: Place
    doubt: str = ""
    items: tuple[Word, ...] | None = None
    """The elements of an array."""
    when: Conditions = ()
    """Under which conditions it was set."""
    whens: tuple[Conditions, ...] = ()
    """The same for each element."""


@dataclass(slots=True)
class State:
    """The variables of a script between two commands."""

    file: str = ""
    """Where the commands stand: the script, or a file that it sources."""
    script: str = ""
    """The script that was started."""
    values: dict[str, Value] = field(default_factory=dict)
    exported: dict[str, None] = field(default_factory=dict)
    """Names the programs that the script starts can see, in the order of export."""
    unset: set[str] = field(default_factory=set)
    arguments: tuple[Word, ...] | None = None
    """What the script is called with, where that is known."""
    splits: bool = True
    """Whether an expansion outside quotes is cut at blanks; zsh does not."""
    remarks: list[Remark] = field(default_factory=list)
    conditions: Conditions = ()
    """Where the walk is now."""

    def get(self, name: str) -> Value | None:
        """A variable as it is here: what was set in another branch is in doubt."""
        value = self.values.get(name)
        if value is None:
            return None
        reason = f"`{name}` is set under a condition (line {value.place.line})"
        if value.items is None:
            return value if self._holds(value.when) else _doubted(value, reason)
        items = tuple(
            item
            if self._holds(when)
            else replace(item, doubt=item.doubt or _under(name, item))
            for item, when in zip(value.items, value.whens, strict=True)
        )
        return replace(value, items=items)

    def remark(self, remark: Remark) -> None:
        """Note something, once."""
        if remark not in self.remarks:
            self.remarks.append(remark)

    def _holds(self, when: Conditions) -> bool:
        return self.conditions[: len(when)] == when

    def place(self, line: int, name: str = "") -> Place:
        """A place in this script."""
        return Place(self.file, line, name)


def _doubted(value: Value, reason: str) -> Value:
    return replace(value, doubt=value.doubt or reason)


def _under(name: str, item: Word) -> str:
    return f"`{name}` is set under a condition (line {item.place.line})"


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one part of a word comes to; several fields only for arrays."""

    fields: tuple[Word, ...]
    quoted: bool


_BRACED = re.compile(
    r"(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!-])(?P<index>\[[^\]]*\])?"
    r"(?:(?P<op>:[-=?+]|[-=?+]|##?|%%?)(?P<rest>.*))?",
    re.DOTALL,
)
_OWN_FOLDER = re.compile(
    r"""\s*(?:cd\s+(?:--\s+)?["']?\$\(\s*)?dirname\s+(?:--\s+)?"""
    r"""["']?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?["']?\s*"""
    r"""(?:\)["']?\s*(?:>\s*/dev/null\s*(?:2>&1\s*)?)?&&\s*pwd(?:\s+-P)?\s*)?"""
)
_GLOB = {"*": ".*", "?": "."}


def folder_of(file: str) -> str:
    """The folder of a script, as `dirname` would say it."""
    return file.rpartition("/")[0] or "."


@dataclass(slots=True)
class _Fields:
    """Collects fields; one begins with the first text that is added to it."""

    place: Place
    done: list[Word] = field(default_factory=list)
    text: str | None = None
    doubt: str = ""
    origin: Place | None = None

    def add(self, text: str, doubt: str = "", origin: Place | None = None) -> None:
        """Add to the field; `origin` is where a field of its own was written."""
        if self.text is None:
            self.origin = origin
        self.text = (self.text or "") + text
        self.doubt = self.doubt or doubt

    def cut(self) -> None:
        """End the field, if one has begun."""
        if self.text is not None:
            self.done.append(Word(self.text, self.origin or self.place, self.doubt))
        self.text, self.doubt = None, ""


def assignment(raw: RawWord) -> tuple[str, RawWord, bool] | None:
    """Name, value and `+=` of a word like `A=1`."""
    if not raw.parts or raw.parts[0].kind != "text" or raw.parts[0].quoted:
        return None
    match = re.match(r"([A-Za-z_]\w*)(\+?)=", raw.parts[0].text)
    if match is None:
        return None
    first = raw.parts[0].text[match.end() :]
    parts = raw.parts[1:]
    if first:
        parts = (replace(raw.parts[0], text=first, written=first), *parts)
    return match[1], RawWord(parts, raw.line, raw.items), bool(match[2])


def expand(raw: RawWord, state: State) -> list[Word]:
    """The fields that a word becomes: none, one, or several.

    Elements of an array and arguments of the script keep the place they stood in.
    """
    fields = _Fields(state.place(raw.line))
    for number, part in enumerate(raw.parts):
        if number == 0 and part.written == "$HOME" and "HOME" not in state.values:
            # The daemon reads `~` as the home folder too.
            after = raw.parts[1].text if len(raw.parts) > 1 else "/"
            if after.startswith("/"):
                fields.add("~")
                continue
        piece = _piece(part, state, raw.line)
        is_list = len(piece.fields) > 1
        for position, word in enumerate(piece.fields):
            if position:
                fields.cut()
            origin = word.place if is_list else None
            if piece.quoted or word.doubt or part.kind == "text" or not state.splits:
                if piece.quoted or word.text:
                    fields.add(word.text, word.doubt, origin)
                continue
            bits = word.text.split()
            if word.text[:1].isspace():
                fields.cut()
            for index, bit in enumerate(bits):
                if index:
                    fields.cut()
                fields.add(bit, "", origin)
            if word.text[-1:].isspace():
                fields.cut()
    fields.cut()
    return fields.done


def expand_one(raw: RawWord, state: State) -> Word:
    """The value of an assignment: one field, whatever blanks it holds."""
    place = state.place(raw.line)
    texts: list[str] = []
    doubt = ""
    for part in raw.parts:
        piece = _piece(part, state, raw.line)
        texts.append(" ".join(word.text for word in piece.fields))
        doubt = doubt or next((w.doubt for w in piece.fields if w.doubt), "")
    if [part.written for part in raw.parts][:1] == ["$HOME"] and doubt:
        rest = "".join(texts[1:])
        known = _all_known(raw.parts[1:], state, raw.line)
        if known and (not rest or rest.startswith("/")):
            return Word("~" + rest, place)
    return Word("".join(texts), place, doubt)


def _all_known(parts: tuple[Part, ...], state: State, line: int) -> bool:
    return not any(
        word.doubt for part in parts for word in _piece(part, state, line).fields
    )


def _piece(part: Part, state: State, line: int) -> _Piece:
    place = state.place(line)
    if part.kind == "text":
        return _Piece((Word(part.text, place),), part.quoted)
    if part.kind == "arithmetic":
        return _Piece((_arithmetic(part, state, place),), True)
    if part.kind == "command":
        return _Piece((_command(part, state, place),), part.quoted)
    return _Piece(_parameter(part, state, line), part.quoted)


def _arithmetic(part: Part, state: State, place: Place) -> Word:
    def value(name: str) -> str:
        known = state.get(name)
        if known is None or known.doubt or known.items is not None:
            raise NotPlain(name)
        return known.text

    try:
        return Word(str(evaluate(part.text, value)), place)
    except NotPlain:
        return Word(part.written, place, f"`{shown(part)}` is not worked out here")


def _command(part: Part, state: State, place: Place) -> Word:
    if _OWN_FOLDER.fullmatch(part.text):
        file = state.file if "BASH_SOURCE" in part.text else state.script
        if file:
            return Word(folder_of(file), place)
    return Word(part.written, place, f"`{shown(part)}` is not run here")


def _parameter(part: Part, state: State, line: int) -> tuple[Word, ...]:
    place = state.place(line)
    match = _BRACED.fullmatch(part.text)
    if match is None:
        return (Word(part.written, place, f"`{shown(part)}` is not worked out here"),)
    name, index = match["name"], match["index"]
    if match["op"]:
        return (_with_default(part, match, state, line),)
    if name in ("@", "*"):
        if state.arguments is None:
            what = f"taken as called without arguments: `{shown(part)}` gives none"
            state.remark(Remark(what, place))
        return state.arguments or ()
    value = _value(name, state)
    if value is None:
        return (Word(part.written, place, _unknown(part, name)),)
    if value.items is not None:
        if index in ("[@]", "[*]"):
            return value.items
        if index is None or re.fullmatch(r"\[\d+\]", index):
            number = int(index[1:-1]) if index else 0
            return value.items[number : number + 1] or (Word("", place),)
    elif index is None or index in ("[@]", "[*]", "[0]"):
        return (Word(value.text, place, value.doubt),)
    return (Word(part.written, place, f"`{shown(part)}` is not worked out here"),)


def _value(name: str, state: State) -> Value | None:
    if name.isdigit():
        number = int(name)
        if number == 0:
            return Value(state.script, state.place(0)) if state.script else None
        if state.arguments is None:
            return None
        word = next(iter(state.arguments[number - 1 : number]), Word("", Place()))
        return Value(word.text, word.place, word.doubt)
    if name == "BASH_SOURCE" and state.file:
        return Value(state.file, state.place(0))
    value = state.get(name)
    if value is None and name in state.unset:
        return Value("", state.place(0))
    return value


def _unknown(part: Part, name: str) -> str:
    if name.isdigit() or name == "#":
        return f"`{shown(part)}` is what the script is called with"
    return f"`{shown(part)}` is not set here"


def shown(part: Part) -> str:
    """An expansion for messages: what may hold a secret is left out."""
    if part.kind == "parameter":
        match = _BRACED.match(part.text)
        if match and match["op"]:
            return f"${{{match['name']}{match['op']}...}}"
        if not re.fullmatch(r"[!#]?\w+|[@*#?$!-]", part.text):
            return "${...}"
    elif part.kind == "command":
        first, *more = part.text.split(maxsplit=1) or [""]
        return f"$({first} ...)" if more else f"$({first})"
    return part.written


def _with_default(part: Part, match: re.Match[str], state: State, line: int) -> Word:
    """`${name:-word}` and its kind."""
    place = state.place(line)
    name, operator, rest = match["name"], match["op"], match["rest"]
    value = _value(name, state)
    doubtful = Word(part.written, place, f"`{shown(part)}` is not worked out here")
    if match["index"] or (value is not None and value.items is not None):
        return doubtful
    if operator[0] in "#%":
        return _trimmed(value, operator, rest, place) or doubtful
    present = value is not None and (value.text != "" or not operator.startswith(":"))
    if value is not None and value.doubt:
        return Word(part.written, place, value.doubt)
    if operator.endswith("+"):
        if present:
            return _inner(rest, state, line)
        if value is not None or name in state.unset:
            return Word("", place)
        return Word(part.written, place, _unknown(part, name))
    if present:
        assert value is not None
        return Word(value.text, place)
    if operator.endswith("?"):
        return Word(part.written, place, _unknown(part, name))
    result = _inner(rest, state, line)
    if operator.endswith("="):
        when = state.conditions
        state.values[name] = Value(result.text, place, result.doubt, when=when)
    if value is None:
        said = f"${name}" if name.isdigit() else name
        text = f"`{said}` is not set here, its default is used"
        state.remark(Remark(text, place))
    return result


def _inner(text: str, state: State, line: int) -> Word:
    word = Lexer(text, line).word(ends="")
    return expand_one(word, state)


def _trimmed(
    value: Value | None, operator: str, pattern: str, place: Place
) -> Word | None:
    """`${name%.gguf}`, where the pattern is plain."""
    if value is None or value.doubt or re.search(r"[\[\]$`\\'\"]", pattern):
        return None
    if pattern.count("*") > 3:
        # Many of them take a regular expression a very long time.
        return None
    # `.*` is greedy: the longest match from the front, or the shortest.
    parts = [_GLOB.get(char, re.escape(char)) for char in pattern]
    rule = "".join(parts)
    text = value.text
    ends = range(len(text) + 1)
    if operator[0] == "#":
        sizes = [size for size in ends if re.fullmatch(rule, text[:size], re.DOTALL)]
        if not sizes:
            return Word(text, place)
        return Word(text[sizes[0] if operator == "#" else sizes[-1] :], place)
    starts = [at for at in ends if re.fullmatch(rule, text[at:], re.DOTALL)]
    if not starts:
        return Word(text, place)
    return Word(text[: starts[-1] if operator == "%" else starts[0]], place)
