"""Where files are looked for. Looks at the file system and reads nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE_NAME = "mlxcel.toml"
CONFIG_VARIABLE = "MLXCELD_CONFIG"


def candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """The places of a configuration file that nobody named, best first.

    systemd's `$CONFIGURATION_DIRECTORY` (a list with colons), the user's XDG folder
    (on macOS too), Homebrew's `etc`, and `/etc`. A relative `$XDG_CONFIG_HOME` counts
    as unset, as the XDG specification wants it.
    """
    for folder in environ.get("CONFIGURATION_DIRECTORY", "").split(":"):
        if folder.strip():
            yield Path(folder) / FILE_NAME
    xdg = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(xdg):
        yield Path(xdg) / "mlxcel" / FILE_NAME
    elif home := environ.get("HOME", ""):
        yield Path(home) / ".config" / "mlxcel" / FILE_NAME
    seen = set()
    for prefix in (environ.get("HOMEBREW_PREFIX", ""), "/opt/homebrew", "/usr/local"):
        if prefix and prefix not in seen:
            seen.add(prefix)
            yield Path(prefix) / "etc" / "mlxcel" / FILE_NAME
    yield Path("/etc/mlxcel") / FILE_NAME


def named(explicit: str | None, environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """The file that the user named, and where it was named; None when nobody did.

    `explicit` is the value of `--config`; it wins over `$MLXCELD_CONFIG`.
    """
    if explicit is not None:
        return Path(os.path.expanduser(explicit)), "--config"
    value = environ.get(CONFIG_VARIABLE, "")
    if value.strip():
        return (
            Path(os.path.expanduser(value)),
            f"environment variable {CONFIG_VARIABLE}",
        )
    return None


def find(environ: Mapping[str, str]) -> Path | None:
    """The first candidate that exists."""
    return next((path for path in candidates(environ) if _exists(path)), None)


def drop_ins(main: Path) -> list[Path]:
    """The files `<main>.d/*.toml` in the order of their names, without hidden ones.

    Raises OSError when the folder is there and cannot be read.
    """
    folder = main.with_name(main.name + ".d")
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [
        folder / name
        for name in sorted(names)
        if name.endswith(".toml") and not name.startswith(".")
    ]


def _exists(path: Path) -> bool:
    # A file that is there and may not be read is found, so that its reader says so;
    # a folder that may not be searched hides what is in it.
    try:
        return path.exists()
    except OSError:
        return False
