from __future__ import annotations

import asyncio
from collections.abc import Callable

from mlxceld.api.watching import INTERVAL, Watching


async def take(watching: Watching, make: Callable[[], bytes | None], n: int) -> int:
    """Follow for `n` updates; returns how many came before the end."""
    got = 0
    updates = watching.follow(make)
    async for update in updates:
        assert update.startswith(b'{"ms":'), update
        got += 1
        if got == n:
            break
    await updates.aclose()
    return got


class Counter:
    """A present that is another one each time."""

    def __init__(self, until: int = 1 << 30) -> None:
        self.asked = 0
        self.until = until

    def __call__(self) -> bytes | None:
        self.asked += 1
        return b"%d" % self.asked if self.asked <= self.until else None


def test_there_are_four_updates_a_second_at_most() -> None:
    assert INTERVAL == 0.25


def test_what_eight_watchers_see_is_made_once() -> None:
    async def run() -> None:
        watching, make = Watching(0.01), Counter()
        got = await asyncio.gather(*(take(watching, make, 5) for _ in range(8)))
        assert got == [5] * 8
        assert make.asked <= 6

    asyncio.run(run())


def test_nothing_is_made_while_nobody_watches() -> None:
    async def run() -> None:
        watching, make = Watching(0.001), Counter()
        await take(watching, make, 3)
        asked = make.asked
        await asyncio.sleep(0.05)
        assert make.asked == asked
        assert watching.watchers == 0

    asyncio.run(run())


def test_whoever_comes_after_the_last_one_has_left_is_served() -> None:
    async def run() -> None:
        watching = Watching(0.001)
        for _ in range(3):
            # Without a pause: the old producer has not ended yet.
            assert await take(watching, Counter(), 2) == 2

    asyncio.run(run())


def test_a_present_that_does_not_change_is_not_sent_again_at_once() -> None:
    async def run() -> None:
        watching = Watching(0.001)
        following = asyncio.create_task(take(watching, lambda: b"0", 2))
        await asyncio.sleep(0.05)
        assert watching.made == 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(run())


def test_a_watcher_that_reads_slowly_misses_updates_and_gets_the_newest() -> None:
    async def run() -> None:
        watching, make = Watching(0.001), Counter()
        updates = watching.follow(make)
        await anext(updates)
        while make.asked < 20:
            await asyncio.sleep(0.001)
        newest = await anext(updates)
        assert int(newest.partition(b'"now":')[2][:-1]) >= 19
        await updates.aclose()

    asyncio.run(run())


def test_all_streams_end_when_there_is_no_more_to_see() -> None:
    async def run() -> None:
        watching, make = Watching(0.01), Counter(until=3)
        got = await asyncio.gather(*(take(watching, make, 99) for _ in range(3)))
        assert got == [3, 3, 3]

    asyncio.run(run())


def test_a_fault_in_making_the_present_ends_the_streams() -> None:
    async def run() -> None:
        def broken() -> bytes:
            raise ZeroDivisionError

        watching = Watching(0.001)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)
        assert await asyncio.wait_for(take(watching, broken, 1), 5) == 0

    asyncio.run(run())


def test_only_the_last_troubles_are_remembered() -> None:
    watching = Watching()
    for status in range(400, 450):
        watching.trouble("/completion", status, "server_error")
    assert [one.status for one in watching.troubles] == list(range(442, 450))
