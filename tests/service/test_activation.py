"""Sockets of a service manager, passed as systemd passes them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mlxceld.problems import Refused
from mlxceld.service import activation
from mlxceld.service.activation import Given, adopt, given
from tests.service.running import PATIENCE, daemon

ACTIVATOR = """
import fcntl, os, sys
fds = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 99) for fd in sys.argv[1].split(",")]
for target, fd in enumerate(fds, 3):
    os.dup2(fd, target)
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDS"] = str(len(fds))
os.environ["LISTEN_FDNAMES"] = ":".join(f"n{fd}" for fd in fds)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Moves the descriptors to 3, 4, ... and becomes the daemon."""


@pytest.fixture
def tcp() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def test_the_descriptors_are_numbered_from_three_and_carry_their_names() -> None:
    environ = {
        "LISTEN_PID": "42",
        "LISTEN_FDS": "3",
        "LISTEN_FDNAMES": "http:unix",
        "PATH": "/bin",
    }
    assert given(environ, pid=42) == [Given(3, "http"), Given(4, "unix"), Given(5)]
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "7"},
        {"LISTEN_FDS": "", "LISTEN_PID": "42"},
        {"LISTEN_FDS": "0", "LISTEN_PID": "42"},
    ],
)
def test_what_is_for_others_is_left_alone_and_passed_on_to_nobody(
    environ: dict[str, str],
) -> None:
    assert given(environ, pid=42) == []
    assert environ == {}


@pytest.mark.parametrize("count", ["-1", "one", "1.0"])
def test_a_number_that_is_none_is_refused(count: str) -> None:
    with pytest.raises(Refused, match="LISTEN_FDS"):
        given({"LISTEN_FDS": count, "LISTEN_PID": "42"}, pid=42)


def test_a_tcp_socket_is_listened_on_and_no_child_inherits_it(
    tcp: socket.socket,
) -> None:
    fd = os.dup(tcp.fileno())
    os.set_inheritable(fd, True)
    (one,) = adopt([Given(fd)])
    assert one.url == f"http://127.0.0.1:{tcp.getsockname()[1]}"
    assert one.sock.gettimeout() == 0
    assert not os.get_inheritable(fd)
    # With the protocol known, asyncio turns Nagle's algorithm off.
    assert one.sock.proto == socket.IPPROTO_TCP
    assert activation.hosts([one]) == ("127.0.0.1",)
    one.close()


def test_the_file_of_a_unix_socket_is_the_managers(tmp_path: Path) -> None:
    path = tmp_path / "d"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        (one,) = adopt([Given(os.dup(sock.fileno()))])
        assert one.url == f"unix:{path}"
        # For the check of hosts it is a file, which is for this machine only.
        assert activation.hosts([one]) == (f"{path}.sock",)
        one.close()
        assert path.exists()


def test_what_takes_no_connections_is_refused_by_its_name(tcp: socket.socket) -> None:
    read, write = os.pipe()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        for fd, words in (
            (os.dup(datagrams.fileno()), "ListenStream="),
            (read, r"descriptor \d+ \(`http`\)"),
        ):
            kept = os.dup(tcp.fileno())
            with pytest.raises(Refused, match=words):
                adopt([Given(kept), Given(fd, "http")])
            # Nothing stays open of what was adopted before.
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(kept)
    os.close(read)
    os.close(write)


def test_a_daemon_serves_the_sockets_it_was_given(
    tcp: socket.socket, tmp_path: Path
) -> None:
    path = tmp_path / "given.sock"
    with socket.socket(socket.AF_UNIX) as file:
        file.bind(str(path))
        file.listen()
        fds = (tcp.fileno(), file.fileno())
        before = (sys.executable, "-c", ACTIVATOR, ",".join(map(str, fds)))
        # The address of the settings is taken: it is not asked for.
        server = {"port": tcp.getsockname()[1]}
        with daemon(before=before, fds=fds, server=server) as one:
            url = one.ready()
            assert url == f"http://127.0.0.1:{tcp.getsockname()[1]}"
            assert one.wait_for("listening")["url"] == f"unix:{path}"
            assert any("2 sockets of the" in e.get("message", "") for e in one.events)
            assert httpx.get(f"{url}/health", timeout=PATIENCE).status_code == 200
            transport = httpx.HTTPTransport(uds=str(path))
            with httpx.Client(transport=transport, timeout=PATIENCE) as client:
                assert client.get("http://any.name/health").status_code == 200
            one.process.send_signal(signal.SIGTERM)
            assert one.ended() == 0
        # They are the manager's, who may start the next daemon with them.
        assert path.exists()
        with socket.create_connection(tcp.getsockname()):
            pass


@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None,
    reason="needs systemd-socket-activate",
)
def test_the_first_client_starts_the_daemon_and_is_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    before = ("systemd-socket-activate", "-l", f"127.0.0.1:{port}")
    with daemon(before=before, script={"load_seconds": 0.2}) as one:
        url = f"http://127.0.0.1:{port}"
        transport = httpx.HTTPTransport(retries=8)
        with httpx.Client(transport=transport, timeout=PATIENCE) as client:
            # It waited in the socket while the daemon started.
            assert client.get(f"{url}/health").status_code in (200, 503)
            assert one.ready() == url
            reply = client.post(
                f"{url}/completion", json={"prompt": "go", "n_predict": 3}
            )
        assert reply.json()["content"] == "x x x "
        one.process.send_signal(signal.SIGTERM)
        assert one.ended() == 0
