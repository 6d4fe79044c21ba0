"""Failures, hang-ups and full queues: a request never outlives its client."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from mlxceld.plan import Wish
from tests import fake
from tests.api.serving import Served, parse_events, serve

CHAT = "/v1/chat/completions"


def chat(words: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": words}], **more}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ["/completion", "/v1/completions", CHAT])
def test_a_failure_before_the_first_token_is_a_real_status(
    served: Served, route: str, stream: bool
) -> None:
    asked = chat("boom now") if route == CHAT else {"prompt": "boom now"}
    reply = served.post(route, {**asked, "stream": stream})
    assert reply.status_code == 500
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    error = reply.json()["error"]
    assert (error["code"], error["type"]) == (500, "server_error")
    served.until(served.idle)


@pytest.mark.parametrize("route", ["/completion", "/v1/completions", CHAT])
def test_a_failure_half_way_is_one_error_event_and_the_end(
    served: Served, route: str
) -> None:
    before = _metric(served, "mlxcel_requests_failed_total")
    asked = chat("later now") if route == CHAT else {"prompt": "later now"}
    reply = served.post(route, {**asked, "stream": True, "n_predict": 50})
    assert reply.status_code == 200
    events = parse_events(reply.text)
    assert len(events) >= 3
    assert list(events[-1]) == ["error"]
    assert events[-1]["error"]["code"] == 500
    assert not any("error" in event for event in events[:-1])
    served.until(served.idle)
    served.until(lambda: _metric(served, "mlxcel_requests_failed_total") == before + 1)


def test_a_failure_half_way_without_a_stream_is_a_real_status(served: Served) -> None:
    reply = served.post("/completion", {"prompt": "later now", "n_predict": 50})
    assert reply.status_code == 500
    assert (
        served.post("/completion", {"prompt": "a", "n_predict": 1}).status_code == 200
    )


def _metric(served: Served, name: str) -> float:
    for line in served.get("/metrics").text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(name)


@pytest.fixture(scope="module")
def single() -> Iterator[Served]:
    """One slow slot of 4096 tokens and room for one more request."""
    script = fake.Script(step_seconds=0.02, prefill_seconds=0.0004)
    wish = Wish(mode="llama-compat", ctx_size=4096, parallel=1)
    with serve(script, wish=wish, queue_size=1) as running:
        yield running


class Raw:
    """A request over a bare socket, to be hung up on."""

    def __init__(self, served: Served, path: str, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        url = httpx.URL(served.url)
        assert url.port is not None
        self.socket = socket.create_connection((url.host, url.port), 10)
        head = f"POST {path} HTTP/1.1\r\nHost: {url.host}\r\n"
        head += f"Content-Length: {len(data)}\r\n\r\n"
        self.socket.sendall(head.encode() + data)

    def read(self) -> bytes:
        return self.socket.recv(65536)

    def hang_up(self) -> None:
        self.socket.close()


def _waiting(served: Served) -> float:
    return _metric(served, "llamacpp:requests_deferred")


def _busy(served: Served) -> bool:
    return any(slot["is_processing"] for slot in served.slots())


def _decoding(served: Served) -> bool:
    slot = served.slots()[0]
    return slot["is_processing"] and slot["next_token"][0]["n_decoded"] > 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("words", "reached"),
    [("a b", _decoding), ("w " * 4000, _busy)],
    ids=["decode", "prefill"],
)
def test_a_hang_up_stops_the_engines_work(
    single: Served, stream: bool, words: str, reached: Callable[[Served], bool]
) -> None:
    single.until(single.idle)
    asked = {"prompt": words, "stream": stream, "cache_prompt": False}
    request = Raw(single, "/completion", asked)
    single.until(lambda: reached(single))
    request.hang_up()
    # To its end the first would take a minute, the second three seconds and a half.
    single.until(single.idle, 2.0)
    assert single.client.running == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_hang_up_in_the_queue_frees_the_place(single: Served, stream: bool) -> None:
    single.until(single.idle)
    first = Raw(single, "/completion", {"prompt": "a b", "stream": True})
    single.until(lambda: _busy(single))
    second = Raw(single, CHAT, chat("c d", stream=stream))
    single.until(lambda: _waiting(single) == 1)
    second.hang_up()
    single.until(lambda: _waiting(single) == 0)
    first.hang_up()
    single.until(single.idle)


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_503_with_the_time_to_come_again(
    single: Served, stream: bool
) -> None:
    single.until(single.idle)
    first = Raw(single, "/completion", {"prompt": "a b"})
    single.until(lambda: _busy(single))
    second = Raw(single, "/completion", {"prompt": "a b"})
    single.until(lambda: _waiting(single) == 1)
    reply = single.post("/completion", {"prompt": "a b", "stream": stream})
    assert reply.status_code == 503
    assert reply.json()["error"]["type"] == "unavailable_error"
    assert int(reply.headers["retry-after"]) >= 1
    first.hang_up()
    second.hang_up()
    single.until(single.idle)


def test_status_answers_at_once_during_a_long_prompt(single: Served) -> None:
    """The slot is busy from the beginning, and its counters only grow."""
    single.until(single.idle)
    request = Raw(
        single,
        "/completion",
        {"prompt": "w " * 3000, "n_predict": 3, "cache_prompt": False},
    )
    single.until(lambda: _busy(single), 1.0)
    queued = Raw(single, "/completion", {"prompt": "a b", "n_predict": 1})
    seen: list[tuple[int, int]] = []
    took: list[float] = []

    def timed(path: str) -> httpx.Response:
        began = time.monotonic()
        reply = single.get(path)
        took.append(time.monotonic() - began)
        return reply

    while True:
        (slot,) = timed("/slots").json()
        assert timed("/health").json() == {"status": "ok"}
        assert timed("/metrics").status_code == 200
        if slot["n_prompt_tokens"] != 3000:
            break
        assert slot["is_processing"] is True
        seen.append(
            (slot["n_prompt_tokens_processed"], slot["next_token"][0]["n_decoded"])
        )
        time.sleep(0.05)
    # One in ten may be late: the machine may be busy with other things.
    assert sorted(took)[len(took) * 9 // 10] < 0.2
    assert seen == sorted(seen)
    # 256 tokens a chunk: the whole is seen in several steps.
    assert len({processed for processed, _ in seen}) > 2
    single.until(single.idle)
    assert b"200 OK" in request.read()
    assert b"200 OK" in queued.read()


def test_four_streams_overlap(served: Served) -> None:
    firsts: list[float] = []
    ends: list[float] = []
    most = 0

    def stream(index: int) -> None:
        asked = chat(f"word{index} more", stream=True, max_tokens=300)
        with httpx.stream("POST", served.url + CHAT, json=asked, timeout=30) as reply:
            assert reply.status_code == 200
            lines = reply.iter_lines()
            next(lines)
            firsts.append(time.monotonic())
            for _ in lines:
                pass
            ends.append(time.monotonic())

    threads = [threading.Thread(target=stream, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most = max(most, sum(slot["is_processing"] for slot in served.slots()))
        time.sleep(0.01)
    assert len(ends) == 4
    assert most == 4
    assert max(firsts) < min(ends)


def test_comments_keep_a_silent_stream_open() -> None:
    script = fake.Script(step_seconds=1.3)
    with serve(script) as slow:
        asked = {
            "prompt": "a b",
            "n_predict": 2,
            "stream": True,
            "sse_ping_interval": 1,
        }
        text = slow.post("/completion", asked).text
    # The first token takes 1.3 s: a comment comes before it, and one between the two.
    frames = [frame[:6] for frame in text.split("\n\n") if frame]
    assert frames == [":", "data: ", ":", "data: ", "data: "]


def test_a_crash_of_the_engine_is_an_error_and_not_the_end() -> None:
    with serve(fake.Script(crash="die", step_seconds=0.02)) as running:
        other = Raw(running, "/completion", {"prompt": "a b", "stream": True})
        assert b"200 OK" in other.read()
        reply = running.post("/completion", {"prompt": "die now"})
        assert reply.status_code == 500
        assert reply.json()["error"]["type"] == "server_error"
        tail = b""
        while not tail.endswith(b"0\r\n\r\n"):
            tail += other.read()
        assert tail.count(b'data: {"error"') == 1
        assert running.get("/health").status_code == 503
        running.until(lambda: running.get("/health").status_code == 200, 15)
        body = {"prompt": "a b", "n_predict": 1}
        assert running.post("/completion", body).status_code == 200
