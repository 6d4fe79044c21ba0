"""What the daemon tells of its engine, and when the watchdog is fed."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from mlxceld.engine.client import EngineClient
from mlxceld.engine.messages import (
    Loading,
    ModelInfo,
    Ready,
    SlotState,
    Snapshot,
    Totals,
)
from mlxceld.plan import Wish, make_plan
from mlxceld.service.manager import Manager, status_line
from mlxceld.service.notify import Notifier
from tests.service.manager import FakeManager, manager
from tests.service.running import daemon


@dataclass
class Engine:
    """As much of the engine's client as the manager looks at."""

    state: str = "loading"
    loading: Loading | None = None
    ready: Ready | None = None
    snapshot: Snapshot | None = None
    restarts: int = 0
    beats: int = 0
    running: int = 0

    @property
    def client(self) -> EngineClient:
        return cast("EngineClient", self)


def loaded(busy: int, waiting: int = 0, **wish: Any) -> Engine:
    wanted = {"mode": "llama-compat", "ctx_size": 8192, "parallel": 4, **wish}
    plan = make_plan(Wish(**wanted))
    slots = [SlotState(index, processing=index < busy) for index in range(plan.slots)]
    info = ModelInfo(n_vocab=8, n_ctx_train=8192)
    return Engine(
        "ready", None, Ready(info, plan), Snapshot(slots, waiting, 0, 0, Totals())
    )


@dataclass
class Now:
    """A clock that stands still."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Spoken(Notifier):
    """A notifier that remembers."""

    every: float = 0.0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("", self.every)

    def send(self, *lines: str) -> None:
        self.said += lines

    def take(self) -> list[str]:
        said, self.said = self.said, []
        return said


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        (Engine(), "starting the engine"),
        (Engine(loading=Loading("warming up")), "warming up"),
        (
            Engine(loading=Loading("loading weights", 3 << 28, 3 << 30)),
            "loading weights, 768.0 MiB of 3.0 GiB",
        ),
        (loaded(2), "4 slots of 2048 tokens, 2 running"),
        (loaded(4, 3), "4 slots of 2048 tokens, 4 running, 3 waiting"),
        (loaded(0, parallel=1), "1 slot of 8192 tokens, 0 running"),
        (
            loaded(1, kv_unified=True),
            "4 slots of 8192 tokens sharing 8192, 1 running",
        ),
        (Engine("sleeping"), "asleep until the next request"),
        (Engine("failed"), "no engine"),
    ],
)
def test_the_status_is_one_line_for_people(engine: Engine, line: str) -> None:
    assert status_line(engine.client) == line


def test_while_it_stops_the_status_counts_what_is_left() -> None:
    assert status_line(Engine(running=3).client, stopping=True) == (
        "stopping, 3 requests left"
    )
    assert status_line(Engine(running=1).client, stopping=True) == (
        "stopping, 1 request left"
    )
    assert status_line(Engine().client, stopping=True) == "stopping"


def test_only_the_engines_heartbeat_feeds_the_watchdog() -> None:
    spoken, engine = Spoken(every=8.0), loaded(0)
    one = Manager(spoken, engine.client)
    assert one.tick == 1.0
    one.serves()
    assert spoken.take()[0] == "READY=1"
    engine.beats = 1
    one.look()
    assert spoken.take() == ["WATCHDOG=1"]
    one.look()
    one.look()
    assert spoken.take() == []
    engine.beats = 2
    one.look()
    assert spoken.take() == ["WATCHDOG=1"]


def test_nobody_is_fed_before_the_daemon_serves_or_without_a_watchdog() -> None:
    engine = loaded(0)
    early = Spoken(every=8.0)
    Manager(early, engine.client).look()
    assert "WATCHDOG=1" not in early.said
    unwatched = Spoken()
    one = Manager(unwatched, engine.client)
    one.serves()
    engine.beats = 1
    one.look()
    assert "WATCHDOG=1" not in unwatched.said


def test_an_engine_that_sleeps_or_is_started_again_is_not_taken_for_dead() -> None:
    spoken, engine = Spoken(every=8.0), loaded(0)
    one = Manager(spoken, engine.client)
    one.serves()
    for state in ("sleeping", "waking", "loading"):
        engine.state = state
        spoken.take()
        one.look()
        assert "WATCHDOG=1" in spoken.take()


def test_time_is_asked_for_while_the_engine_shows_that_it_loads() -> None:
    spoken, engine, now = Spoken(), Engine(), Now()
    one = Manager(spoken, engine.client, now)
    one.look()
    assert "EXTEND_TIMEOUT_USEC=60000000" in spoken.take()
    now.seconds = 9
    one.look()
    assert spoken.take() == []
    now.seconds = 899
    engine.loading = Loading("loading weights", 1, 2)
    one.look()
    assert "EXTEND_TIMEOUT_USEC=60000000" in spoken.take()
    now.seconds += 899
    one.look()
    assert "EXTEND_TIMEOUT_USEC=60000000" in spoken.take()
    now.seconds += 2
    one.look()
    assert spoken.take() == []


def test_a_status_is_told_when_it_changes() -> None:
    spoken, engine = Spoken(), loaded(0)
    one = Manager(spoken, engine.client)
    one.serves()
    spoken.take()
    one.look()
    assert spoken.take() == []
    engine.snapshot = loaded(1).snapshot
    one.look()
    assert spoken.take() == ["STATUS=4 slots of 2048 tokens, 1 running"]


def test_a_reload_is_none_of_the_managers_business_before_and_after_its_time() -> None:
    spoken, engine = Spoken(), loaded(0)
    one = Manager(spoken, engine.client)
    one.reload_begins()
    one.reload_ends("")
    assert spoken.take() == []
    one.serves()
    one.stops(3.0)
    one.stops(9.0)
    assert spoken.take()[2:] == [
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=3000000",
        "STATUS=stopping",
    ]
    one.reload_begins()
    one.reload_ends("")
    assert spoken.take() == []


def test_looks_go_on_until_they_are_cancelled(tmp_path: Path) -> None:
    async def look(fake: FakeManager) -> None:
        engine = loaded(0)
        one = Manager(Notifier(fake.address, 0.04), engine.client)
        one.serves()
        running = asyncio.create_task(one.run())
        for beat in range(1, 4):
            engine.beats = beat
            await asyncio.sleep(0.05)
        running.cancel()

    with manager(tmp_path) as fake:
        asyncio.run(look(fake))
        heard = [fake.hear(0) for _ in range(8)]
    assert heard.count({"WATCHDOG": "1"}) >= 3


def test_the_watchdog_is_not_fed_while_the_engine_stands_still(tmp_path: Path) -> None:
    with manager(tmp_path) as fake:
        environ = {"NOTIFY_SOCKET": fake.address, "WATCHDOG_USEC": "800000"}
        with daemon(environ=environ) as one:
            fake.until("READY")
            fake.until("WATCHDOG")
            engine = one.engine()
            os.kill(engine, signal.SIGSTOP)
            try:
                # What was on its way may still arrive; then there is silence, for
                # longer than the manager would bear.
                while fake.hear(0.6) is not None:
                    pass
                assert fake.hear(0.8) is None
            finally:
                os.kill(engine, signal.SIGCONT)
            fake.until("WATCHDOG")
