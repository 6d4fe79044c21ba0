"""Threads beside the event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable

import pytest

from mlxceld.service.helpers import Helpers
from tests.service.running import ROOT


def run(work: Awaitable[object]) -> None:
    async def test() -> None:
        asyncio.get_running_loop().set_default_executor(Helpers(2))
        await work

    asyncio.run(test())


def test_results_and_exceptions_come_back() -> None:
    async def test() -> None:
        assert await asyncio.to_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 7, 0)

    run(test())


def test_two_work_at_once_and_the_third_waits_its_turn() -> None:
    begun = [threading.Event() for _ in range(3)]
    go_on = threading.Event()

    def work(number: int) -> None:
        begun[number].set()
        go_on.wait(10)

    async def test() -> None:
        jobs = [asyncio.create_task(asyncio.to_thread(work, i)) for i in range(3)]
        while sum(event.is_set() for event in begun) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert sum(event.is_set() for event in begun) == 2
        go_on.set()
        await asyncio.gather(*jobs)
        assert all(event.is_set() for event in begun)

    run(test())


STUCK = """
import asyncio, time
from mlxceld.service.helpers import Helpers

async def main():
    asyncio.get_running_loop().set_default_executor(Helpers())
    stuck = asyncio.create_task(asyncio.to_thread(time.sleep, 600))
    await asyncio.sleep(0.1)

asyncio.run(main())
"""


def test_a_thread_that_does_not_end_does_not_hold_up_the_process() -> None:
    subprocess.run([sys.executable, "-c", STUCK], cwd=ROOT, timeout=20, check=True)
