"""The addresses that the daemon listens on, bound before anything slow happens.

A busy port is told within a moment of the start, not after a model was loaded, and
port 0 has its real number by the time anybody asks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlxceld.problems import Problem, Refused
from mlxceld.service.doors import Door

_BACKLOG = 512
"""Connections that the system keeps for us while the loop is busy."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One bound and listening socket, and how a client names it."""

    sock: socket.socket
    url: str
    """`http://127.0.0.1:8080`, or `unix:/run/mlxcel.sock`."""
    path: Path | None = None
    """File of a Unix socket, which goes away with the listener."""
    inode: int = 0
    """Number of that file: another daemon may have put its own in the place."""

    def close(self) -> None:
        """Stop listening. May be called twice, and after somebody closed the socket."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                if self.path.lstat().st_ino == self.inode:
                    self.path.unlink()
        self.sock.close()


def listen(
    hosts: Sequence[str], port: int, scheme: str = "http", mode: str | None = None
) -> list[Listener]:
    """Listen on every host: names, addresses, and files that end in `.sock`.

    `mode` is that of the files, in octal; None leaves it to the umask.

    A name that stands for several addresses (`localhost`) is bound on all that this
    machine has. Port 0 asks the system for a free one; all hosts then share its number.
    Raises `Refused`, with nothing left bound, when a host cannot be had.
    """
    listeners: list[Listener] = []
    try:
        addresses = [_resolve(host, port) for host in hosts if not _is_file(host)]
        mixed = {family for group in addresses for family, _ in group}
        v6_only = len(mixed) > 1
        ours: set[tuple[socket.AddressFamily, str]] = set()
        for host in hosts:
            if _is_file(host):
                listeners.append(_listen_file(Path(host).expanduser(), mode))
                continue
            # `localhost` and `127.0.0.1` may both be there, and are bound once.
            group = [one for one in addresses.pop(0) if one not in ours]
            ours.update(group)
            for listener in _listen_host(host, group, port, v6_only, scheme):
                listeners.append(listener)
                port = port or listener.sock.getsockname()[1]
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _is_file(host: str) -> bool:
    return host.endswith(".sock")


def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    """Families and numeric addresses of a host, in the system's order."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        found = socket.getaddrinfo(
            bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        # A name with an empty or an endless part never reaches the resolver.
        why = getattr(error, "strerror", None) or "it cannot be a name"
        raise Refused(
            [
                Problem(
                    f"host `{host}` is not known: {why}",
                    where="server.host",
                    hint="give an address of this machine, `127.0.0.1` for itself only",
                )
            ]
        ) from error
    groups = dict.fromkeys((family, str(address[0])) for family, *_, address in found)
    return list(groups)


def _listen_host(
    host: str,
    addresses: Sequence[tuple[socket.AddressFamily, str]],
    port: int,
    v6_only: bool,
    scheme: str,
) -> Iterator[Listener]:
    refused: OSError | None = None
    bound = 0
    for family, address in addresses:
        sock: socket.socket | None = None
        try:
            # With the protocol named, asyncio turns Nagle's algorithm off on what it
            # accepts; otherwise every reply on a kept connection waits 40 ms.
            sock = Door(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(v6_only))
            sock.bind((address, port))
            sock.listen(_BACKLOG)
        except OSError as error:
            if sock is not None:
                sock.close()
            if error.errno in _NOT_HERE:
                # `localhost` names ::1 on machines that have no IPv6.
                refused = error
                continue
            raise Refused([_problem(error, host, port)]) from error
        sock.setblocking(False)
        port = sock.getsockname()[1]
        bound += 1
        shown = f"[{address}]" if family == socket.AF_INET6 else address
        yield Listener(sock, f"{scheme}://{shown}:{port}")
    if not bound and refused is not None:
        raise Refused([_problem(refused, host, port)]) from refused


_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}


def _problem(error: OSError, host: str, port: int) -> Problem:
    if error.errno == errno.EADDRINUSE:
        return Problem(
            f"port {port} of {host} is in use by another program",
            where="server.port",
            hint="stop that program, or choose another port with `--port`",
        )
    if error.errno == errno.EACCES:
        return Problem(
            f"port {port} of {host} is not ours to take: {error.strerror}",
            where="server.port",
            hint="choose a port above 1023 with `--port`",
        )
    if error.errno in _NOT_HERE:
        return Problem(
            f"{host} is no address of this machine",
            where="server.host",
            hint="give an address of this machine, `127.0.0.1` for itself only",
        )
    return Problem(
        f"{host}:{port} cannot be listened on: {error.strerror}", where="server.host"
    )


def _listen_file(path: Path, mode: str | None) -> Listener:
    _remove_stale(path)
    sock = Door(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(os.fspath(path))
        if mode is not None:
            # Nobody can connect before it listens.
            path.chmod(int(mode, 8))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        # A path that is too long for the system has no errno of its own.
        why = error.strerror or str(error)
        raise Refused(
            [
                Problem(
                    f"the socket `{path}` cannot be made: {why}",
                    where="server.host",
                    hint="name a file in a folder that exists and is writable",
                )
            ]
        ) from error
    sock.setblocking(False)
    return Listener(sock, f"unix:{path}", path, path.lstat().st_ino)


def _remove_stale(path: Path) -> None:
    """Remove a socket that a killed daemon left; refuse one that still answers."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise Refused(
                [
                    Problem(
                        f"`{path}` exists and is no socket",
                        where="server.host",
                        hint="remove it, or name another file",
                    )
                ]
            )
    except OSError:
        return
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError:
            pass
    raise Refused(
        [
            Problem(
                f"the socket `{path}` is in use by another program",
                where="server.host",
                hint="stop that program, or name another file",
            )
        ]
    )
