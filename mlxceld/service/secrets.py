"""Secrets: where they may be read from, and where they must not be left lying.

A key in a file is as safe as the file: one that others can read is refused, as ssh
does with private keys. A service manager hands keys over in a folder of credentials
that it guards itself. What came in the environment is taken out of it before another
process is started.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from mlxceld.options import OPTIONS
from mlxceld.problems import Problem, Refused
from mlxceld.settings import ServerSettings

CREDENTIAL = "api-key"
"""Name of the credential with API keys, for `LoadCredential=` of systemd."""

_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def credential(environ: Mapping[str, str]) -> Path | None:
    """The file with API keys that the service manager provides, if there is one."""
    folder = environ.get("CREDENTIALS_DIRECTORY", "")
    path = Path(folder, CREDENTIAL)
    return path if folder and path.is_file() else None


def read_key_file(path: Path, environ: Mapping[str, str]) -> list[str]:
    """Keys of a file: one a line, trimmed; blank lines and those with # are skipped.

    Raises `Refused` when it cannot be read, when others than its owner can read or
    write it, and when it holds no key: a daemon that was meant to be closed must not
    start open. The manager's folder of credentials is not looked at that way: who may
    read there is in access lists, which the mode does not show.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read().decode("utf-8-sig")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise _refused(f"cannot read server.api_key_file: {reason}", path) from None
    if stat.S_ISREG(mode) and mode & _OTHERS and not _guarded(path, environ):
        raise _refused(
            f"others than its owner can read or write it (mode {mode & 0o777:04o})",
            path,
            f"`chmod 600 {path}`",
        )
    lines = (line.strip() for line in text.splitlines())
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        what = "server.api_key_file holds no key"
        raise _refused(what, path, "write one key a line")
    return keys


def read_keys(server: ServerSettings, environ: Mapping[str, str]) -> list[str]:
    """Keys of the option, of the file, and of the manager's credential.

    Raises `Refused` when a file cannot be used.
    """
    keys = [key.strip() for key in server.api_key if key.strip()]
    files = [Path(server.api_key_file)] if server.api_key_file else []
    given = credential(environ)
    for file in [*files, *([given] if given else [])]:
        keys += read_key_file(file, environ)
    return keys


def _guarded(path: Path, environ: Mapping[str, str]) -> bool:
    folder = environ.get("CREDENTIALS_DIRECTORY", "")
    return bool(folder) and path.resolve().is_relative_to(Path(folder).resolve())


def withhold(environ: MutableMapping[str, str]) -> None:
    """Take API keys out of an environment that other processes would inherit."""
    for option in OPTIONS:
        if option.secret and option.table == "server":
            for name in (*option.env, option.own_env):
                environ.pop(name, None)


def _refused(what: str, path: Path, hint: str = "") -> Refused:
    return Refused([Problem(what, where=str(path), hint=hint)])
