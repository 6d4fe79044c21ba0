"""Fifty clients that hang up leave no slot, no token and no task behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from mlxceld.plan import Wish
from tests import fake
from tests.api.serving import Served, serve
from tests.api.test_flow import Raw


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """Four slots that share 4096 tokens; a token takes 5 ms, a prompt 1 ms a token."""
    script = fake.Script(step_seconds=0.005, prefill_seconds=0.001)
    wish = Wish(mode="llama-compat", ctx_size=4096, parallel=4, kv_unified=True)
    with serve(script, wish=wish) as running:
        yield running


def tasks(served: Served) -> int:
    """Tasks of the event loop that have not ended, the one that counts apart."""

    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return asyncio.run_coroutine_threadsafe(count(), served.loop).result(5)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions"])
def test_fifty_aborts_leave_nothing_behind(
    shared: Served, path: str, stream: bool
) -> None:
    shared.post("/completion", {"prompt": "a b", "n_predict": 1})
    # The connection of the status calls stays open and is part of the baseline.
    shared.until(shared.idle)
    before = tasks(shared)
    for number in range(50):
        # Some are still read, some are answered, and from the fifth on they queue.
        words = f"w{number} " * (150 if number % 3 else 2)
        body = {"stream": stream, "cache_prompt": bool(number % 2)}
        if path == "/completion":
            request = Raw(shared, path, {**body, "prompt": words})
        else:
            messages = [{"role": "user", "content": words}]
            request = Raw(shared, path, {**body, "messages": messages})
        time.sleep(0.01 * (number % 4))
        request.hang_up()
    shared.until(shared.idle, 2.0)
    props = shared.get("/props").json()
    assert props["n_live_tokens"] == 0
    assert shared.client.running == 0
    shared.until(lambda: tasks(shared) <= before, 2.0)
    reply = shared.post("/completion", {"prompt": "a b", "n_predict": 2})
    assert reply.json()["content"] == "x x "
