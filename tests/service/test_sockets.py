"""Listening: hosts, files, ports that are taken."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mlxceld.problems import Refused
from mlxceld.service.sockets import Listener, listen


@contextlib.contextmanager
def listening(hosts: Sequence[str], port: int = 0) -> Iterator[list[Listener]]:
    listeners = listen(hosts, port)
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


def connect(listener: Listener) -> None:
    if listener.path:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(listener.path))
    else:
        socket.create_connection(listener.sock.getsockname()[:2], 5).close()


def test_port_zero_gives_a_real_port_that_answers() -> None:
    with listening(["127.0.0.1"]) as (one,):
        port = one.sock.getsockname()[1]
        assert port > 0
        assert one.url == f"http://127.0.0.1:{port}"
        connect(one)


def test_several_hosts_share_the_port_that_the_system_chose() -> None:
    with listening(["127.0.0.1", "127.0.0.2"]) as (one, two):
        assert one.sock.getsockname()[1] == two.sock.getsockname()[1]
        connect(one)
        connect(two)


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_an_ipv6_address_is_written_in_brackets() -> None:
    try:
        with listening(["::1"]) as (one,):
            assert one.url == f"http://[::1]:{one.sock.getsockname()[1]}"
            connect(one)
    except Refused:
        pytest.skip("this machine has no IPv6 loopback")


def test_localhost_listens_on_what_this_machine_has_of_it() -> None:
    with listening(["localhost"]) as listeners:
        assert "127.0.0.1" in {one.sock.getsockname()[0] for one in listeners}


def test_a_busy_port_is_named_with_a_way_out() -> None:
    with listening(["127.0.0.1"]) as (one,):
        port = one.sock.getsockname()[1]
        with pytest.raises(Refused) as refused:
            listen(["127.0.0.1"], port)
    assert f"port {port} of 127.0.0.1 is in use" in str(refused.value)
    assert "--port" in str(refused.value)


def test_a_port_can_be_taken_again_at_once_after_a_stop() -> None:
    with listening(["127.0.0.1"]) as (one,):
        port = one.sock.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port), 5)
        server, _ = one.sock.accept()
        server.close()  # our side closes first and stays in TIME_WAIT
        client.close()
    with listening(["127.0.0.1"], port) as (again,):
        connect(again)


def test_nothing_stays_bound_when_one_of_several_hosts_is_refused() -> None:
    with listening(["127.0.0.2"]) as (one,):
        port = one.sock.getsockname()[1]
        with pytest.raises(Refused):
            listen(["127.0.0.1", "127.0.0.2"], port)
        with listening(["127.0.0.1"], port):
            pass


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(Refused, match=r"192\.0\.2\.1 is no address of this machine"):
        listen(["192.0.2.1"], 0)


def test_a_unix_socket_answers_and_its_file_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    with listening([str(path)]) as (one,):
        assert one.url == f"unix:{path}"
        connect(one)
    assert not path.exists()


@pytest.mark.parametrize(("mode", "bits"), [("0600", 0o600), ("0666", 0o666)])
def test_a_unix_socket_has_the_mode_that_is_asked_for(
    mode: str, bits: int, tmp_path: Path
) -> None:
    path = tmp_path / "d.sock"
    (one,) = listen([str(path)], 0, mode=mode)
    assert stat.S_IMODE(path.stat().st_mode) == bits
    one.close()


def test_without_a_mode_the_umask_decides(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with listening([str(tmp_path / "d.sock")]):
            assert stat.S_IMODE((tmp_path / "d.sock").stat().st_mode) == 0o750
    finally:
        os.umask(before)


def test_a_unix_socket_left_by_a_killed_daemon_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with listening([str(path)]) as (one,):
        connect(one)


def test_a_unix_socket_that_answers_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    with listening([str(path)]) as (one,):
        with pytest.raises(Refused, match="in use by another program"):
            listen([str(path)], 0)
        connect(one)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.sock"
    path.write_text("mine")
    with pytest.raises(Refused, match="is no socket"):
        listen([str(path)], 0)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("host", ["a" * 70, "example..com"])
def test_what_cannot_be_a_name_is_refused_like_an_unknown_one(host: str) -> None:
    with pytest.raises(Refused, match=r"is not known: it cannot be a name"):
        listen([host], 0)


def test_an_address_that_two_hosts_name_is_bound_once() -> None:
    listeners = listen(["127.0.0.1", "127.0.0.1"], 0)
    try:
        assert len(listeners) == 1
    finally:
        for listener in listeners:
            listener.close()
