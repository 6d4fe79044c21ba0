"""The engine's end of the socket: nobody waits for a front that is busy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from mlxceld.engine import link as link_module
from mlxceld.engine import messages as m
from mlxceld.engine.link import Link


@pytest.fixture
def ends() -> Iterator[tuple[Link, socket.socket]]:
    """A link, and the front's socket."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    with ours, theirs:
        yield Link(ours), theirs


def delta(number: int) -> m.Delta:
    return m.Delta(number, "word " * 20, [number], 1)


def received(front: socket.socket, n: int) -> list[int]:
    """The ids of the next `n` messages."""
    stream = front.makefile("rb")
    found: list[int] = []
    while len(found) < n:
        body = stream.read(m.length(stream.read(m.HEADER)))
        found += [message.id for message in m.read_up(body)]  # type: ignore[union-attr]
    return found


def test_a_front_that_does_not_read_holds_nobody_up(
    ends: tuple[Link, socket.socket],
) -> None:
    link, front = ends
    # More than a socket takes; a send that waits would never come back.
    for number in range(6000):
        link.send([delta(number)])
    assert received(front, 6000) == list(range(6000))


def test_messages_of_several_threads_stay_whole(
    ends: tuple[Link, socket.socket],
) -> None:
    link, front = ends

    def send(first: int) -> None:
        for number in range(first, first + 2000):
            link.send([delta(number)])

    threads = [threading.Thread(target=send, args=(2000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    found = received(front, 8000)
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(8000))
    # Each thread's own are in order.
    for i in range(4):
        own = [number for number in found if number // 2000 == i]
        assert own == sorted(own)


def test_after_what_piled_up_the_socket_is_used_directly_again(
    ends: tuple[Link, socket.socket],
) -> None:
    link, front = ends
    for number in range(5000):
        link.send([delta(number)])
    received(front, 5000)
    for thread in threading.enumerate():
        if thread.name == "sender":
            thread.join(10)
    link.send([delta(7)])
    assert not any(thread.name == "sender" for thread in threading.enumerate())
    assert received(front, 1) == [7]


def test_what_piles_up_is_bounded(
    ends: tuple[Link, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "MOST_UNSENT", 10_000)
    link, front = ends
    sent = 0
    over = threading.Event()

    def send() -> None:
        nonlocal sent
        for number in range(20_000):
            link.send([delta(number)])
            sent += 1
        over.set()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    assert not over.wait(0.3)
    assert sent < 10_000
    assert received(front, 20_000) == list(range(20_000))
    assert over.wait(10)
