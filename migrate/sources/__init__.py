"""Readers of set-ups: each knows the quoting rules of one format, and no option.

`read` is the door: it reads the file, and what belongs to it (drop-ins, env files, a
script it starts), and hands the texts to the reader of their kind. Nothing is run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mlxceld.problems import Problem, Refused

from ..found import Found, Kind, Variable
from .detect import detect
from .words import other_language

SHOWN = "standard input"
"""What stands for the name of a file where the content came in by a pipe."""

LARGEST = 4 << 20
"""The most bytes of a file that is read: no set-up comes near it."""

PACKAGE_FOLDERS = (
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/usr/local/lib/systemd/system",
)
"""Where packages put units."""

ADMIN_FOLDER = "/etc/systemd/system"
"""Where the admin of a machine puts units and drop-ins."""

_SYSTEM_FOLDERS = (*PACKAGE_FOLDERS, "/run/systemd/system", ADMIN_FOLDER)


def read(
    path: str, *, kind: Kind | None = None, env_files: Sequence[str] = ()
) -> list[Found]:
    """Every set-up in a file, in its order. Raises Refused.

    `env_files` fill the `${NAME}` of a Compose file; for other kinds they are the
    environment in which the server starts.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            # A pipe is empty when it is read again, to be edited.
            hint = "give what is no file on standard input, and `-` as its name"
            raise Refused([Problem("is not a regular file", path, hint)])
        data = _bytes(path)
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise Refused([Problem(f"cannot be read: {what}", path)]) from None
    if data is None:
        raise Refused([Problem(f"larger than {LARGEST >> 20} MiB, no set-up", path)])
    return read_data(data, path, kind=kind, env_files=env_files)


def read_data(
    data: bytes,
    path: str,
    *,
    kind: Kind | None = None,
    env_files: Sequence[str] = (),
) -> list[Found]:
    """Every set-up in the content of a file; `path` is empty for standard input."""
    shown = path or SHOWN
    try:
        return _read(data, path, shown, kind, env_files)
    except RecursionError:
        raise Refused([Problem("nested too deeply", shown)]) from None


def _read(
    data: bytes, path: str, shown: str, kind: Kind | None, env_files: Sequence[str]
) -> list[Found]:
    kind = kind or detect(path, data)
    if kind is None:
        hint = "name the kind with `--kind`"
        raise Refused([Problem("it is not known what this is", shown, hint)])
    variables = _env_files(env_files)
    files = _Files(os.path.dirname(path))
    if kind == "launchd":
        from . import launchd

        return launchd.read(data, shown, files=files, before=variables)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused([Problem("not in UTF-8", f"{shown}:{line}")]) from None
    language = other_language(path, text) if kind in ("script", "command") else ""
    if language:
        what = f"it is written for {language}; only shells like `sh` are read"
        raise Refused([Problem(what, shown, "give the command itself, after `--`")])
    return _read_text(kind, text, path, shown, variables, files)


def _read_text(
    kind: Kind,
    text: str,
    path: str,
    shown: str,
    variables: tuple[Variable, ...],
    files: _Files,
) -> list[Found]:
    # Imported here: PyYAML and others take time that a run without them need not.
    if kind == "toml":
        from . import toml

        return toml.read(text, shown)
    if kind == "env":
        from . import env

        return [_with(one, variables) for one in env.read(text, shown)]
    if kind == "ini":
        from . import ini

        return [_with(one, variables) for one in ini.read(text, shown)]
    if kind == "systemd":
        from . import systemd

        drop_ins = list(_drop_ins(path))
        return systemd.read(
            text, shown, drop_ins=drop_ins, files=files, before=variables
        )
    if kind == "quadlet":
        from . import quadlet

        drop_ins = list(_drop_ins(path))
        return quadlet.read(
            text, shown, drop_ins=drop_ins, files=files, before=variables
        )
    if kind == "compose":
        from . import compose

        given: Mapping[str, str] = {v.name: v.value for v in variables}
        return compose.read(text, shown, given=given, files=files)
    if kind == "command":
        from . import commandline

        return commandline.read(text, path, environment=variables, files=files)
    from . import script

    return script.read(text, shown, environment=variables, files=files)


def command(
    words: Sequence[str], *, folder: str = "", env_files: Sequence[str] = ()
) -> Found:
    """A command line whose words a shell has cut already. Raises Refused.

    `folder` is where relative names are seen from.
    """
    from .commandline import read_words

    found = read_words(words, environment=_env_files(env_files), files=_Files(folder))
    return replace(found, folder=found.folder or folder)


def _with(found: Found, variables: tuple[Variable, ...]) -> Found:
    return replace(found, environment=(*variables, *found.environment))


class _Files:
    """Reads files that a source names, relative ones from its own folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> str | None:
        """The text, or None where there is no such file, or none of text."""
        path = os.path.join(self.folder, os.path.expanduser(name))
        try:
            # A pipe or a device would be waited for.
            data = _bytes(path) if os.path.isfile(path) else None
        except (OSError, ValueError):
            return None
        try:
            return None if data is None else data.decode("utf-8")
        except UnicodeDecodeError:
            return None


def _bytes(path: str) -> bytes | None:
    """The content of a file; None for one that is too large to be a set-up."""
    with open(path, "rb") as file:
        data = file.read(LARGEST + 1)
    return data if len(data) <= LARGEST else None


def _env_files(names: Sequence[str]) -> tuple[Variable, ...]:
    if not names:
        return ()
    from . import env

    variables: list[Variable] = []
    for name in names:
        try:
            data = _bytes(name)
            text = (data or b"").decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else "not in UTF-8"
            raise Refused([Problem(what or "cannot be read", name)]) from None
        variables += env.alone(text, name).variables
    return tuple(variables)


def _drop_ins(path: str) -> Iterator[tuple[str, str]]:
    """The drop-ins of a unit, in the order systemd applies them.

    They stand in `NAME.d` beside the unit, and for a unit of the system in the other
    folders too; of two files with one name the one in /etc counts.
    """
    if not path:
        return
    parent, name = os.path.split(os.path.abspath(path))
    beside = os.path.dirname(path)
    folders = list(_SYSTEM_FOLDERS) if parent in _SYSTEM_FOLDERS else [beside]
    names = [name]
    stem, dot, suffix = name.rpartition(".")
    template, at, _ = stem.partition("@")
    if at and not stem.endswith("@"):
        names.insert(0, f"{template}@{dot}{suffix}")
    chosen: dict[str, Path] = {}
    for folder in folders:
        for one in names:
            for file in Path(folder or ".").glob(f"{_escaped(one)}.d/*.conf"):
                chosen[file.name] = file
    files = _Files("")
    for _, file in sorted(chosen.items()):
        # A link to /dev/null masks a drop-in: it is empty, and stays so here.
        yield str(file), files(str(file)) or ""


def _escaped(name: str) -> str:
    return name.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")
