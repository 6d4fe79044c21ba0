"""Works out which files a migration has to write, without writing any.

The dry run, `--check` and `--write` all look at the same list, so that what was shown
is what is written, and a second run finds nothing left to do.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlxceld.kinds import FilePath, Value
from mlxceld.options import BY_KEY
from mlxceld.problems import Problem, Refused

from . import plists, secrets, units
from .comments import lost
from .edit import CannotEdit, edit, said, same
from .files import read
from .found import Found
from .migration import Migration
from .render import MARK, render, reviews


@dataclass(frozen=True, slots=True)
class Change:
    """One file as it is and as it shall be."""

    path: Path
    old: bytes | None
    new: bytes
    secret: bool = False
    """Whether the content must not be shown, nor be read by others."""
    old_text: str = ""
    new_text: str = ""
    """What a diff shows; secrets are masked."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to do for one set-up."""

    migration: Migration
    config: Path | None
    """The configuration file; None where nobody named one."""
    text: str = ""
    """What belongs into it; empty when the set-up needs none."""
    shown: str = ""
    """The same for people: secrets are masked."""
    changes: tuple[Change, ...] = ()
    advice: tuple[str, ...] = ()
    """What has to be done by hand."""
    lost: tuple[str, ...] = ()
    """Comments that are not in the new text, with their places."""
    refused: str = ""
    """Why nothing is written although there are changes; empty otherwise."""


def prepare(
    migration: Migration,
    *,
    config: Path | None,
    named: bool,
    wanted: bool,
    needed: bool,
    server: Sequence[str],
    alone: bool = True,
    original: bytes | None = None,
) -> Work:
    """What to write for one set-up.

    `config` is where the configuration goes; `named` says that the user chose it,
    `wanted` that a text is asked for in any case. `needed` is whether the set-up needs
    a change. `server` starts the daemon. `alone` is whether its file holds no other
    set-up, for a drop-in replaces all commands of a unit. `original` is the content of
    a source that is no file. Reads the files that would change. Raises `Refused`.
    """
    found = migration.found
    if found.kind == "toml":
        return _in_place(migration, config, named, original)
    refused = "something needs review" if migration.review else ""
    # A unit that starts a container names files that only the container has.
    in_place = alone and not found.is_container
    if not needed and not wanted:
        return Work(migration, config, refused=refused)
    whole = whole_names(migration.values, found.folder)
    values, keys, advice = secrets.without(migration, whole, config)
    old = None if config is None else read(config)
    text, gone = _text(migration, values, config, old)
    hidden = secrets.texts(migration)
    changes: list[Change] = []
    if config is not None:
        if keys is not None:
            old_keys = read(keys.path)
            if old_keys != keys.data:
                shown = "(API keys are not shown)\n"
                before = shown if old_keys else ""
                changes.append(
                    Change(keys.path, old_keys, keys.data, True, before, shown)
                )
        if old is None or not _says(old, values, config):
            if old is not None and not named:
                _refuse_foreign(old, config, found)
            changes.append(_change(config, old, text.encode(), hidden))
    if refused:
        changes = changes if named else []
    elif config is not None and in_place:
        for change in _unit_changes(migration, config.absolute(), server, hidden):
            changes.append(change)
            if found.kind == "launchd" and change.old is not None:
                comments = plists.lost_comments(change.old, change.new)
                gone += tuple(f"{change.path}: {comment}" for comment in comments)
    if config is not None:
        moved = secrets.moved(migration)
        if found.kind in ("systemd", "launchd") and in_place:
            advice += units.left_behind(found, server)
        else:
            advice += units.suggestion(
                found,
                server,
                config.absolute(),
                moved,
                keys=None if keys is None else keys.path,
                listens="server.host" in values,
            )
    return Work(
        migration,
        config,
        text,
        secrets.mask(text, hidden),
        tuple(changes),
        tuple(advice),
        gone,
        refused,
    )


def _refuse_foreign(old: bytes, config: Path, found: Found) -> None:
    """A file that is there by chance is not overwritten because of its name."""
    if found.entries or old.startswith(MARK.encode()):
        return
    what = "there is another file of this name already"
    raise Refused([Problem(what, str(config), "name a file with `--to FILE`")])


def _text(
    migration: Migration,
    values: Mapping[str, Value],
    config: Path | None,
    old: bytes | None,
) -> tuple[str, tuple[str, ...]]:
    """The text of the configuration, and the comments of the old one that it lacks.

    A file that the set-up reads already is edited, any other one is written anew.
    """
    if config is not None and old is not None and migration.found.entries:
        before = old.decode()
        folder = str(config.absolute().parent)
        try:
            return edit(before, replace(migration, values=values), folder), ()
        except CannotEdit:
            text = render(migration, values)
            return text, tuple(
                f"{config}:{c.line}: {c.text}" for c in lost(before, text)
            )
    return render(migration, values), ()


def _in_place(
    migration: Migration, config: Path | None, named: bool, original: bytes | None
) -> Work:
    """The work for a TOML file: its own text, edited."""
    source = None if original is not None else Path(migration.found.files[0])
    raw = original if source is None else read(source)
    old = (raw or b"").decode()
    base = str((source or Path("x")).absolute().parent)
    folder = str((config or Path("x")).absolute().parent)
    whole = whole_names(migration.values, base)
    moved = replace(migration, values=whole)
    gone: tuple[str, ...] = ()
    try:
        text = edit(old, moved, folder)
    except CannotEdit:
        text = render(moved, whole)
        gone = tuple(f"{source}:{c.line}: {c.text}" for c in lost(old, text))
    else:
        text = "".join(f"{row}\n" for row in reviews(migration)) + text
    hidden = secrets.texts(migration)
    changes: list[Change] = []
    if config is not None:
        there = raw if source is not None and _one(config, source) else read(config)
        if there is None or there.decode(errors="replace") != text:
            changes.append(_change(config, there, text.encode(), hidden))
    refused = "something needs review" if migration.review else ""
    if refused and not named:
        changes = []
    return Work(
        migration,
        config,
        text,
        secrets.mask(text, hidden),
        tuple(changes),
        lost=gone,
        refused=refused,
    )


def _one(first: Path, second: Path) -> bool:
    return first.absolute() == second.absolute()


def whole_names(values: Mapping[str, Value], folder: str) -> dict[str, Value]:
    """The values with names of files as they are seen from `folder`."""
    return {
        key: FilePath.against(folder, str(value))
        if folder and isinstance(BY_KEY[key].kind, FilePath)
        else value
        for key, value in values.items()
    }


def _says(data: bytes, values: Mapping[str, Value], config: Path) -> bool:
    """Whether a file that is there says these values and no others."""
    try:
        written = said(tomllib.loads(data.decode()))
    except ValueError:
        return False
    folder = str(config.absolute().parent)
    return set(written) == set(values) and all(
        same(BY_KEY[key], written[key], value, folder) for key, value in values.items()
    )


def _change(path: Path, old: bytes | None, new: bytes, hidden: Iterable[str]) -> Change:
    before, after = (old or b"").decode(errors="replace"), new.decode()
    return Change(
        path,
        old,
        new,
        old_text=secrets.mask(before, hidden),
        new_text=secrets.mask(after, hidden),
    )


def _unit_changes(
    migration: Migration, config: Path, server: Sequence[str], hidden: Sequence[str]
) -> list[Change]:
    """The unit or property list that starts the daemon with the new file."""
    found = migration.found
    moved = secrets.moved(migration)
    words = [word.text for word in found.words]
    if not found.files or (words == ["--config", str(config)] and not moved):
        return []
    source = Path(found.files[0])
    if found.kind == "systemd":
        path = units.drop_in_path(source)
        old = read(path)
        before = (old or b"").decode(errors="replace")
        new = units.drop_in(server, config, moved, before).encode()
        return [] if old == new else [_change(path, old, new, hidden)]
    if found.kind == "launchd":
        data = read(source) or b""
        arguments = [*server, "--config", str(config)]
        new = plists.changed(data, arguments, moved, str(source))
        if new == data:
            return []
        shown = [secrets.mask(plists.shown(one), hidden) for one in (data, new)]
        return [Change(source, data, new, old_text=shown[0], new_text=shown[1])]
    return []
