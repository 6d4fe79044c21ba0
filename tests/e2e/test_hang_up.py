"""A client that leaves takes its work along, from the prompt, the answer, the queue."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server, until

LONG, SHORT = "w " * 3000, "a b"
"""Three seconds of reading, and a prompt that is answered for minutes."""


class Client:
    """A request on a bare socket."""

    def __init__(self, server: Server, path: str, body: dict[str, Any]) -> None:
        url = httpx.URL(server.url)
        assert url.port is not None
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {url.host}\r\n"
        head += f"Content-Length: {len(data)}\r\n\r\n"
        self.socket = socket.create_connection((url.host, url.port), 10)
        self.socket.sendall(head.encode() + data)

    def hang_up(self) -> None:
        """Reset the connection, as the end of a process does with unread data."""
        linger = struct.pack("ii", 1, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.socket.close()


def asked(path: str, words: str, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"stream": stream, "cache_prompt": False}
    if path == "/v1/chat/completions":
        return {**body, "messages": [{"role": "user", "content": words}]}
    return {**body, "prompt": words}


def reading(slow: Server) -> bool:
    (slot,) = slow.slots()
    return bool(slot["is_processing"] and slot["n_prompt_tokens_processed"] > 0)


def writing(slow: Server) -> bool:
    (slot,) = slow.slots()
    return bool(slot["is_processing"] and slot["next_token"][0]["n_decoded"] > 2)


def work(slow: Server) -> tuple[float, float]:
    """Steps and prompt tokens so far."""
    return (
        slow.metric("llamacpp:n_decode_total"),
        slow.metric("llamacpp:prompt_tokens_total"),
    )


@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("words", "reached"), [(LONG, reading), (SHORT, writing)], ids=["prompt", "answer"]
)
def test_the_slot_is_free_within_a_second_and_the_engine_rests(
    slow: Server,
    path: str,
    stream: bool,
    words: str,
    reached: Callable[[Server], bool],
) -> None:
    until(lambda: slow.busy() == 0)
    client = Client(slow, path, asked(path, words, stream))
    until(lambda: reached(slow))
    client.hang_up()
    until(lambda: slow.busy() == 0, 1.0)
    assert slow.get("/props")["n_live_tokens"] == 0
    done = work(slow)
    time.sleep(0.3)
    assert work(slow) == done


@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_who_leaves_the_queue_is_never_read(
    slow: Server, path: str, stream: bool
) -> None:
    until(lambda: slow.busy() == 0)
    first = Client(slow, "/completion", asked("/completion", SHORT, True))
    until(lambda: writing(slow))
    read = slow.metric("llamacpp:prompt_tokens_total")
    second = Client(slow, path, asked(path, LONG, stream))
    until(lambda: slow.metric("llamacpp:requests_deferred") == 1)
    second.hang_up()
    until(lambda: slow.metric("llamacpp:requests_deferred") == 0, 1.0)
    first.hang_up()
    until(lambda: slow.busy() == 0, 1.0)
    assert slow.metric("llamacpp:prompt_tokens_total") == read


def test_the_daemon_lives_on_without_a_word_of_it(slow: Server) -> None:
    answer = slow.answer("/completion", {"prompt": "a b", "n_predict": 2})
    assert answer["content"] == "x x "
    assert slow.process.poll() is None
    assert not [e for e in slow.events if e["level"] in ("warning", "error")]
    assert not any("Traceback" in line for line in slow.other)
