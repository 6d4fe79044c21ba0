"""Clients that stop half-way, or send more than anybody reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import uvicorn
from litestar.types import Receive, Scope, Send
from uvicorn.server import ServerState

from mlxceld.engine.care import Care
from mlxceld.service import connections
from mlxceld.settings import Settings
from tests import fake
from tests.api.serving import SETTINGS, Served, serve

HOST = b"Host: 127.0.0.1\r\n"


def patient(seconds: Any) -> Settings:
    """Settings of a server that waits so long for a client; others take whole ones."""
    return replace(SETTINGS, server=replace(SETTINGS.server, timeout=seconds))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(fake.Script(step_seconds=0.01), settings=patient(0.5)) as running:
        yield running


@contextlib.contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    url = httpx.URL(served.url)
    with socket.create_connection((url.host, url.port or 80), timeout=10) as sock:
        yield sock


def rest(sock: socket.socket) -> bytes:
    """What comes until the connection ends."""
    found = b""
    while data := sock.recv(65536):
        found += data
    return found


def post(path: str, n: int, more: bytes = b"") -> bytes:
    """The head of a request whose body has `n` bytes."""
    start = b"POST %s HTTP/1.1\r\n" % path.encode()
    return start + HOST + more + b"Content-Length: %d\r\n\r\n" % n


@pytest.mark.parametrize("path", ["/nope", "/completion", "/health"])
def test_a_chunk_that_is_none_is_one_400_and_no_fault_of_ours(
    served: Served, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(served) as sock:
        head = b"POST %s HTTP/1.1\r\n" % path.encode() + HOST
        sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n")
        reply = rest(sock)
    assert reply.count(b"HTTP/1.1 ") == 1
    assert reply.startswith(b"HTTP/1.1 400 ")
    served.get("/health")
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "begun", [post("/completion", 100) + b'{"pro', post("/completion", 100)]
)
def test_a_second_request_that_stops_half_way_is_ended_too(
    served: Served, begun: bytes
) -> None:
    with connected(served) as sock:
        began = time.monotonic()
        sock.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n" + begun)
        reply = b""
        with contextlib.suppress(ConnectionResetError):
            reply = rest(sock)
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert 0.3 < time.monotonic() - began < 4


@pytest.mark.parametrize("more", [b"Connection: close\r\n", b""])
def test_whoever_is_refused_may_finish_sending(served: Served, more: bytes) -> None:
    n = 8_000_000
    with connected(served) as sock:
        sock.sendall(post("/nope", n, more) + b" " * (n // 2))
        # Long enough for the reply, and for a connection that was closed to be reset.
        time.sleep(0.2)
        sock.sendall(b" " * (n // 2))
        assert sock.recv(12) == b"HTTP/1.1 404"


def test_whoever_never_finishes_sending_is_left_after_a_while(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER", 0.2)
    monkeypatch.setattr(connections, "_LONGEST", 0.5)
    with connected(served) as sock:
        sock.sendall(post("/nope", 8_000_000, b"Connection: close\r\n"))
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 5:
                sock.sendall(b" ")
                time.sleep(0.02)
    assert 0.4 < time.monotonic() - began < 2


def test_a_client_that_has_to_wait_for_us_does_not_stall() -> None:
    """A large body is not read on before the model is awake."""
    # Shorter than it takes to start an engine.
    with serve(settings=patient(0.2), care=Care(sleep_after=0.1)) as served:
        served.until(lambda: served.client.state == "sleeping")
        asked = {"prompt": "hi", "n_predict": 2, "unknown": "x" * 1_000_000}
        body = json.dumps(asked).encode()
        with connected(served) as sock:

            def send() -> None:
                with contextlib.suppress(OSError):
                    sock.sendall(post("/completion", len(body)) + body)

            sending = threading.Thread(target=send)
            sending.start()
            assert sock.recv(12) == b"HTTP/1.1 200"
            sending.join(5)


class Pipe(asyncio.Transport):
    """A transport to nobody; whether it would read is all that is known of it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.reads = True
        self.written = b""

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return False


def opened(app: Any, pipe: Pipe, patience: float = 0) -> connections.Connection:
    """A connection over `pipe` to an ASGI application."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    kind = connections.connections(patience)
    one = kind(config=config, server_state=ServerState(), app_state={})
    one.connection_made(pipe)
    return one


def test_a_body_in_thousands_of_chunks_is_taken_in_turns_with_others() -> None:
    bodies: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message: Any = await receive()
            body, more = body + message["body"], message["more_body"]
        bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def test() -> None:
        pipe = Pipe()
        one = opened(app, pipe)
        head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
        chunks = b"".join(b"1\r\n%d\r\n" % (n % 10) for n in range(5000))
        second = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
        one.data_received(head + chunks + b"0\r\n\r\n" + second)
        # The others may have their turn, and nothing more is read meanwhile.
        assert len(one.cycle.body) < 200
        assert not pipe.reads
        turns = 0
        while len(bodies) < 2:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 40
        assert bodies == [b"0123456789" * 500, b""]
        await asyncio.sleep(0)
        assert pipe.reads
        assert pipe.written.count(b"HTTP/1.1 200") == 2

    asyncio.run(test())


class Stuck(Pipe):
    """One whose client takes nothing: closing it waits for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = self.aborted = False

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


@pytest.mark.parametrize("sent", [10, 70_000])
def test_whoever_does_not_take_a_refusal_is_cut_however_much_it_sent(
    sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER", 0.05)

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def test() -> None:
        pipe = Stuck()
        one = opened(refuse, pipe, patience=0.05)
        one.data_received(post("/", 100_000, b"Connection: close\r\n") + b" " * sent)
        for _ in range(100):
            await asyncio.sleep(0.02)
            if pipe.aborted:
                break
        assert pipe.aborted
        one.connection_lost(None)

    asyncio.run(test())
