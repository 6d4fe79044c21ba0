"""Hosts: which are this machine and nobody else, and which names a request may use.

A server that only listens on loopback addresses can still be reached by web pages: a
page gives its own name the address 127.0.0.1 and then talks to "itself". The `Host`
header of such a request has the page's name, which is how it is told apart. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from mlxceld.problems import Problem
from mlxceld.settings import ServerSettings

ANY = "*"


def is_loopback(host: str) -> bool:
    """Whether a name, an address or the file of a socket is for this machine only."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    name = bare.lower().rstrip(".")
    if name == "localhost" or name.endswith((".localhost", ".sock")):
        return True
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def without_port(host: str) -> str:
    """The host in a `Host` header, in lower case: `[::1]:80` is `[::1]`."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[: host.find("]") + 1] or host
    name, colon, port = host.partition(":")
    return (name if not colon or port.isdigit() else host).rstrip(".")


class HostCheck:
    """Which `Host` headers a server accepts.

    It looks at them only while it listens for this machine alone and asks for no key:
    elsewhere a page cannot get further than whoever made it could.
    """

    def __init__(self, server: ServerSettings, *, keyed: bool) -> None:
        self._names = frozenset(map(without_port, server.allowed_hosts))
        self._looks = (
            not keyed and ANY not in self._names and all(map(is_loopback, server.host))
        )

    def admits(self, headers: Iterable[tuple[bytes, bytes]], *, file: bool) -> bool:
        """Whether a request may pass. `file`: it came through a UNIX socket, which
        web pages cannot reach. A request without the header is not a browser's."""
        if not self._looks or file:
            return True
        named = [value for name, value in headers if name == b"host"]
        hosts = [without_port(value.decode("latin-1")) for value in named]
        return all(self._is_ours(host) for host in hosts if host)

    def _is_ours(self, host: str) -> bool:
        return host in self._names or (not host.endswith(".sock") and is_loopback(host))


def open_to_all(server: ServerSettings) -> Problem | None:
    """The warning for a server that everybody in the network may use.

    It is no error: front ends start llama-server like that, behind a firewall or in a
    container, and so they start this one.
    """
    reachable = [host for host in server.host if not is_loopback(host)]
    if not reachable or server.api_key or server.api_key_file:
        return None
    return Problem(
        f"{_listed(reachable)} can be reached from other machines and no API key is "
        "set: whoever does may use the model",
        "server.host",
        "set a key with `--api-key-file FILE`, or listen on `127.0.0.1`",
    )


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(f"`{host}`" for host in hosts)
