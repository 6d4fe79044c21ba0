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
from .sources import ADMIN_FOLDER, PACKAGE_FOLDERS
from .sources.words import WRAPPERS, base_name

DROP_IN = "zz-mlxcel-migrate.conf"
"""Drop-ins are read in the order of their names: this one has the last word."""

_STAYS = frozenset(
    ("caffeinate", "chrt", "ionice", "nice", "numactl", "stdbuf", "taskset")
)
"""Programs that start another one and have no say in its options."""

_SERVERS = ("llama-server", "mlxcel-server", "mlx_lm.server")

_BARE = re.compile(r"[A-Za-z0-9_@./:+=,-]+")
_UNSET = re.compile(r"^UnsetEnvironment=(.*)$", re.MULTILINE)


def is_packaged(unit: Path) -> bool:
    """Whether a unit is in a folder of packages, where nobody else writes."""
    return str(unit.absolute().parent) in PACKAGE_FOLDERS


def drop_in_path(unit: Path) -> Path:
    """Where the drop-in of a unit belongs; beside it, where it is a drop-in itself."""
    if is_packaged(unit):
        return Path(ADMIN_FOLDER, unit.name + ".d", DROP_IN)
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


def server_words(found: Found, given: str | None, path: str | None) -> tuple[str, ...]:
    """The words that start the daemon: `given`, else `path`, where the system finds it.

    A set-up that starts it already keeps the name that it has. Programs in front that
    only say where and how fast it runs stay there.
    """
    command = found.command
    if not given and found.program == "mlxcel-server" and command:
        given = command[-1] if base_name(command[-1]) == "mlxcel-server" else None
    return (*_wrapper(found), given or path or "mlxcel-server")


def _wrapper(found: Found) -> tuple[str, ...]:
    """The words in front of a server that can stay in front of another one."""
    before = found.command[:-1]
    names = [base_name(word) for word in before]
    if not before or names[0] not in _STAYS or found.is_container:
        return ()
    if base_name(found.command[-1]) not in _SERVERS:
        return ()
    others = WRAPPERS.keys() - _STAYS
    for word, name in zip(before, names, strict=True):
        starts = name in others or name.startswith("python") or word in found.files
        if starts or re.match(r"[A-Za-z_]\w*=", word):
            return ()
    return before


def left_behind(found: Found, server: Sequence[str]) -> Iterator[str]:
    """What the old command did beside starting the server, and the new one does not."""
    if found.program != "mlxcel-server" and not os.path.isabs(server[-1]):
        yield (
            f"`{server[-1]}` is not found on this machine: say where it is with "
            "`--server PATH`"
        )
    service = found.files[0] if found.files else ""
    files = dict.fromkeys(word.place.file for word in found.words)
    scripts = [f for f in files if f and f != service and not f.endswith(".conf")]
    for script in scripts:
        yield f"{script} is not run any more: see what else it does"
    words = [word for word in found.command[:-1] if word != "exec"]
    first = base_name(words[0]) if words and not scripts else "python"
    if not first.startswith("python") and tuple(words) != tuple(server[:-1]):
        yield f"the old command began with `{shlex.join(words)}`, the new one does not"


def suggestion(
    found: Found,
    server: Sequence[str],
    config: Path,
    moved: Sequence[str],
    *,
    keys: Path | None = None,
    listens: bool = True,
) -> Iterator[str]:
    """What to write by hand where the tool does not write itself.

    `keys` is the file of API keys beside the configuration, `listens` is whether the
    configuration says an address.
    """
    start = shlex.join([*server, "--config", str(config)])
    mounts = [f"{file}:{file}:ro" for file in (config, keys) if file is not None]
    contained = found.is_container or found.kind in ("quadlet", "compose")
    if contained and found.program != "mlxcel-server":
        yield "use an image that has mlxcel-server in it"
    if found.kind == "quadlet":
        yield f"in [Container]: Exec=--config {systemd_word(str(config))}"
        yield from (f"in [Container]: Volume={mount}" for mount in mounts)
    elif found.kind == "compose":
        yield f'in the service: command: ["--config", "{config}"]'
        yield from (f"in the service, under volumes: - {mount}" for mount in mounts)
    elif contained:
        yield f"behind the image: {shlex.join(['--config', str(config)])}"
        yield from (
            f"in front of the image: {shlex.join(['-v', mount])}" for mount in mounts
        )
    elif found.kind == "systemd":
        words = " ".join(systemd_word(w) for w in (*server, "--config", str(config)))
        yield f"in the unit, in place of this command: ExecStart={words}"
    elif found.kind == "script":
        yield f"in the script, start the daemon with: {start}"
    else:
        yield f"start the daemon with: {start}"
    if contained and not listens:
        yield (
            'in the file, to be reached from outside: host = "0.0.0.0" in [server], '
            "and API keys"
        )
    if moved:
        yield f"and take out what moves into the file: {', '.join(moved)}"
