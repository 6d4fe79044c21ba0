"""Changes a TOML file where it stands, and leaves everything else as its user wrote it.

Only the lines of keys that are renamed, changed, removed or added are touched; a
removed key leaves its comment behind. A flat file stays flat, with dotted keys in
place of the old names. The result is proved before anybody gets it: parsed again it
has to give the wanted values and nothing else, and every comment has to be there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlxceld.files import VERSION
from mlxceld.kinds import BadValue, FilePath, Value
from mlxceld.options import BY_KEY, TABLES, Option
from mlxceld.toml_lines import Lines, key_lines

from .comments import comments, lost
from .migration import Migration

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY = re.compile(rf"[ \t]*{_PART}(?:[ \t]*\.[ \t]*{_PART})*[ \t]*=[ \t]*")


class CannotEdit(Exception):
    """The layout of the file does not allow the change; the message says why."""


def edit(text: str, migration: Migration, folder: str = "") -> str:
    """The text with the values of the migration; the same text when they are there.

    `folder` is that of the file: names in it are seen from there. Raises `CannotEdit`.
    """
    editor = _Editor(text, migration, folder)
    editor.change()
    result = editor.result()
    _prove(text, result, migration.values, folder)
    return result


def said(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that a parsed file says, dotted: those of our tables and all others."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if key in TABLES and isinstance(value, dict):
            found |= {f"{key}.{name}": inner for name, inner in value.items()}
        elif key != "version":
            found[key] = value
    return found


def same(option: Option, written: object, wanted: Value, folder: str) -> bool:
    """Whether a value of a TOML file is the wanted one."""
    try:
        value = option.kind.check(written)
    except BadValue:
        return False
    if isinstance(option.kind, FilePath):
        value = FilePath.against(folder, str(value))
        wanted = FilePath.against(folder, str(wanted))
    return value == wanted and type(value) is type(wanted)


def _prove(old: str, new: str, values: Mapping[str, Value], folder: str) -> None:
    try:
        tables = tomllib.loads(new)
    except tomllib.TOMLDecodeError as error:
        raise CannotEdit(f"the edited text would not be valid TOML: {error}") from error
    written = said(tables)
    if tables.get("version", VERSION) != VERSION or set(written) != set(values):
        odd = sorted(set(written) ^ set(values)) or ["version"]
        raise CannotEdit(f"the edited text would differ in {', '.join(odd)}")
    for key, value in values.items():
        if not same(BY_KEY[key], written[key], value, folder):
            raise CannotEdit(f"the edited text would not hold the value of {key}")
    if lost(old, new):
        raise CannotEdit("the edited text would lose a comment")


@dataclass(slots=True)
class _Editor:
    text: str
    migration: Migration
    folder: str
    rows: list[str] = field(init=False)
    places: dict[tuple[str | int, ...], Lines] = field(init=False)
    present: dict[str, Any] = field(init=False)
    replaced: dict[Lines, list[str]] = field(default_factory=dict)
    added: dict[int, list[str]] = field(default_factory=dict)
    """Rows to put behind a row, by its number; 0 is before the first."""
    headers: dict[str, int] = field(default_factory=dict)
    """Rows of the headers of our tables."""
    inline: set[str] = field(default_factory=set)
    """Tables that are written as `key = { ... }`."""
    flat: set[str] = field(default_factory=set)
    """Tables whose keys are written with dots."""

    def __post_init__(self) -> None:
        # Newlines are put back at the end, in the style of the file.
        self.rows = self.text.replace("\r\n", "\n").split("\n")
        self.places = key_lines(self.text)
        tables = tomllib.loads(self.text)
        self.present = said(tables)
        for key in TABLES:
            place = self.places.get((key,))
            # A flat file may have a key that is called like a table.
            if place is None or not isinstance(tables[key], dict):
                continue
            if self._is_header(place):
                self.headers[key] = place[0]
            elif re.match(rf"[ \t]*{key}[ \t]*=", self.rows[place[0] - 1]):
                self.inline.add(key)
            else:
                self.flat.add(key)

    # ---- what has to change ----

    def change(self) -> None:
        values = self.migration.values
        if tomllib.loads(self.text).get("version", VERSION) != VERSION:
            self._set(("version",), "version", str(VERSION))
        renamed = self._renamed()
        again: set[str] = set()
        comment: dict[str, str] = {}
        for old in self.migration.removed:
            new = renamed.get(old)
            if _path(old)[0] in self.inline:
                again.add(_path(old)[0])
            elif new is None:
                self._drop(old)
            elif not self._rename(old, new):
                comment[new] = self._drop(old, carry=True)
        in_place = {new for old, new in renamed.items() if new not in comment}
        for key in sorted(values, key=lambda key: TABLES.index(BY_KEY[key].table)):
            option = BY_KEY[key]
            if key in in_place or self._holds(key):
                continue
            if option.table in self.inline:
                again.add(option.table)
            elif key in self.present:
                path = (option.table, option.name)
                self._set(path, None, option.kind.render(values[key]))
            else:
                self._add(option, values[key], comment.get(key, ""))
        for table in sorted(again):
            self._set((table,), None, _inline_table(table, values))

    def _holds(self, key: str, old: str = "") -> bool:
        """Whether the file has the wanted value of a key, there or under `old`."""
        written = self.present.get(old or key)
        wanted = self.migration.values[key]
        return written is not None and same(BY_KEY[key], written, wanted, self.folder)

    def _renamed(self) -> dict[str, str]:
        """Old keys and what they are called now, from the lines of the report."""
        found: dict[str, str] = {}
        for old in self.migration.removed:
            first, last = self._place(old)
            for line in self.migration.lines:
                new = line.became.partition("=")[0].strip()
                if (
                    first <= line.place.line <= last
                    and line.place.name in ("", old)
                    and new in self.migration.values
                    and new not in self.present
                    and new not in found.values()
                ):
                    found[old] = new
                    break
            if old == "version" or (
                old == "config_version" and "version" not in self.migration.removed
            ):
                found[old] = "version"
        return found

    # ---- how ----

    def _rename(self, old: str, new: str) -> bool:
        """Write the new name where the old one stands; False where it cannot stand."""
        path = _path(old)
        if new == "version":
            return self._set(path, "version", str(VERSION))
        option = BY_KEY[new]
        value = option.kind.render(self.migration.values[new])
        if self._holds(new, old):
            value = _KEEP
        if path[:-1] == (option.table,):
            return self._set(path, option.name, value)
        if len(path) == 1 and self._may_be_flat(option.table):
            self.flat.add(option.table)
            return self._set(path, new, value)
        return False

    def _may_be_flat(self, table: str) -> bool:
        return table not in self.headers and table not in self.inline

    def _set(self, path: tuple[str, ...], name: str | None, value: str) -> bool:
        """Replace key and value of a statement; without a name the key stays."""
        place = self.places[path]
        cut = _cut(self._statement(place))
        left = cut.left if name is None else f"{cut.indent}{name} = "
        inner = "" if value is _KEEP else _own_lines(cut.value, cut.indent)
        shown = cut.value if value is _KEEP else value
        self.replaced[place] = f"{inner}{left}{shown}{cut.rest}".split("\n")
        return True

    def _drop(self, old: str, *, carry: bool = False) -> str:
        """Take a statement out. Its comments stay as rows, or the last is returned."""
        place = self._place(old)
        cut = _cut(self._statement(place))
        rest = cut.rest.strip()
        rows = _own_lines(cut.value, cut.indent).split("\n")[:-1]
        if rest and not carry:
            rows.append(f"{cut.indent}{rest}")
        self.replaced[place] = rows
        return rest if carry else ""

    def _add(self, option: Option, value: Value, comment: str) -> None:
        """A new key: in its table, beside its dotted neighbours, or in a new table."""
        row = f"{option.name} = {option.kind.render(value)}"
        rows = [f"{row}  {comment}" if comment else row]
        why = self._why(option.key)
        if option.table in self.headers:
            after = self._end_of_table(self.headers[option.table])
        elif self.flat:
            rows[0] = f"{option.table}.{rows[0]}"
            after = self._end_of_top()
        else:
            after = len(self.rows) - (not self.rows[-1])
            if f"[{option.table}]" not in self.added.get(after, []):
                blank = [""] if after and self.rows[after - 1].strip() else []
                if self.added.get(after):
                    blank = [""]
                rows = [*blank, f"[{option.table}]", *why, *rows]
                why = []
        self.added.setdefault(after, []).extend([*why, *rows])

    def _why(self, key: str) -> list[str]:
        """The reason of a key that nobody wrote, as a comment of its own."""
        if key not in self.migration.pinned:
            return []
        for line in self.migration.lines:
            if line.fate == "pinned" and line.became.partition("=")[0].strip() == key:
                return [f"# {line.why}"] if line.why else []
        return []

    def result(self) -> str:
        out = list(self.added.get(0, []))
        skip = 0
        by_first = {lines[0]: (lines[1], rows) for lines, rows in self.replaced.items()}
        for number, row in enumerate(self.rows, 1):
            if number in by_first:
                skip, rows = by_first[number]
                out += rows
            if number > skip:
                out.append(row)
            out += self.added.get(number, [])
        text = "\n".join(out)
        return text.replace("\n", "\r\n") if "\r\n" in self.text else text

    # ---- where ----

    def _place(self, key: str) -> Lines:
        place = self.places.get(_path(key))
        if place is None:
            raise CannotEdit(f"{key} is not found in the file")
        return place

    def _statement(self, place: Lines) -> str:
        return "\n".join(self.rows[place[0] - 1 : place[1]])

    def _is_header(self, place: Lines) -> bool:
        return self.rows[place[0] - 1].lstrip().startswith("[")

    def _headers(self) -> Iterator[int]:
        firsts = {lines[0] for lines in self.places.values()}
        return (n for n in sorted(firsts) if self._is_header((n, n)))

    def _end_of_table(self, header: int) -> int:
        """The last row of the statements that follow a header."""
        end = next((n for n in self._headers() if n > header), len(self.rows) + 1)
        lasts = (last for first, last in self.places.values() if header < first < end)
        return max(lasts, default=header)

    def _end_of_top(self) -> int:
        end = next(self._headers(), len(self.rows) + 1)
        return max((last for first, last in self.places.values() if first < end))


_KEEP = "\0keep"
"""Stands for the value as it is written."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """A statement `key = value # comment`, cut at its seams."""

    indent: str
    left: str
    value: str
    rest: str
    """Blanks and the comment behind the value."""


def _cut(statement: str) -> _Cut:
    key = _KEY.match(statement)
    if key is None:
        raise CannotEdit(f"`{statement.strip()[:40]}` is no plain key and value")
    last = statement.count("\n") + 1
    behind = [one.start for one in comments(statement) if one.line == last]
    end = len(statement[: behind[0] if behind else None].rstrip())
    left = key[0]
    return _Cut(
        indent=left[: len(left) - len(left.lstrip())],
        left=left,
        value=statement[key.end() : end],
        rest=statement[end:],
    )


def _own_lines(value: str, indent: str) -> str:
    """The comments inside a value of several lines, as lines for before the key."""
    if "\n" not in value:
        return ""
    inside = comments(f"x = {value}")
    return "".join(f"{indent}{comment.text}\n" for comment in inside)


def _path(key: str) -> tuple[str, ...]:
    return tuple(key.split("."))


def _inline_table(table: str, values: Mapping[str, Value]) -> str:
    pairs = [
        f"{BY_KEY[key].name} = {BY_KEY[key].kind.render(value)}"
        for key, value in values.items()
        if BY_KEY[key].table == table
    ]
    return f"{{ {', '.join(pairs)} }}"
