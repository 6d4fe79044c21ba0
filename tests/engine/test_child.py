"""The front's end of the socket: frames in any pieces become messages in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from mlxceld.engine import messages as m
from mlxceld.engine.child import Wire


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 10))


def feed(wire: Wire, data: bytes) -> None:
    """Give it bytes as a transport does."""
    view = memoryview(wire.get_buffer(-1))
    while data:
        part, data = data[: len(view)], data[len(view) :]
        view[: len(part)] = part
        wire.buffer_updated(len(part))


def deltas(*ids: int) -> list[m.Up]:
    return [m.Delta(number, "text", [number], 1) for number in ids]


def test_several_frames_of_one_read_come_together() -> None:
    async def test() -> None:
        wire = Wire()
        feed(wire, m.frame(deltas(1, 2)) + m.frame(deltas(3)))
        assert await wire.receive() == deltas(1, 2, 3)

    run(test)


def test_frames_may_be_cut_anywhere() -> None:
    async def test() -> None:
        wire = Wire()
        data = m.frame(deltas(1)) + m.frame(deltas(2)) + m.frame(deltas(3))
        found: list[m.Up] = []
        for byte in data:
            feed(wire, bytes([byte]))
        while len(found) < 3:
            found += await wire.receive() or []
        assert found == deltas(1, 2, 3)

    run(test)


def test_a_frame_may_be_larger_than_the_buffer() -> None:
    async def test() -> None:
        wire = Wire()
        large = m.Tokenized(1, list(range(200_000)), [])
        feed(wire, m.frame([large]) + m.frame(deltas(2)))
        assert await wire.receive() == [large, *deltas(2)]

    run(test)


def test_whoever_waits_is_woken_by_a_message() -> None:
    async def test() -> None:
        wire = Wire()
        waiting = asyncio.create_task(wire.receive())
        await asyncio.sleep(0)
        data = m.frame(deltas(1))
        feed(wire, data[:-1])
        await asyncio.sleep(0)
        assert not waiting.done()
        feed(wire, data[-1:])
        assert await waiting == deltas(1)

    run(test)


def test_what_came_before_the_end_counts() -> None:
    async def test() -> None:
        wire = Wire()
        feed(wire, m.frame(deltas(1)))
        wire.eof_received()
        assert await wire.receive() == deltas(1)
        assert await wire.receive() is None
        assert not wire.raves

    run(test)


def test_what_came_before_the_noise_counts() -> None:
    async def test() -> None:
        wire = Wire()
        feed(wire, m.frame(deltas(1)) + b"\xff" * 20)
        assert await wire.receive() == deltas(1)
        assert await wire.receive() is None
        assert wire.raves

    run(test)
