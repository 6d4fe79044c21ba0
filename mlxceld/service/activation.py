"""Sockets that a service manager opened for us: `LISTEN_FDS`, as in sd_listen_fds(3).

The manager binds, and starts the daemon with the first connection or at boot. While
the daemon restarts, connections wait in the socket that the manager keeps open.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlxceld import logs
from mlxceld.hosts import open_to_all
from mlxceld.logs import Event
from mlxceld.problems import Problem, Refused
from mlxceld.service.doors import Door
from mlxceld.service.sockets import Listener
from mlxceld.settings import ServerSettings

_log = logs.get("mlxceld.service")

_FIRST = 3
"""The first file descriptor that is handed over; the others follow."""

_WHERE = "LISTEN_FDS"


@dataclass(frozen=True, slots=True)
class Given:
    """One file descriptor from the manager and the name it has there."""

    fd: int
    name: str = ""


def given(environ: MutableMapping[str, str], pid: int | None = None) -> list[Given]:
    """What was handed to this process; the variables are taken out of `environ`.

    Children must not inherit them. Empty when they are for another process, as after
    a shell in between. Raises `Refused` when they make no sense.
    """
    pid = os.getpid() if pid is None else pid
    count = environ.pop("LISTEN_FDS", "").strip()
    whose = environ.pop("LISTEN_PID", "").strip()
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    environ.pop("LISTEN_PIDFDID", None)
    if not count or whose != str(pid):
        return []
    if not (count.isascii() and count.isdigit()):
        what = f"found `{count}`, wanted the number of sockets"
        raise Refused([Problem(what, _WHERE)])
    n = int(count)
    names += [""] * (n - len(names))
    return [Given(_FIRST + i, names[i]) for i in range(n)]


def adopt(sockets: Sequence[Given], scheme: str = "http") -> list[Listener]:
    """Listen on them. Raises `Refused` for one that takes no connections."""
    listeners: list[Listener] = []
    try:
        for one in sockets:
            listeners.append(_adopt(one, scheme))
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def hosts(listeners: Sequence[Listener]) -> tuple[str, ...]:
    """Their addresses in the words of `server.host`."""
    return tuple(_host(listener.sock) for listener in listeners)


def tell(server: ServerSettings, listeners: Sequence[Listener]) -> None:
    """Log that the manager decides where to listen, and warn of an open door."""
    n = len(listeners)
    _log.info(
        Event.CONFIG_NOTE,
        message=f"{n} socket{'s' if n > 1 else ''} of the service manager: server.host "
        "and server.port have no effect",
    )
    if (problem := open_to_all(replace(server, host=hosts(listeners)))) is not None:
        _log.warning(Event.CONFIG_WARNING, message=problem.render())


def _adopt(one: Given, scheme: str) -> Listener:
    try:
        os.set_inheritable(one.fd, False)
        sock = Door(fileno=one.fd)
    except OSError as error:
        raise _unusable(one, error.strerror or "it is no socket") from None
    if sock.type != socket.SOCK_STREAM or not _listens(sock):
        sock.close()
        raise _unusable(one, "it takes no connections (wanted `ListenStream=`)")
    sock.setblocking(False)
    if sock.family == socket.AF_UNIX:
        # Not ours to remove: the manager listens on.
        return Listener(sock, f"unix:{_name(sock)}")
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        sock.close()
        raise _unusable(one, "it is neither a TCP nor a UNIX socket")
    address, port = sock.getsockname()[:2]
    shown = f"[{address}]" if sock.family == socket.AF_INET6 else address
    return Listener(sock, f"{scheme}://{shown}:{port}")


def _listens(sock: socket.socket) -> bool:
    try:
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        # macOS does not tell of UNIX sockets.
        return True


def _host(sock: socket.socket) -> str:
    if sock.family == socket.AF_UNIX:
        name = _name(sock)
        # Whatever its name is, it is for this machine only.
        return name if name.endswith(".sock") else f"{name}.sock"
    return str(sock.getsockname()[0])


def _name(sock: socket.socket) -> str:
    name = sock.getsockname()
    text = os.fsdecode(name) if isinstance(name, bytes) else str(name)
    return f"@{text[1:]}" if text.startswith("\0") else str(Path(text))


def _unusable(one: Given, why: str) -> Refused:
    name = f" (`{one.name}`)" if one.name else ""
    return Refused(
        [
            Problem(
                f"file descriptor {one.fd}{name} cannot be listened on: {why}",
                where=_WHERE,
                hint="correct the socket unit, or start the daemon without it",
            )
        ]
    )
