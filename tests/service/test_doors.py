"""Who gets in when file descriptors run short."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest

from mlxceld.service import doors
from mlxceld.service.doors import Door
from mlxceld.service.httpd import http_server
from tests.service.running import daemon


@pytest.fixture
def door() -> Iterator[Door]:
    with contextlib.closing(Door(socket.AF_INET, socket.SOCK_STREAM)) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        sock.setblocking(False)
        yield sock


@contextlib.contextmanager
def clients(address: tuple[str, int], n: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        made = (socket.create_connection(address, 5) for _ in range(n))
        yield [stack.enter_context(one) for one in made]


def is_refused(client: socket.socket) -> bool:
    """Whether the server has closed the connection."""
    client.settimeout(5)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_beyond_the_last_descriptor_for_them_is_closed(
    door: Door,
) -> None:
    made_room = []
    door.make_room = lambda: made_room.append(1)
    with clients(door.getsockname(), 2) as (first, second):
        # Descriptors are given out from below.
        with contextlib.closing(socket.socket()) as probe:
            door.most = probe.fileno() + 1
        taken, _ = door.accept()
        with contextlib.closing(taken):
            assert taken.getpeername() == first.getsockname()
            with pytest.raises(BlockingIOError):
                door.accept()
        assert is_refused(second)
        assert made_room == [1]


def test_without_any_descriptor_a_connection_is_closed_and_not_offered_for_ever(
    door: Door,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with clients(door.getsockname(), 1) as (client,):
        with contextlib.closing(socket.socket()) as probe:
            none_left = probe.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (none_left, limits[1]))
        try:
            with pytest.raises(BlockingIOError):
                door.accept()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert is_refused(client)
        # And the next one is taken again.
        door.most = 1000
        with clients(door.getsockname(), 1), contextlib.closing(door.accept()[0]):
            pass


def test_a_door_closes_what_it_kept(door: Door) -> None:
    kept = (door.fileno(), door._spare)
    door.close()
    door.close()
    for descriptor in kept:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


@pytest.mark.parametrize(
    ("limits", "widened"),
    [
        ((256, resource.RLIM_INFINITY), (65536, resource.RLIM_INFINITY)),
        ((1024, 4096), (4096, 4096)),
        ((100_000, 200_000), None),
        ((256, 256), None),
    ],
)
def test_the_limit_is_raised_as_far_as_it_may_be(
    limits: tuple[int, int],
    widened: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: said.append(both))
    doors.widen()
    assert said == ([] if widened is None else [widened])


def test_a_system_that_gives_less_than_it_says_is_asked_for_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = []

    def setrlimit(_: int, both: tuple[int, int]) -> None:
        said.append(both[0])
        if both[0] > 10240:
            raise ValueError("invalid argument")

    endless = (256, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: endless)
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    doors.widen()
    assert said == [65536, 10240]


@pytest.mark.parametrize(("soft", "room"), [(40, 30), (256, 224), (65536, 65504)])
def test_thirty_two_descriptors_are_kept_or_a_quarter(
    soft: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert doors.room() == room


def test_idle_connections_do_not_keep_an_engine_from_waking_up() -> None:
    """Forty descriptors and sixty connections: some are refused, nothing else is."""
    with daemon(
        before=("bash", "-c", 'ulimit -n 40; exec "$0" "$@"'),
        engine={"sleep_idle_seconds": 1},
        server={"timeout": 60},
    ) as one:
        url = httpx.URL(one.ready())
        one.wait_for("sleeping")
        with clients((url.host, url.port or 80), 60):
            # Each that is refused ends the one that has been idle longest.
            assert any(_answered(url) for _ in range(20))
        one.process.terminate()
        assert one.ended() == 0
    troubles = [e for e in one.events if e["level"] in ("warning", "error")]
    assert [e["event"] for e in troubles] == ["full"]
    assert "connections are refused: nearly all of the 40 files" in str(troubles)


def _answered(url: httpx.URL) -> bool:
    """Whether a connection of its own gets an answer, or is refused."""
    asked = {"prompt": "hi", "n_predict": 2}
    try:
        reply = httpx.post(url.join("/completion"), json=asked, timeout=30)
    except httpx.TransportError:
        return False
    return reply.status_code == 200


class Transport:
    """One that closes later, as a real one does."""

    def __init__(self) -> None:
        self.aborted = 0

    def is_closing(self) -> bool:
        return self.aborted > 0

    def abort(self) -> None:
        self.aborted += 1


def test_room_is_made_by_who_was_idle_longest_one_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connection(idle: bool, since: float) -> SimpleNamespace:
        return SimpleNamespace(idle=idle, idle_since=since, transport=Transport())

    made = [connection(*one) for one in [(True, 5), (False, 1), (True, 2), (True, 3)]]
    server = http_server(None, 0, None)
    monkeypatch.setattr(server, "_connections", lambda: iter(made))

    def ended() -> list[int]:
        return [one.transport.aborted for one in made]

    async def refuse() -> None:
        server._make_room()
        server._make_room()
        assert ended() == [0, 0, 1, 0]
        for _ in range(4):
            await asyncio.sleep(0)
            server._make_room()

    asyncio.run(refuse())
    assert ended() == [1, 0, 1, 1]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_the_system_lacks_is_said_to_the_event_loop(
    code: int, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits a second then; a socket that hid it would be looked at without end."""

    def accept(_: socket.socket) -> None:
        raise OSError(code, "by chance")

    monkeypatch.setattr(socket.socket, "accept", accept)
    for _ in range(2):
        with pytest.raises(OSError, match="by chance") as caught:
            door.accept()
        assert caught.value.errno == code
    monkeypatch.undo()
    with clients(door.getsockname(), 1), contextlib.closing(door.accept()[0]):
        pass
