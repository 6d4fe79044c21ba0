"""Carries set-ups over: reads them, has them converted, and writes what is asked for.

This is where files are read and written; what a set-up means and what has to change
is worked out by functions that touch nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import cast

from mlxceld.plan import Geometry
from mlxceld.problems import Problem, Refused

from . import convert, dialects, files, sources, units
from .found import Found, Kind, Remark
from .migration import Migration
from .report import Done
from .status import Status
from .work import Change, Work, prepare

STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    sources: Sequence[str] = ()
    command: Sequence[str] | None = None
    """A command line that was given in place of files."""
    kind: Kind | None = None
    program: str = ""
    """`PROGRAM[@VERSION]`."""
    env_files: Sequence[str] = ()
    name: str | None = None
    adopt: bool = False
    as_of: str = ""
    model: str | None = None
    kv_bytes: int | None = None
    to: str | None = None
    server: str | None = None
    write: bool = False


def carry(request: Request) -> list[Done]:
    """Every set-up of the request, carried over. Raises `Refused`.

    All of them are worked out before the first file is written.
    """
    _stdin.cache_clear()
    since = ""
    found = [
        replace(one, folder=os.path.abspath(one.folder) if one.folder else "")
        for one in _found(request)
    ]
    if request.program:
        program, since = dialects.parse_from(request.program)
        found = [replace(one, program=program) for one in found]
    every = found
    found = [_with_config(one) for one in _picked(every, request.name)]
    if request.to is not None and len(found) > 1:
        raise several(found)
    works = []
    for one in found:
        neighbours = sum(other.files[:1] == one.files[:1] for other in every)
        works.append(_work(one, request, since, max(neighbours, one.commands)))
    _refuse_collisions(works)
    return [_done(work, request) for work in works]


def several(found: Sequence[Found]) -> Refused:
    """The problem of more set-ups than one file can hold."""
    names = ", ".join(f"`{one.name}`" for one in found)
    what = f"there are {len(found)} set-ups: {names}"
    return Refused([Problem(what, hint="pick one with `--name NAME`")])


def _refuse_collisions(works: Sequence[Work]) -> None:
    """Two set-ups may share a file only where they make the same of it."""
    seen: dict[Path, bytes] = {}
    for change in (change for work in works for change in work.changes):
        if seen.setdefault(change.path.absolute(), change.new) != change.new:
            what = "two set-ups would be written to this file"
            hint = "carry them over one by one, with `--name` and `--to`"
            raise Refused([Problem(what, str(change.path), hint)])


# ---- reading ----


def _found(request: Request) -> Iterator[Found]:
    if request.command is not None:
        yield sources.command(
            request.command, folder=os.getcwd(), env_files=request.env_files
        )
    for name in request.sources:
        if name == STDIN:
            yield from sources.read_data(
                _stdin(), "", kind=request.kind, env_files=request.env_files
            )
        else:
            yield from sources.read(
                name, kind=request.kind, env_files=request.env_files
            )


@cache
def _stdin() -> bytes:
    """Standard input, which can be read only once."""
    return sys.stdin.buffer.read()


def _picked(found: list[Found], name: str | None) -> list[Found]:
    if name is not None:
        picked = [one for one in found if one.name == name]
        if not picked:
            names = ", ".join(f"`{one.name}`" for one in found) or "none"
            hint = f"the set-ups are {names}"
            raise Refused([Problem(f"no set-up is called `{name}`", "--name", hint)])
        return picked
    if not found:
        what = "no set-up of a server that is known was found"
        hint = "name the kind of the source with `--kind` and the program with `--from`"
        raise Refused([Problem(what, hint=hint)])
    return found


def _with_config(found: Found) -> Found:
    """A set-up that starts the daemon with `--config FILE` means that file as well."""
    name = config_of(found)
    if name is None or found.entries:
        return found
    path = Path(os.path.join(found.folder, os.path.expanduser(name)))
    if files.read(path) is None:
        what = f"`{path}` is not there, and decides what the set-up means"
        remark = Remark(what, found.words[0].place, review=True)
        return replace(found, remarks=(*found.remarks, remark))
    (inner,) = sources.read(str(path), kind="toml")
    return replace(
        found,
        entries=inner.entries,
        remarks=(*found.remarks, *inner.remarks),
        files=(*found.files, *inner.files),
    )


def config_of(found: Found) -> str | None:
    """The file that a set-up names with `--config`."""
    if found.program != "mlxcel-server":
        return None
    words = [word.text for word in found.words]
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == "--config":
            return value if equals else "".join(words[at + 1 : at + 2]) or None
    return None


# ---- converting ----


def _work(found: Found, request: Request, since: str, count: int) -> Work:
    """What is to do for a set-up that is one of `count` in its file."""

    def converted(geometry: Geometry | None) -> Migration:
        return convert.convert(
            found,
            adopt=request.adopt,
            as_of=request.as_of,
            since=since,
            geometry=geometry,
        )

    migration = converted(None)
    geometry = _geometry(request, migration)
    if geometry is not None:
        migration = converted(geometry)
    named = request.to not in (None, STDIN)
    config = target(found, request.to, count)
    return prepare(
        migration,
        config=config,
        named=named,
        wanted=request.to is not None,
        needed=convert.needs_change(migration),
        server=_server(found, request),
        alone=count == 1,
        original=_stdin() if found.files[:1] == (sources.SHOWN,) else None,
    )


def _server(found: Found, request: Request) -> tuple[str, ...]:
    """The words that start the daemon."""
    if found.kind == "toml":
        return ("mlxcel-server",)
    import shutil  # brings every compression with it

    return units.server_words(found, request.server, shutil.which("mlxcel-server"))


def _geometry(request: Request, migration: Migration) -> Geometry | None:
    """Sizes from a model, or of one token alone."""
    if request.kv_bytes is not None:
        return Geometry(kv_bytes_per_token=request.kv_bytes)
    if request.model is None:
        return None
    from mlxceld.backend import will_be_float32
    from mlxceld.geometry import read_geometry
    from mlxceld.pacing import chunk_of, kind_of

    def word(name: str) -> str:
        return cast("str", migration.values.get(f"engine.{name}", "auto"))

    return read_geometry(
        Path(request.model),
        float32=will_be_float32(word("device"), word("dequantize")),
        chunk=chunk_of(
            cast("int | None", migration.values.get("engine.batch_size")),
            word("device"),
        ),
        cache_types=(word("cache_type_k"), word("cache_type_v")),
        kind=kind_of(word("device")),
    )


def target(found: Found, to: str | None, count: int) -> Path | None:
    """Where the configuration goes: as asked, into the old file, or beside it.

    For a unit of a package that is the folder of the daemon's own configuration.
    """
    if to == STDIN:
        return None
    if to is not None:
        return Path(to)
    if (name := config_of(found)) is not None:
        return Path(os.path.join(found.folder, os.path.expanduser(name)))
    if not found.files or found.files[0] in ("", sources.SHOWN):
        return None
    source = Path(found.files[0])
    if found.kind == "toml":
        return source
    stem = source.stem.lstrip(".") or "mlxcel"
    if count > 1:
        name = found.name.removeprefix(source.name)
        stem = f"{stem}-{re.sub(r'[^a-zA-Z0-9_.:@]+', '-', name).strip('-')}"
    name = f"{stem.rstrip('-')}.toml"
    if found.kind == "systemd" and units.is_packaged(source):
        return Path("/etc/mlxcel", name)
    return source.with_name(name)


# ---- writing ----


def _done(work: Work, request: Request) -> Done:
    written: list[files.Written] = []
    if request.write and work.config is None and work.text and request.to is None:
        what = "there is no file beside which the configuration could be written"
        raise Refused([Problem(what, hint="name one with `--to FILE`")])
    if request.write:
        # The file of keys comes before the configuration that names it, and that
        # before the unit that starts with it: what runs finds everything it names.
        for change in work.changes:
            written.append(_written(change, written))
    if work.migration.review:
        return Done(work, Status.REVIEW, tuple(written))
    todo = work.changes or (work.config is None and work.text and request.to is None)
    waits = bool(todo) and not request.write
    return Done(work, Status.CHANGES if waits else Status.OK, tuple(written))


def _written(change: Change, before: Sequence[files.Written]) -> files.Written:
    try:
        return files.write(change.path, change.new, secret=change.secret)
    except Refused as refused:
        if not before:
            raise
        names = ", ".join(str(done.path) for done in before)
        told = Problem(f"written before that, and not in use yet: {names}")
        raise Refused([*refused.problems, told]) from refused
