"""Changes the arguments of a launchd job inside the text of its property list.

Writing the list anew with `plistlib` would lose comments, order and layout, so only
the bytes of three values change: `ProgramArguments`, `Program`, and the variables that
moved into the configuration. The result is parsed and compared before it is given out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlxceld.problems import Problem, Refused

_BINARY = b"bplist00"
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Span:
    """Where a key and its value stand, in bytes."""

    path: tuple[str, ...]
    key: int
    start: int
    end: int


def changed(
    data: bytes, arguments: Sequence[str], without: Sequence[str], where: str
) -> bytes:
    """The property list with these arguments and without these variables.

    Raises `Refused` where the result would not be what was wanted.
    """
    import plistlib

    from .sources.launchd import quiet

    if data.startswith(_BINARY):
        wanted = _wanted(plistlib.loads(data), arguments, without)
        return plistlib.dumps(wanted, fmt=plistlib.FMT_BINARY, sort_keys=False)
    wanted = _wanted(plistlib.loads(quiet(data)), arguments, without)
    result = _edited(data, arguments, without)
    if plistlib.loads(quiet(result)) != wanted:
        what = "the layout of this property list cannot be changed in place"
        raise Refused([Problem(what, where, "write ProgramArguments by hand")])
    return result


def shown(data: bytes) -> str:
    """The text of a property list for people; a binary one as XML."""
    if not data.startswith(_BINARY):
        return data.decode(errors="replace")
    import plistlib

    return plistlib.dumps(plistlib.loads(data), sort_keys=False).decode()


def lost_comments(old: bytes, new: bytes) -> list[str]:
    """The comments of `old` that `new` has not; they stood between the arguments."""
    if old.startswith(_BINARY):
        return []
    kept = _COMMENT.findall(new)
    gone = []
    for comment in _COMMENT.findall(old):
        if comment in kept:
            kept.remove(comment)
        else:
            gone.append(" ".join(comment.decode(errors="replace").split()))
    return gone


def _wanted(
    job: Mapping[str, Any], arguments: Sequence[str], without: Sequence[str]
) -> dict[str, Any]:
    wanted = dict(job)
    wanted["ProgramArguments"] = list(arguments)
    if "Program" in wanted:
        wanted["Program"] = arguments[0]
    variables = wanted.get("EnvironmentVariables")
    if isinstance(variables, dict):
        wanted["EnvironmentVariables"] = {
            name: value for name, value in variables.items() if name not in without
        }
    return wanted


def _edited(data: bytes, arguments: Sequence[str], without: Sequence[str]) -> bytes:
    from .sources.launchd import quiet

    edits: list[tuple[int, int, bytes]] = []
    spans = list(_spans(quiet(data)))
    no_array = not any(span.path == ("ProgramArguments",) for span in spans)
    for span in spans:
        if span.path == ("ProgramArguments",):
            edits.append((span.start, span.end, _array(data, span, arguments)))
        elif span.path == ("Program",):
            text = f"<string>{escape(arguments[0])}</string>".encode()
            if no_array:
                key = b"\n" + _indent(data, span.start) + b"<key>ProgramArguments</key>"
                text += key + _array(data, span, arguments)
            edits.append((span.start, span.end, text))
        elif span.path[:1] == ("EnvironmentVariables",) and len(span.path) == 2:
            edits += (
                [(_row_start(data, span.key), span.end, b"")]
                if span.path[1] in without
                else []
            )
    for start, end, new in sorted(edits, reverse=True):
        data = data[:start] + new + data[end:]
    return data


def _array(data: bytes, span: _Span, words: Sequence[str]) -> bytes:
    """An array in the layout of the old one."""
    indent = _indent(data, span.start)
    first = re.search(rb"\n([ \t]*)<string", data[span.start : span.end])
    inner = first[1] if first else indent + (b"  " if b" " in indent else b"\t")
    rows = [inner + f"<string>{escape(word)}</string>".encode() for word in words]
    return b"\n".join([b"<array>", *rows, indent + b"</array>"])


def escape(text: str) -> str:
    """`text` as XML writes it; the library's own function loads half a web client."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _indent(data: bytes, at: int) -> bytes:
    row = data[data.rfind(b"\n", 0, at) + 1 : at]
    return row[: len(row) - len(row.lstrip())]


def _row_start(data: bytes, at: int) -> int:
    """From where to cut so that no empty row is left: the blanks before `at` too."""
    start = len(data[:at].rstrip(b" \t"))
    return start - 1 if data[:start].endswith(b"\n") else start


def _spans(data: bytes) -> Iterator[_Span]:
    """The values of the outer dictionary and of the dictionaries in it."""
    from xml.parsers import expat

    parser = expat.ParserCreate()
    reader = _Reader(data, parser)
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.stop
    parser.CharacterDataHandler = reader.text
    parser.Parse(data, True)
    return iter(reader.spans)


@dataclass(slots=True)
class _Reader:
    data: bytes
    parser: Any
    spans: list[_Span] = field(default_factory=list)
    open: list[tuple[str, int]] = field(default_factory=list)
    """The elements around the place, from the outside: name and offset."""
    keys: list[tuple[str, int]] = field(default_factory=list)
    """For each dictionary around it the last key, with its offset."""
    words: str = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self.open.append((name, self.parser.CurrentByteIndex))
        if name == "dict":
            self.keys.append(("", 0))
        self.words = ""

    def text(self, words: str) -> None:
        self.words += words

    def stop(self, name: str) -> None:
        _, start = self.open.pop()
        if name == "dict":
            self.keys.pop()
        if not self.keys or not self.open or self.open[-1][0] != "dict":
            return
        if name == "key":
            self.keys[-1] = (self.words, start)
            return
        end = self.data.index(b">", start) + 1
        if self.data[end - 2 : end] != b"/>":
            end = self.data.index(b">", self.parser.CurrentByteIndex) + 1
        path = tuple(key for key, _ in self.keys)
        self.spans.append(_Span(path, self.keys[-1][1], start, end))
