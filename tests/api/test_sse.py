"""Events that come together are written together, and none is lost or late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mlxceld.api.http import Exchange
from mlxceld.api.record import Watcher
from mlxceld.api.sse import MOST_HELD, EventStream
from mlxceld.engine import messages as m
from tests.api.serving import Served, parse_events


class Line:
    """An exchange whose messages are kept."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        scope: Any = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [],
            "query_string": b"",
        }
        self.exchange = Exchange(scope, self._receive, self._send)
        self.stream = EventStream(self.exchange)

    async def _receive(self) -> Any:
        raise AssertionError("nothing is read")

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if "body" in message]


def test_the_status_goes_out_with_the_first_event_and_the_event_with_the_flush() -> (
    None
):
    async def test() -> None:
        line = Line()
        await line.stream.send({"a": 1})
        assert [message["type"] for message in line.sent] == ["http.response.start"]
        await line.stream.send({"b": 2}, "named")
        await line.stream.flush()
        assert line.bodies == [b'data: {"a":1}\n\nevent: named\ndata: {"b":2}\n\n']
        await line.stream.flush()
        assert len(line.bodies) == 1

    asyncio.run(test())


def test_what_is_held_goes_before_a_ping_and_before_the_end() -> None:
    async def test() -> None:
        line = Line()
        await line.stream.send(1)
        await line.stream.ping()
        await line.stream.send(2)
        await line.stream.end(b"last")
        assert line.bodies == [b"data: 1\n\n:\n\n", b"data: 2\n\nlast"]
        assert line.sent[-1]["more_body"] is False

    asyncio.run(test())


def test_much_is_not_held_back() -> None:
    async def test() -> None:
        line = Line()
        event = b"x" * (MOST_HELD // 4)
        for _ in range(4):
            await line.stream.put(event)
        assert line.bodies == []
        await line.stream.put(event)
        assert line.bodies == [event * 5]

    asyncio.run(test())


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_of_ours_ends_its_own_request_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """It happens where the messages of all requests are read."""

    def take(watcher: Watcher, event: object, now: float) -> None:
        if isinstance(event, m.Delta) and event.n_decoded == 3:
            raise ValueError("a fault")

    with monkeypatch.context() as patched:
        patched.setattr(Watcher, "take", take)
        asked = {"prompt": "a b", "n_predict": 200, "stream": stream}
        reply = served.post("/completion", asked)
    if stream:
        events = parse_events(reply.text)
        assert [event.get("tokens_predicted") for event in events] == [1, 2, None]
        error = events[-1]["error"]
    else:
        assert reply.status_code == 500
        error = reply.json()["error"]
    assert error["type"] == "server_error"
    served.until(served.idle)
    assert served.post("/completion", {**asked, "stream": False}).status_code == 200
