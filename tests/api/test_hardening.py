"""Requests and clients that mean harm, or just do not go on."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from typing import Any

import httpx
import pytest

from mlxceld.api.http import Exchange
from mlxceld.plan import Wish
from mlxceld.settings import Settings
from tests import fake
from tests.api.serving import SETTINGS, Served, serve

HOST = b"Host: 127.0.0.1\r\n"


def with_server(**changes: Any) -> Settings:
    return replace(SETTINGS, server=replace(SETTINGS.server, **changes))


@contextlib.contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    url = httpx.URL(served.url)
    with socket.socket() as sock:
        # Before it connects, or the system makes room for a whole answer.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.settimeout(10)
        sock.connect((url.host, url.port or 80))
        yield sock


def answer_to(served: Served, request: bytes) -> tuple[int, bytes]:
    """Status and body of the reply to some bytes; the server ends the connection."""
    with connected(served) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(request)
        reply = b""
        while data := sock.recv(65536):
            reply += data
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def error_of(body: bytes) -> dict[str, object]:
    found: dict[str, object] = json.loads(body)["error"]
    return found


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 10])
def test_a_deep_or_endless_array_is_400(served: Served, text: bytes) -> None:
    for body in (text, b'{"prompt": "a", "x": ' + text + b"}"):
        reply = served.http.post("/completion", content=body)
        assert reply.status_code == 400
        assert reply.json()["error"]["type"] == "invalid_request_error"


def test_the_depth_that_is_taken_ends_at_two_hundred(served: Served) -> None:
    def status(depth: int) -> int:
        inner = b"[" * (depth - 1) + b"]" * (depth - 1)
        body = b'{"prompt": "a", "n_predict": 1, "x": ' + inner + b"}"
        return served.http.post("/completion", content=body).status_code

    assert status(200) == 200
    assert status(201) == 400


@pytest.fixture(scope="module")
def strict() -> Iterator[Served]:
    """A server that takes bodies of 1000 bytes, and one name more."""
    settings = with_server(max_body_size=1000, allowed_hosts=("llm.lan",))
    with serve(settings=settings) as running:
        yield running


def test_a_body_above_the_limit_is_413_before_it_is_read(strict: Served) -> None:
    fits = strict.post("/completion", {"prompt": "a" * 900, "n_predict": 1})
    assert fits.status_code == 200
    reply = strict.post("/completion", {"prompt": "a" * 1000})
    assert reply.status_code == 413
    assert reply.json()["error"] == {
        "code": 413,
        "message": "the request body is larger than 1000 bytes",
        "type": "invalid_request_error",
    }
    # Told by its length alone: none of it is sent.
    head = b"POST /completion HTTP/1.1\r\nConnection: close\r\n" + HOST
    status, _ = answer_to(strict, head + b"Content-Length: 99999999\r\n\r\n")
    assert status == 413


def test_a_body_without_a_length_is_cut_at_the_limit(strict: Served) -> None:
    chunks = (b" " * 100 for _ in range(20))
    reply = strict.http.post("/completion", content=chunks)
    assert reply.status_code == 413


def test_large_bodies_are_held_up_to_a_sum_and_small_ones_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mlxceld.api.http.MOST_BODIES", 1_000_000)
    large = {"prompt": "hi", "n_predict": 1, "unknown": "x" * 600_000}
    settings = with_server(max_body_size=650_000)
    with serve(settings=settings) as served, connected(served) as sock:
        head = (
            b"POST /completion HTTP/1.1\r\n" + HOST + b"Content-Length: 650000\r\n\r\n"
        )
        sock.sendall(head + b" " * 600_000)
        served.until(lambda: Exchange.bodies == 600_000)
        with connected(served) as other:
            other.sendall(head + b" " * 600_000)
            served.until(lambda: Exchange.bodies == 1_200_000)
            reply = served.post("/completion", large)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert reply.json()["error"]["message"] == "too many large requests at once"
        small = {"prompt": "hi", "n_predict": 1}
        assert served.post("/completion", small).status_code == 200
        sock.close()
        served.until(lambda: Exchange.bodies == 0)
        assert served.post("/completion", large).status_code == 200
        served.until(lambda: Exchange.bodies == 0)


@pytest.mark.parametrize("n", [100_000, 1_000_000])
def test_headers_without_measure_are_431_in_our_shape(served: Served, n: int) -> None:
    head = b"GET /health HTTP/1.1\r\nConnection: close\r\n" + HOST
    status, body = answer_to(served, head + b"X: " + b"a" * n + b"\r\n\r\n")
    assert status == 431
    assert error_of(body) == {
        "code": 431,
        "message": "the headers of the request are larger than 65536 bytes",
        "type": "invalid_request_error",
    }
    assert served.get("/health").status_code == 200


def test_many_small_headers_are_counted_together(served: Served) -> None:
    headers = {f"x-{i}": "a" * 100 for i in range(700)}
    reply = served.http.get("/health", headers=headers)
    assert reply.status_code == 431


@pytest.mark.parametrize(
    "request_text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
        b"POST /completion HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        b"POST /completion HTTP/1.1\r\n"
        + HOST
        + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    ],
)
def test_what_is_no_request_is_400_in_our_shape(
    served: Served, request_text: bytes
) -> None:
    status, body = answer_to(served, request_text)
    assert status == 400
    assert error_of(body)["type"] == "invalid_request_error"
    assert served.get("/health").status_code == 200


def test_a_foreign_host_is_403_and_our_names_pass(served: Served) -> None:
    for host in ("localhost", "localhost:1", "127.0.0.1:99", "[::1]", "[::1]:8080"):
        assert served.get("/v1/models", headers={"host": host}).status_code == 200
    reply = served.get("/v1/models", headers={"host": "evil.test:8080"})
    assert reply.status_code == 403
    assert reply.json()["error"]["type"] == "permission_error"
    assert served.get("/health", headers={"host": "evil.test"}).status_code == 403


def test_a_host_is_allowed_by_name_or_by_a_key(strict: Served) -> None:
    assert strict.get("/props", headers={"host": "llm.lan:80"}).status_code == 200
    assert strict.get("/props", headers={"host": "evil.test"}).status_code == 403
    with serve(settings=with_server(api_key=("k",))) as served:
        headers = {"host": "evil.test", "authorization": "Bearer k"}
        assert served.get("/props", headers=headers).status_code == 200


def test_origins_are_echoed_and_never_a_star_with_credentials(served: Served) -> None:
    headers = {"origin": "https://page.example"}
    for reply in (
        served.http.options("/completion", headers=headers),
        served.http.options("/completion"),
        served.get("/health", headers=headers),
    ):
        assert reply.headers.get("access-control-allow-origin") != "*"


ENDLESS = Wish(mode="llama-compat", ctx_size=200_000, parallel=2)
FAST = fake.Script(n_train=200_000)


def begin_stream(sock: socket.socket, n: int) -> None:
    """Ask for a long stream and take nothing of it but its status."""
    asked = {"prompt": "go", "n_predict": n, "stream": True, "timings_per_token": True}
    body = json.dumps(asked).encode()
    sock.sendall(
        b"POST /completion HTTP/1.1\r\n"
        + HOST
        + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    assert sock.recv(12) == b"HTTP/1.1 200"


def test_a_reader_that_stalls_is_disconnected_and_stalls_nobody() -> None:
    with (
        serve(FAST, wish=ENDLESS, settings=with_server(timeout=1)) as served,
        connected(served) as sock,
    ):
        begin_stream(sock, 90_000)
        began = time.monotonic()
        other = served.post("/completion", {"prompt": "hi", "n_predict": 50})
        assert other.json()["tokens_predicted"] == 50
        assert time.monotonic() - began < 5
        served.until(served.idle, 20)


def test_a_reader_that_lags_too_far_behind_loses_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mlxceld.api.flow.MAX_UNREAD", 500)
    with (
        serve(FAST, wish=ENDLESS, settings=with_server(timeout=0)) as served,
        connected(served) as sock,
    ):
        begin_stream(sock, 90_000)
        served.until(served.idle, 20)
        text = b""
        while not text.endswith(b"0\r\n\r\n"):
            data = sock.recv(65536)
            assert data, text[-300:]
            text += data
        # What was generated until then is not lost.
        assert text.count(b'"stop":false') > 500
        assert b'"code":408,"message":"the answer was read too slowly"' in text


@pytest.fixture(scope="module")
def impatient() -> Iterator[Served]:
    """A server that waits one second for a client; a token takes 50 ms."""
    slow = fake.Script(step_seconds=0.05)
    with serve(slow, settings=with_server(timeout=1)) as running:
        yield running


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /health HTT",
        b"POST /completion HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\n{",
    ],
)
def test_a_request_that_stops_half_way_is_ended(
    impatient: Served, begun: bytes
) -> None:
    with connected(impatient) as sock:
        sock.sendall(begun)
        began = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
        assert 0.5 < time.monotonic() - began < 8
        assert impatient.get("/health").status_code == 200


def test_an_answer_that_takes_longer_than_the_patience_is_no_stall(
    impatient: Served,
) -> None:
    asked = {"prompt": "hi", "n_predict": 30}
    reply = impatient.post("/completion", asked)
    assert reply.json()["tokens_predicted"] == 30
    assert len(impatient.events("/completion", asked)) == 31


def test_arguments_of_calls_that_are_nested_without_end_are_400(served: Served) -> None:
    deep = "[" * 100_000
    call = {"type": "function", "function": {"name": "f", "arguments": deep}}
    talk = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "user", "content": ""},
    ]
    items = [
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": deep},
        {"role": "user", "content": "a"},
    ]
    for path, body in (
        ("/v1/chat/completions", {"messages": talk}),
        ("/apply-template", {"messages": talk}),
        ("/v1/responses", {"input": items}),
    ):
        reply = served.post(path, body)
        assert reply.status_code == 400
        assert "too deeply" in reply.json()["error"]["message"]


@pytest.mark.parametrize("name", ["chat.chat_prompt", "prompt.read_prompts"])
def test_a_large_body_is_read_beside_the_streams_of_others(
    served: Served, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    whole = import_module(f"mlxceld.api.{name.split('.')[0]}")
    read = getattr(whole, name.split(".")[1])
    begun, go_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(10)
        return read(*given)

    monkeypatch.setattr(f"mlxceld.api.{name}", slow)
    text = "a" * 300_000
    talk = [{"role": "user", "content": text}]
    chats = name.startswith("chat")
    path = "/v1/chat/completions" if chats else "/completion"
    body = {"messages": talk, "prompt": text, "n_predict": 1}
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(served.post, path, body)
        assert begun.wait(10)
        try:
            assert served.get("/health").status_code == 200
        finally:
            go_on.set()
        assert reply.result().status_code == 200


@pytest.mark.parametrize(
    "target",
    [
        b"/%70rops",
        b"//props",
        b"/./props",
        b"/health/../props",
        b"/props;/health",
        b"/props?/health",
        b"/health%00",
        b"/health%2f..%2fprops",
        b"http://127.0.0.1/props",
        b"/slots/0?action=erase",
    ],
)
def test_no_spelling_of_a_path_gets_past_the_key(closed: Served, target: bytes) -> None:
    upgrade = b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    for more in (b"", upgrade, b"Authorization: Bearer \xff\r\n", _TWO):
        head = b"GET " + target + b" HTTP/1.1\r\nConnection: close\r\n" + HOST
        status, body = answer_to(closed, head + more + b"\r\n")
        assert status == 401
        assert error_of(body)["type"] == "authentication_error"


_TWO = b"Authorization: Bearer k\r\nAuthorization: Bearer wrong\r\n"


@pytest.fixture(scope="module")
def closed() -> Iterator[Served]:
    with serve(settings=with_server(api_key=("k",))) as running:
        yield running


def test_a_request_cannot_hide_another_in_its_body(served: Served) -> None:
    """With both a length and chunks the chunks count; what follows is no request."""
    hidden = b"GET /props HTTP/1.1\r\n\r\n"
    head = b"POST /tokenize HTTP/1.1\r\n" + HOST
    both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    status, rest = answer_to(served, head + both + hidden)
    assert status == 400
    assert b"total_slots" not in rest
    for coding in (b"gzip, chunked", b"chunked, identity"):
        odd = head + b"Transfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n"
        assert answer_to(served, odd)[0] == 400
