"""Reads the keys of a TOML file, of the old flat format and of today's.

What the daemon would refuse in a file of today is a problem here too, in the same
words. In an old file nobody checks the keys any more: an unknown one is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mlxceld.files import VERSION, key_hint
from mlxceld.kinds import BadValue, found_toml, toml_text
from mlxceld.layers import Layer, bad_value
from mlxceld.near import did_you_mean
from mlxceld.options import BY_KEY, TABLES, Option
from mlxceld.problems import Problem

from . import v1
from .found import Entry, Found
from .saying import SECRET, Saying, short


@dataclass(slots=True)
class Entries:
    """What the keys of a file say."""

    sayings: list[Saying] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    removed: tuple[str, ...] = ()
    """Keys that have no place in a file of today."""


def read_entries(found: Found) -> Entries:
    """What a TOML file says, key by key."""
    read = Entries()
    keys = [entry.key for entry in found.entries if entry.key not in v1.VERSION_KEYS]
    numbers = {e.key: e.value for e in found.entries if e.key in v1.VERSION_KEYS}
    version = numbers.get("version", numbers.get("config_version"))
    old = v1.is_version_1(keys, version)
    for entry in found.entries:
        if entry.key in v1.VERSION_KEYS:
            _version(entry, read, old=old)
        elif old:
            _old(entry, read)
        else:
            _new(entry, read)
    if old:
        read.removed = tuple(entry.key for entry in found.entries)
        _same_rank(read)
    return read


def _version(entry: Entry, read: Entries, *, old: bool) -> None:
    value = entry.value
    if old and value == 1 and not isinstance(value, bool):
        why = "the number of the format"
        saying = Saying(_said(entry), entry.place, Layer.FILE, fate="changed", why=why)
        read.sayings.append(saying)
    elif entry.key != "version":
        _unknown(entry, read)
    elif value != VERSION or isinstance(value, bool):
        what = f"version: found {found_toml(value)}, wanted 1 or {VERSION}"
        read.problems.append(Problem(what, _where(entry)))


def _new(entry: Entry, read: Entries) -> None:
    option = BY_KEY.get(entry.key)
    if option is None:
        _unknown(entry, read)
    elif "file" not in option.where:
        what = f"{option.key} cannot be set in a file"
        read.problems.append(Problem(what, _where(entry)))
    else:
        _check(option, entry.value, entry, read, Saying("", entry.place, Layer.FILE))


def _unknown(entry: Entry, read: Entries) -> None:
    table, _, name = entry.key.rpartition(".")
    if table and table not in TABLES:
        what, hint = f"unknown table [{table}]", did_you_mean(table, TABLES)
    else:
        spot = f"in [{table}]" if table else "at the top of the file"
        what, hint = f"unknown key `{name}` {spot}", key_hint(table, name)
    problem = Problem(what, _where(entry), hint)
    if problem not in read.problems:
        read.problems.append(problem)


def _old(entry: Entry, read: Entries) -> None:
    saying = Saying(_said(entry), entry.place, Layer.FILE)
    known = v1.KEYS.get(entry.key)
    if known is None:
        near = did_you_mean(entry.key, v1.KEYS)
        if "." in entry.key:
            near = "there were no tables"
        why = "not a key of version 1" + (f"; {near}" if near else "")
        read.sayings.append(replace(saying, fate="review", why=why))
        return
    option = BY_KEY[known.now]
    saying = replace(saying, rank=known.rank, fate="changed")
    if known.when_true is None:
        _check(option, entry.value, entry, read, saying)
    elif not isinstance(entry.value, bool):
        what = f"{entry.key}: found {found_toml(entry.value)}, wanted true or false"
        read.problems.append(Problem(what, _where(entry)))
    elif entry.value:
        why = f"what `{entry.key}` means"
        _check(option, known.when_true, entry, read, replace(saying, why=why))
    else:
        why = "off is what it is when nothing is said"
        read.sayings.append(replace(saying, fate="ignored", why=why))


def _check(
    option: Option, value: object, entry: Entry, read: Entries, saying: Saying
) -> None:
    try:
        checked = option.kind.check(value)
    except BadValue as error:
        read.problems.append(bad_value(option, error, _where(entry)))
        return
    said = _said(entry, secret=option.secret)
    read.sayings.append(replace(saying, said=said, option=option, value=checked))


def _same_rank(read: Entries) -> None:
    """Two old names of one option must agree, for neither of them wins."""
    seen: dict[tuple[str, int], Saying] = {}
    for saying in read.sayings:
        if saying.option is None:
            continue
        first = seen.setdefault((saying.option.key, saying.rank), saying)
        if first.value != saying.value:
            what = f"`{saying.said}` and `{first.said}` say the same thing differently"
            hint = "leave one of them out"
            read.problems.append(Problem(what, str(saying.place), hint))


def _said(entry: Entry, *, secret: bool = False) -> str:
    if secret or SECRET.search(entry.key):
        return f"{entry.key} = ***"
    value = entry.value
    if isinstance(value, bool):
        return f"{entry.key} = {str(value).lower()}"
    try:
        text = toml_text(value) if isinstance(value, str) else str(value)
    except ValueError:
        text = "..."  # Python writes no more than 4300 digits of a number.
    return f"{entry.key} = {short(text)}"


def _where(entry: Entry) -> str:
    place = entry.place
    return f"{place.file}:{place.line}" if place.file and place.line else str(place)
