"""Which hosts are this machine, and which names a request may use."""

from __future__ import annotations

from typing import Any

import pytest

from mlxceld.hosts import HostCheck, is_loopback, open_to_all, without_port
from mlxceld.settings import ServerSettings


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "app.localhost",
        "127.0.0.1",
        "127.8.9.10",
        "::1",
        "[::1]",
        "::ffff:127.0.0.1",
        "/run/mlxcel.sock",
    ],
)
def test_these_are_this_machine_only(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.test", "notlocalhost", ""]
)
def test_these_may_be_others(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8080", "localhost"),
        ("localhost.:80", "localhost"),
        ("[::1]", "[::1]"),
        ("[::1]:8080", "[::1]"),
        ("[::1", "[::1"),
        (" 127.0.0.1:1 ", "127.0.0.1"),
        ("localhost:evil.test", "localhost:evil.test"),
    ],
)
def test_the_port_of_a_host_header_does_not_matter(header: str, host: str) -> None:
    assert without_port(header) == host


def admits(
    *hosts: str, keyed: bool = False, file: bool = False, **server: Any
) -> list[bool]:
    check = HostCheck(ServerSettings(**server), keyed=keyed)
    return [
        check.admits([(b"host", host.encode()), (b"accept", b"*/*")], file=file)
        for host in hosts
    ]


def test_only_names_of_this_machine_pass_on_a_loopback_address() -> None:
    assert admits("127.0.0.1:8080", "localhost", "[::1]:9", "app.localhost:80") == (
        [True] * 4
    )
    assert admits("evil.test:8080", "10.0.0.1", "evil.sock", "localhost@evil.test") == (
        [False] * 4
    )


def test_names_can_be_allowed() -> None:
    allowed = ("LLM.lan", "box:8080")
    assert admits("llm.lan:9000", "box", "evil.test", allowed_hosts=allowed) == [
        True,
        True,
        False,
    ]
    assert admits("evil.test", allowed_hosts=("*",)) == [True]


def test_nobody_looks_where_a_key_is_asked_for_or_others_are_served() -> None:
    assert admits("evil.test", keyed=True) == [True]
    assert admits("evil.test", host=("0.0.0.0",)) == [True]
    assert admits("evil.test", host=("127.0.0.1", "10.0.0.1")) == [True]
    assert admits("evil.test", host=("127.0.0.1", "/run/x.sock")) == [False]


def test_a_unix_socket_takes_any_name() -> None:
    assert admits("evil.test", file=True, host=("/run/x.sock",)) == [True]


def test_a_request_without_the_header_is_no_browsers() -> None:
    assert HostCheck(ServerSettings(), keyed=False).admits([], file=False)


def test_an_open_address_without_a_key_is_worth_a_warning() -> None:
    problem = open_to_all(ServerSettings(host=("127.0.0.1", "0.0.0.0")))
    assert problem is not None
    assert problem.render() == (
        "server.host: `0.0.0.0` can be reached from other machines and no API key is "
        "set: whoever does may use the model\n"
        "  hint: set a key with `--api-key-file FILE`, or listen on `127.0.0.1`"
    )


@pytest.mark.parametrize(
    "server",
    [
        ServerSettings(),
        ServerSettings(host=("::1", "/run/x.sock")),
        ServerSettings(host=("0.0.0.0",), api_key=("k",)),
        ServerSettings(host=("0.0.0.0",), api_key_file="keys"),
    ],
)
def test_a_closed_server_is_not(server: ServerSettings) -> None:
    assert open_to_all(server) is None
