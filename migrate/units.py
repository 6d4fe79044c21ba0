"""Makes a service start the daemon with the new file, and changes nothing else of it.

A systemd unit gets a drop-in, so that the unit itself stays as its package or its
admin wrote it. A launchd job has no such thing: its property list is changed in
place, byte by byte outside of the arguments and the variables that moved into the
configuration. Containers, scripts and the rest are only told what to write.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from .found import Found

DROP_IN = "zz-mlxcel-migrate.conf"
"""Drop-ins are read in the order of their names: this one has the last word."""

_IMAGE = "use an image that has mlxcel-server in it"

_BARE = re.compile(r"[A-Za-z0-9_@./:+=,-]+")
_UNSET = re.compile(r"^UnsetEnvironment=(.*)$", re.MULTILINE)


def drop_in_path(unit: Path) -> Path:
    """Where the drop-in of a unit belongs; beside it, where it is a drop-in itself."""
    if unit.parent.name.endswith(".d"):
        return unit.with_name(DROP_IN)
    return unit.with_name(unit.name + ".d") / DROP_IN


def drop_in(
    server: Sequence[str], config: Path, moved: Sequence[str], old: str = ""
) -> str:
    """The text of a drop-in that replaces the start command of a unit.

    `moved` are variables whose options are in the configuration now; they would win
    over it. What an `old` drop-in unsets stays unset: it was moved by an earlier run.
    """
    words = " ".join(systemd_word(w) for w in (*server, "--config", str(config)))
    lines = [
        "# Written by mlxcel-migrate: the options are in the configuration file now.",
        "[Service]",
        "ExecStart=",
        f"ExecStart={words}",
    ]
    before = [name for row in _UNSET.findall(old) for name in row.split()]
    if names := dict.fromkeys((*before, *moved)):
        lines.append(f"UnsetEnvironment={' '.join(names)}")
    return "\n".join(lines) + "\n"


def systemd_word(word: str) -> str:
    """One word as systemd reads it back: quotes, `%` and `$` doubled, C escapes."""
    text = word.replace("%", "%%").replace("$", "$$")
    if _BARE.fullmatch(word):
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    text = "".join(c if c.isprintable() else _escape(c) for c in text)
    return f'"{text}"'


def _escape(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def default_server(found: Found, path: str | None) -> tuple[str, ...]:
    """The words that start the daemon; `path` is what the system finds for its name.

    A set-up that starts it already keeps the words that it has.
    """
    own = found.program == "mlxcel-server" and found.command
    if own and os.path.basename(found.command[-1]) == "mlxcel-server":
        return (found.command[-1],)
    return (path or "mlxcel-server",)


def left_behind(found: Found) -> Iterator[str]:
    """What the old command did beside starting the server, and the new one does not."""
    service = found.files[0] if found.files else ""
    files = dict.fromkeys(word.place.file for word in found.words)
    scripts = [f for f in files if f and f != service and not f.endswith(".conf")]
    for script in scripts:
        yield f"{script} is not run any more: see what else it does"
    words = [word for word in found.command[:-1] if word != "exec"]
    first = os.path.basename(words[0]) if words and not scripts else "python"
    if not first.startswith("python"):
        yield f"the old command began with `{shlex.join(words)}`, the new one does not"


def suggestion(
    found: Found, server: Sequence[str], config: Path, moved: Sequence[str]
) -> Iterator[str]:
    """What to write by hand where the tool does not write itself."""
    start = shlex.join([*server, "--config", str(config)])
    if found.kind == "systemd":
        words = " ".join(systemd_word(w) for w in (*server, "--config", str(config)))
        yield f"in the unit, in place of this command: ExecStart={words}"
    elif found.kind == "script":
        yield f"in the script, start the daemon with: {start}"
    elif found.kind == "quadlet":
        yield _IMAGE
        yield f"in [Container]: Exec=--config {systemd_word(str(config))}"
        yield f"in [Container]: Volume={config}:{config}:ro"
    elif found.kind == "compose":
        yield _IMAGE
        yield f'in the service: command: ["--config", "{config}"]'
        yield f"in the service, under volumes: - {config}:{config}:ro"
    else:
        yield f"start the daemon with: {start}"
    if moved:
        yield f"and take out what moves into the file: {', '.join(moved)}"
