"""Engines that hang, rave, die while loading or sleep, seen from the front's side."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mlxceld.engine import client as client_module
from mlxceld.engine import messages as m
from mlxceld.engine.care import Care, Loss, failed_load, how_it_ended
from mlxceld.engine.client import EngineClient, LoadError, Unavailable
from mlxceld.plan import Wish
from tests.engine.processes import gone
from tests.engine.test_client import ask, becomes, end_of, engine, run
from tests.fake import Script

QUICK = Care(watchdog=0.8)
LIVELY = m.Load(m.ModelSource("toy"), Wish("llama-compat", 1024, 2), chunk_seconds=0.2)
"""Gives a sign of life five times a second."""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_BACKOFF", 0.01)


async def first_text(generation: client_module.Generation) -> None:
    async for event in generation:
        if isinstance(event, m.Delta):
            return


# ---- hangs ----


def test_an_engine_that_hangs_is_ended_within_the_watchdog_time() -> None:
    async def test() -> None:
        script = Script(step_seconds=0.01)
        async with engine(script, load=LIVELY, care=QUICK) as client:
            pid = client.pid
            assert pid is not None
            running = ask(client, "a")
            await first_text(running)
            began = time.monotonic()
            os.kill(pid, signal.SIGSTOP)
            end = await end_of(running)
            assert 0.5 < time.monotonic() - began < 0.8 + 1.0
            assert isinstance(end, m.Failed)
            assert end.code == 500
            await becomes(lambda: client.lost is not None)
            assert client.lost == Loss(
                "gave no sign of life for 0.8 seconds and was ended", -signal.SIGKILL
            )
            await becomes(lambda: client.state == "ready")
            assert gone(pid)
            assert isinstance(await end_of(ask(client, "a", n_predict=2)), m.Done)

    run(test)


def test_an_engine_whose_reader_still_answers_counts_as_hung() -> None:
    """It is the thread with the model that has to live."""

    async def test() -> None:
        script = Script(step_seconds=1000)
        async with engine(script, load=LIVELY, care=QUICK) as client:
            running = ask(client, "a")
            questions = 0
            while client.state == "ready":
                try:
                    await client.tokenize(["word"])
                except client_module.EngineError:
                    break
                questions += 1
                await asyncio.sleep(0.05)
            assert questions > 5
            assert isinstance(await end_of(running), m.Failed)

    run(test)


def test_slow_loads_idle_engines_and_a_front_that_is_held_up_are_no_hangs() -> None:
    async def test() -> None:
        script = Script(load_seconds=1.2)
        async with engine(script, load=LIVELY, care=QUICK) as client:
            await asyncio.sleep(1.2)
            time.sleep(1.2)  # noqa: ASYNC251
            await asyncio.sleep(0.3)
            assert client.restarts == 0

    run(test)


@pytest.mark.parametrize(
    ("care", "tick"),
    [
        (Care(), 1.0),
        (Care(watchdog=2.0), 0.5),
        (Care(watchdog=0, sleep_after=1), 0.25),
        (Care(watchdog=0), None),
        (Care(watchdog=0, sleep_after=0), None),
    ],
)
def test_looks_are_a_quarter_of_the_shortest_time(
    care: Care, tick: float | None
) -> None:
    assert care.tick == tick


# ---- crashes ----


def test_without_restarts_the_first_crash_is_the_last() -> None:
    async def test() -> None:
        async with engine(Script(crash="bad"), care=Care(max_restarts=0)) as client:
            await end_of(ask(client, "bad prompt"))
            await client.wait_ended()
            assert client.state == "failed"
            assert client.restarts == 0
            assert client.failure is not None
            assert client.failure.what == (
                "the engine ended with status 3 and is not started again"
            )
            assert client.failure.hint == "set engine.max_restarts above 0"
            with pytest.raises(Unavailable):
                ask(client, "a")

    run(test)


_RAVES = """
import os, sys, time
from mlxceld.engine.messages import ModelInfo, Ready, frame
from mlxceld.plan import Wish, make_plan

fd = int(sys.argv[2])
os.write(fd, frame([Ready(ModelInfo(8, 64), make_plan(Wish(ctx_size=64)))]))
os.write(fd, bytes([NOISE]))
time.sleep(60)
"""


@pytest.mark.parametrize(
    "noise", ["0, 0, 0, 1, 255", "255, 255, 255, 255"], ids=["message", "length"]
)
def test_an_engine_that_raves_is_one_that_has_crashed(noise: str) -> None:
    async def test() -> None:
        program = [sys.executable, "-c", _RAVES.replace("NOISE", noise)]
        async with engine(program=program, care=Care(max_restarts=0)) as client:
            await asyncio.wait_for(client.wait_ended(), 10)
            assert client.state == "failed"
            assert client.failure is not None
            assert "sent what is no message" in client.failure.what

    run(test)


_SECOND_TIME = """
import json, os, sys
from pathlib import Path
from tests import fake

marker = Path(sys.argv[1])
runs = len(marker.read_text()) if marker.exists() else 0
marker.write_text("x" * (runs + 1))
script = json.loads(sys.argv[2])
if runs == 1:
    script["fail_load"] = "no memory today"
sys.argv = ["fake", json.dumps(script), *sys.argv[3:]]
fake.main()
"""


def test_a_model_that_does_not_load_again_at_once_is_tried_again(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        script = json.dumps(asdict(Script(crash="bad")))
        marker = str(tmp_path / "runs")
        program = [sys.executable, "-c", _SECOND_TIME, marker, script]
        async with engine(program=program) as client:
            await end_of(ask(client, "bad prompt"))
            await becomes(lambda: client.restarts == 2)
            assert client.lost is not None
            assert client.lost.how == (
                "could not load the model again: RuntimeError: no memory today"
            )
            await becomes(lambda: client.state == "ready")
            assert isinstance(await end_of(ask(client, "a", n_predict=2)), m.Done)

    run(test)


@pytest.mark.parametrize(
    ("number", "what", "hint"),
    [
        (
            signal.SIGKILL,
            "the engine was killed by SIGKILL while loading, most likely out of memory",
            "lower engine.ctx_size or engine.parallel, or use a smaller model",
        ),
        (signal.SIGABRT, "the engine was killed by SIGABRT while loading", ""),
    ],
)
def test_an_engine_that_is_killed_while_loading_says_by_what(
    number: signal.Signals, what: str, hint: str
) -> None:
    async def test() -> None:
        code = f"import os; os.kill(os.getpid(), {int(number)})"
        program = [sys.executable, "-c", code]
        async with engine(program=program, ready=False) as client:
            with pytest.raises(LoadError) as caught:
                await client.wait_ready()
            assert (caught.value.what, caught.value.hint) == (what, hint)
            assert not caught.value.config

    run(test)


def test_a_load_that_runs_out_of_memory_says_what_to_do() -> None:
    async def test() -> None:
        script = Script(fail_load="[malloc] Unable to allocate 99999 bytes.")
        async with engine(script, ready=False) as client:
            with pytest.raises(LoadError, match="Unable to allocate") as caught:
                await client.wait_ready()
            assert "use a smaller model" in caught.value.hint

    run(test)


def test_ends_are_told_by_the_name_of_the_signal() -> None:
    assert how_it_ended(0) == "ended with status 0"
    assert how_it_ended(-9) == "was killed by SIGKILL"
    assert how_it_ended(-250) == "was killed by signal 250"
    assert failed_load(Loss("cannot be started: why", None)).what == (
        "the engine cannot be started: why"
    )


# ---- sleep ----

SLEEPY = Care(watchdog=0, sleep_after=0.4)


async def asleep(client: EngineClient) -> int:
    """The process that was there before it fell asleep."""
    pid = client.pid
    assert pid is not None
    await becomes(lambda: client.state == "sleeping")
    await becomes(lambda: gone(pid))
    assert client.pid is None
    return pid


def test_an_idle_engine_is_ended_and_comes_back_when_it_is_needed() -> None:
    async def test() -> None:
        states: list[str] = []
        async with engine(care=SLEEPY, states=states) as client:
            assert isinstance(await end_of(ask(client, "a", n_predict=2)), m.Done)
            await asleep(client)
            assert client.snapshot is not None
            assert client.snapshot.slots == [m.SlotState(0), m.SlotState(1)]
            assert client.snapshot.totals.requests == 1
            assert client.ready is not None
            with pytest.raises(Unavailable):
                ask(client, "a")
            async with client.awake():
                assert client.state == "ready"
                assert isinstance(await end_of(ask(client, "a", n_predict=2)), m.Done)
            await asleep(client)
            assert client.restarts == 0
            assert states == [
                *("loading", "ready", "sleeping", "waking", "ready", "sleeping"),
            ]

    run(test)


def test_nothing_sleeps_while_it_is_used() -> None:
    async def test() -> None:
        async with engine(Script(step_seconds=0.05), care=SLEEPY) as client:
            running = ask(client, "a", n_predict=15)
            assert isinstance(await end_of(running), m.Done)
            assert client.state == "ready"
            async with client.awake():
                await asyncio.sleep(0.7)
                assert client.state == "ready"
            for _ in range(3):
                await asyncio.sleep(0.2)
                await client.tokenize(["a"])

    run(test)


def test_all_who_wait_for_the_engine_get_it() -> None:
    async def test() -> None:
        async with engine(Script(load_seconds=0.3), care=SLEEPY) as client:
            await asleep(client)

            async def one() -> m.Done | m.Failed:
                async with client.awake():
                    return await end_of(ask(client, "a", n_predict=2))

            ends = await asyncio.gather(*(one() for _ in range(5)))
            assert all(isinstance(end, m.Done) for end in ends)

    run(test)


def test_who_leaves_while_the_engine_wakes_does_not_keep_it_awake() -> None:
    async def test() -> None:
        async with engine(Script(load_seconds=0.3), care=SLEEPY) as client:
            await asleep(client)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), client.awake():
                    pass
            assert client.state == "waking"
            await becomes(lambda: client.state == "ready")
            await asleep(client)

    run(test)


def test_an_engine_that_crashes_as_it_wakes_is_started_again(tmp_path: Path) -> None:
    async def test() -> None:
        marker = str(tmp_path / "runs")
        script = json.dumps(asdict(Script()))
        program = [sys.executable, "-c", _SECOND_TIME, marker, script]
        async with engine(program=program, care=SLEEPY) as client:
            await asleep(client)
            async with client.awake():
                with pytest.raises(Unavailable, match="Loading model"):
                    ask(client, "a")
                await becomes(lambda: client.state == "ready")
                assert client.restarts == 1

    run(test)


def test_stopping_ends_a_sleep() -> None:
    async def test() -> None:
        async with engine(care=SLEEPY) as client:
            await asleep(client)
            began = time.monotonic()
            await client.stop()
            assert time.monotonic() - began < 1
            assert client.state == "stopped"
            async with client.awake():
                with pytest.raises(Unavailable, match="shutting down"):
                    ask(client, "a")

    run(test)


def test_descriptors_and_processes_are_given_back() -> None:
    async def test() -> None:
        async with engine(Script(crash="bad"), care=Care(max_restarts=99)) as client:
            counts: list[tuple[int, int]] = []
            for _ in range(4):
                await becomes(lambda: client.state == "ready")
                counts.append((_descriptors(), len(asyncio.all_tasks())))
                assert isinstance(await end_of(ask(client, "bad prompt")), m.Failed)
            assert len(set(counts[1:])) == 1, counts

    run(test)


def _descriptors() -> int:
    folder: Any = "/proc/self/fd" if Path("/proc/self/fd").exists() else "/dev/fd"
    return len(os.listdir(folder))
