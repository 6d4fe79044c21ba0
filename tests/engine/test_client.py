"""The front's side: an engine that loads, answers, crashes and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mlxceld.engine import client as client_module
from mlxceld.engine import messages as m
from mlxceld.engine.care import Care
from mlxceld.engine.client import (
    EngineClient,
    EngineError,
    Generation,
    LoadError,
    Unavailable,
)
from mlxceld.plan import Wish
from tests.engine.processes import ROOT, gone, until
from tests.fake import Script, command

LOAD = m.Load(m.ModelSource("toy"), Wish("llama-compat", 1024, 2))


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(bounded())


@asynccontextmanager
async def engine(
    script: Script | None = None,
    *,
    load: m.Load = LOAD,
    program: list[str] | None = None,
    ready: bool = True,
    states: list[str] | None = None,
    care: Care | None = None,
) -> AsyncIterator[EngineClient]:
    """A started client; `states` gets its state at every change it tells."""

    def changed() -> None:
        if states is not None and states[-1:] != [client.state]:
            states.append(client.state)

    client = EngineClient(
        load, program or command(script), care=care, on_change=changed
    )
    await client.start()
    try:
        if ready:
            await client.wait_ready()
        yield client
    finally:
        await client.stop()


async def becomes(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        await asyncio.sleep(0.01)


def ask(client: EngineClient, prompt: str, **fields: Any) -> Generation:
    return client.generate(prompt=[prompt], sampling=m.Sampling(), **fields)


async def end_of(generation: Generation) -> m.Done | m.Failed:
    events = [event async for event in generation]
    end = events[-1]
    assert isinstance(end, m.Done | m.Failed)
    return end


def test_an_engine_is_unavailable_while_it_loads_and_ready_afterwards() -> None:
    async def test() -> None:
        states: list[str] = []
        script = Script(load_seconds=0.3)
        async with engine(script, ready=False, states=states) as client:
            assert states == ["loading"]
            with pytest.raises(Unavailable, match="Loading model") as caught:
                ask(client, "a")
            assert caught.value.retry_after == 1
            with pytest.raises(Unavailable):
                await client.tokenize(["a"])
            await becomes(lambda: client.loading is not None)
            assert client.loading == m.Loading("loading weights", 0, 100)
            ready = await client.wait_ready()
            assert states == ["loading", "ready"]
            assert client.loading is None
            assert (ready.plan.slots, ready.plan.slot_ctx) == (2, 512)
            assert isinstance(await end_of(ask(client, "a", n_predict=2)), m.Done)
        assert states == ["loading", "ready", "stopped"]

    run(test)


def test_a_generation_gives_its_events_in_order_and_ends() -> None:
    async def test() -> None:
        async with engine(Script(answers={"hello": ["Hi", " there"]})) as client:
            events = [event async for event in ask(client, "hello you")]
            kinds = [type(event) for event in events]
            assert kinds[0] is m.Started
            assert kinds[-1] is m.Done
            assert set(kinds[1:-1]) == {m.Progress, m.Delta}
            text = "".join(e.text for e in events if isinstance(e, m.Delta | m.Done))
            assert text == "Hi there"
            assert client.running == 0

    run(test)


def test_answers_do_not_get_mixed_up() -> None:
    async def test() -> None:
        script = Script(answers={name: [name] * 20 for name in "abcdef"})
        async with engine(script) as client:

            async def text_of(name: str) -> str:
                events = [event async for event in ask(client, name)]
                return "".join(getattr(event, "text", "") for event in events)

            texts = await asyncio.gather(*map(text_of, "abcdef"))
            assert texts == [name * 20 for name in "abcdef"]

    run(test)


def test_a_cancelled_request_stops_the_engines_work() -> None:
    async def test() -> None:
        async with engine(Script(step_seconds=0.02)) as client:
            generation = ask(client, "a")
            async for event in generation:
                if isinstance(event, m.Delta):
                    break
            generation.cancel()
            generation.cancel()
            assert client.running == 0
            began = time.monotonic()
            await becomes(lambda: _idle(client))
            assert time.monotonic() - began < 1.0
            assert client.snapshot is not None
            assert client.snapshot.totals.cancelled == 1
            assert client.snapshot.totals.predicted_tokens < 8

    run(test)


def test_a_request_cancelled_in_the_queue_never_reaches_a_slot() -> None:
    async def test() -> None:
        async with engine(Script(step_seconds=0.02)) as client:
            running = [ask(client, name) for name in "ab"]
            queued = ask(client, "c")
            await becomes(lambda: _waiting(client) == 1)
            queued.cancel()
            await becomes(lambda: _waiting(client) == 0, 1.0)
            assert client.running == 2
            assert client.snapshot is not None
            tasks = {slot.task for slot in client.snapshot.slots}
            assert tasks == {generation.id for generation in running}

    run(test)


def test_questions_about_text_are_answered_while_a_long_prompt_is_read() -> None:
    async def test() -> None:
        async with engine(Script(prefill_seconds=0.005)) as client:
            # Two seconds.
            ask(client, "word " * 401, n_predict=1)
            await becomes(lambda: not _idle(client))
            began = time.monotonic()
            tokenized = await client.tokenize(["one two one"])
            text = await client.detokenize(tokenized.tokens)
            assert time.monotonic() - began < 1.0
            first, second, third = tokenized.tokens
            assert first == third != second
            assert tokenized.pieces == [b"one ", b"two ", b"one "]
            assert text == "one two one "

    run(test)


def test_a_question_that_is_refused_raises_what_the_engine_said() -> None:
    async def test() -> None:
        async with engine() as client:
            with pytest.raises(EngineError, match="invalid tokens") as caught:
                await client.detokenize([-1])
            assert caught.value.failed.code == 400
            assert (await client.tokenize(["a"])).pieces == [b"a "]

    run(test)


def test_a_crash_fails_what_runs_at_once_and_the_engine_comes_back() -> None:
    async def test() -> None:
        states: list[str] = []
        script = Script(crash="bad", step_seconds=0.01)
        async with engine(script, states=states) as client:
            first_pid = client.pid
            running = ask(client, "a")
            async for event in running:
                if isinstance(event, m.Delta):
                    break
            began = time.monotonic()
            bad = ask(client, "bad prompt")
            ends = await asyncio.gather(end_of(running), end_of(bad))
            assert time.monotonic() - began < 1.0
            for end in ends:
                assert isinstance(end, m.Failed)
                assert (end.code, end.type) == (500, "server_error")
                assert end.message == "the engine stopped unexpectedly"
            assert client.running == 0
            assert client.snapshot is not None
            assert not any(slot.processing for slot in client.snapshot.slots)
            with pytest.raises(Unavailable, match="Loading model"):
                ask(client, "a")
            await becomes(lambda: client.state == "ready")
            assert isinstance(await end_of(ask(client, "a", n_predict=2)), m.Done)
            assert client.restarts == 1
            assert client.pid != first_pid
            assert states == ["loading", "ready", "loading", "ready"]

    run(test)


def test_a_question_that_is_open_when_the_engine_crashes_fails_too() -> None:
    async def test() -> None:
        async with engine() as client:
            pid = client.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(0.1)
            question = asyncio.create_task(client.tokenize(["a"]))
            await asyncio.sleep(0.05)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(EngineError, match="stopped unexpectedly"):
                await asyncio.wait_for(question, 1.0)

    run(test)


def test_after_too_many_crashes_the_engine_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "_FIRST_BACKOFF", 0.01)

    async def test() -> None:
        care = Care(max_restarts=1)
        async with engine(Script(crash="bad"), care=care) as client:
            for _ in range(2):
                await becomes(lambda: client.state == "ready")
                await end_of(ask(client, "bad prompt"))
            await client.wait_ended()
            assert client.state == "failed"
            assert client.failure is not None
            assert client.failure.what == (
                "the engine crashed 2 times within 10 minutes; the last time it ended "
                "with status 3"
            )
            assert client.restarts == 1

    run(test)


def test_a_wish_that_cannot_be_met_is_a_fault_of_the_configuration() -> None:
    async def test() -> None:
        load = m.Load(m.ModelSource("toy"), Wish("llama-compat", 2048, 5))
        async with engine(load=load, ready=False) as client:
            with pytest.raises(LoadError, match="leaves 409 tokens") as caught:
                await client.wait_ready()
            assert caught.value.config
            assert "lower parallel to 4 or less" in caught.value.hint
            await client.wait_ended()
            assert client.state == "failed"
            assert client.restarts == 0

    run(test)


def test_a_model_that_does_not_load_is_not() -> None:
    async def test() -> None:
        async with engine(Script(fail_load="no such tensor"), ready=False) as client:
            with pytest.raises(LoadError, match="no such tensor") as caught:
                await client.wait_ready()
            assert not caught.value.config

    run(test)


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (["/no/such/program"], "the engine cannot be started"),
        ([sys.executable, "-c", "raise SystemExit(9)"], r"ended while loading .* 9\)"),
        (
            [
                sys.executable,
                "-c",
                "import os, sys; os.write(int(sys.argv[2]), bytes([0, 0, 0, 1, 255]));"
                "os.read(int(sys.argv[2]), 9); os.read(int(sys.argv[2]), 1 << 20)",
            ],
            "ended while loading",
        ),
    ],
    ids=["no such program", "ends at once", "talks nonsense"],
)
def test_what_is_no_engine_is_a_model_that_cannot_be_loaded(
    program: list[str], what: str
) -> None:
    async def test() -> None:
        async with engine(program=program, ready=False) as client:
            with pytest.raises(LoadError, match=what) as caught:
                await client.wait_ready()
            assert not caught.value.config

    run(test)


def test_stopping_ends_the_process_and_what_runs() -> None:
    async def test() -> None:
        async with engine(Script(step_seconds=0.02)) as client:
            pid = client.pid
            assert pid is not None
            running = ask(client, "a")
            await becomes(lambda: not _idle(client))
            await client.stop()
            assert gone(pid)
            assert client.pid is None
            end = await end_of(running)
            assert isinstance(end, m.Failed)
            assert (end.code, end.type) == (503, "unavailable_error")
            with pytest.raises(Unavailable, match="shutting down"):
                ask(client, "a")
            await client.stop()

    run(test)


def test_stopping_while_the_model_loads_leaves_no_process_behind() -> None:
    async def test() -> None:
        async with engine(Script(load_seconds=20), ready=False) as client:
            await becomes(lambda: client.loading is not None)
            pid = client.pid
            assert pid is not None
            began = time.monotonic()
            await client.stop()
            assert time.monotonic() - began < 4
            assert gone(pid)

    run(test)


_LOST = """
import os, sys, time
from mlxceld.engine.messages import ModelInfo, Ready, frame
from mlxceld.plan import Wish, make_plan

fd = int(sys.argv[2])
os.write(fd, frame([Ready(ModelInfo(8, 64), make_plan(Wish(ctx_size=64)))]))
os.close(fd)
time.sleep(60)
"""


def test_stopping_an_engine_that_is_slow_to_crash_does_not_start_it_again() -> None:
    async def test() -> None:
        program = [sys.executable, "-c", _LOST]
        async with engine(program=program) as client:
            pid = client.pid
            await becomes(lambda: client.state == "loading")
            began = time.monotonic()
            await client.stop()
            assert time.monotonic() - began < 4
            assert client.restarts == 0
            assert client.state == "stopped"
            assert pid is None or gone(pid)

    run(test)


_FRONT = """
import asyncio, sys
from tests.engine.test_client import LOAD
from mlxceld.engine.client import EngineClient
from mlxceld.engine.messages import Sampling
from tests.fake import Script, command

async def main():
    client = EngineClient(LOAD, command(Script(step_seconds=0.01)))
    await client.start()
    await client.wait_ready()
    client.generate(prompt=["a"], sampling=Sampling())
    print(client.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_front_that_is_killed_takes_its_engine_along() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _FRONT], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as front:
        try:
            assert front.stdout is not None
            pid = int(front.stdout.readline())
            assert not gone(pid)
        finally:
            front.kill()
        assert until(lambda: gone(pid)) < 5


def _idle(client: EngineClient) -> bool:
    assert client.snapshot is not None
    return not any(slot.processing for slot in client.snapshot.slots)


def _waiting(client: EngineClient) -> int:
    assert client.snapshot is not None
    return client.snapshot.waiting
