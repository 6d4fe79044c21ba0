"""Engines that are killed, stopped and put to sleep under a daemon that goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server, command, scripted, until

ERROR = "the engine stopped unexpectedly"


@dataclass
class Listener:
    """One client of a stream: what came, and when it was over."""

    url: str
    began: threading.Event = field(default_factory=threading.Event)
    events: list[Any] = field(default_factory=list)
    status: int = 0
    ended: float = 0.0

    def listen(self) -> None:
        body = {
            "prompt": "go on",
            "n_predict": 8000,
            "ignore_eos": True,
            "stream": True,
        }
        with httpx.stream("POST", f"{self.url}/completion", json=body, timeout=60) as r:
            self.status = r.status_code
            for line in r.iter_lines():
                if line.startswith("data: "):
                    self.events.append(json.loads(line.removeprefix("data: ")))
                    self.began.set()
        self.ended = time.monotonic()


def listeners(url: str, n: int) -> list[tuple[Listener, threading.Thread]]:
    made = [Listener(url) for _ in range(n)]
    threads = [threading.Thread(target=one.listen, daemon=True) for one in made]
    for thread in threads:
        thread.start()
    return list(zip(made, threads, strict=True))


def engine_of(one: Server) -> int:
    children = Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children")
    if not children.exists():
        pytest.skip("needs Linux's list of children")
    (pid,) = map(int, children.read_text().split())
    return pid


def descriptors(one: Server) -> int:
    return len(os.listdir(f"/proc/{one.process.pid}/fd"))


def healthy(one: Server) -> bool:
    return one.http.get("/health").status_code == 200


def lose_the_engine(one: Server, number: signal.Signals, within: float) -> None:
    """Kill or stop it under eight streams, four of them running and four queued."""
    pid = engine_of(one)
    clients = listeners(one.url, 8)
    until(lambda: sum(client.began.is_set() for client, _ in clients) == 4)
    until(lambda: one.metric("llamacpp:requests_deferred") == 4)
    at = time.monotonic()
    os.kill(pid, number)
    for client, thread in clients:
        thread.join(within + 5)
        assert 0 < client.ended - at < within
        if client.began.is_set():
            assert client.status == 200
            assert client.events[-1]["error"]["message"] == ERROR
        else:
            assert client.status == 500
    until(lambda: healthy(one))
    assert one.busy() == 0
    assert engine_of(one) != pid
    body = {"prompt": "still there", "n_predict": 2}
    assert one.post("/completion", body).status_code == 200


ENGINE = {"mode": "llama-compat", "ctx_size": 16384, "parallel": 4}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_kills_under_eight_streams_leave_no_trace() -> None:
    with scripted(
        script={"step_seconds": 0.005},
        engine={**ENGINE, "max_restarts": 20},
        server={"metrics": True},
        backoff=0.01,
    ) as one:
        lose_the_engine(one, signal.SIGKILL, 1.0)
        one.http.close()
        one.http = httpx.Client(base_url=one.url, timeout=60)
        until(lambda: healthy(one))
        before = descriptors(one)
        for _ in range(19):
            lose_the_engine(one, signal.SIGKILL, 1.0)
        until(lambda: descriptors(one) <= before, 10)
        lost = one.logged("engine_lost")
        assert len(lost) == 20
        assert lost[0]["message"] == (
            "the engine was killed by SIGKILL, it is started again"
        )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_engine_that_is_killed_or_stopped_is_replaced(long_model: Path) -> None:
    """With a log file on a full disk, which must not matter to anybody."""
    flags = ["--mode", "llama-compat", "-c", "32768", "-np", "4", "--metrics"]
    if full := Path("/dev/full").exists():
        flags += ["--log-file", "/dev/full"]
    with command("-m", str(long_model), *flags, "--watchdog-timeout", "2") as one:
        one.ready()
        lose_the_engine(one, signal.SIGKILL, 1.0)
        lose_the_engine(one, signal.SIGSTOP, 2.0 + 1.5)
        (_, hung) = one.logged("engine_lost")
        assert "gave no sign of life for 2 seconds" in hung["message"]
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(30) == 0
        if full:
            (told,) = [line for line in one.other if "/dev/full" in line]
            assert told == (
                "mlxcel-server: the log file `/dev/full` cannot be written: "
                "No space left on device\n"
            )


def test_health_is_503_until_the_engine_is_back() -> None:
    script = {"load_seconds": 1.0}
    with scripted(script=script, engine=ENGINE, backoff=0.01) as one:
        os.kill(engine_of(one), signal.SIGKILL)
        until(lambda: not healthy(one), 1.0)
        reply = one.http.get("/health")
        assert reply.json()["error"]["message"] == "Loading model"
        assert reply.headers["retry-after"] == "1"
        assert one.post("/completion", {"prompt": "a"}).status_code == 503
        until(lambda: healthy(one))


def test_too_many_crashes_end_the_daemon_with_70_and_one_clear_line() -> None:
    with scripted(
        script={"crash": "boom"}, engine={**ENGINE, "max_restarts": 1}, backoff=0.01
    ) as one:
        for _ in range(2):
            until(lambda: healthy(one))
            reply = one.post("/completion", {"prompt": "boom boom"})
            assert reply.status_code == 500
            assert reply.json()["error"]["message"] == ERROR
        assert one.process.wait(30) == 70
        (line,) = [event["message"] for event in one.logged("failed")]
        assert line == (
            "the engine crashed 2 times within 10 minutes; the last time it ended with "
            "status 3, giving up"
        )


def test_an_idle_daemon_gives_its_memory_back_until_it_is_asked() -> None:
    engine = {**ENGINE, "sleep_idle_seconds": 2}
    with scripted(engine=engine, script={"answers": {"hi": ["you"]}}) as one:
        pid = engine_of(one)
        assert one.wait_for("sleeping")
        until(lambda: not Path(f"/proc/{pid}").exists())
        assert healthy(one)
        assert one.get("/props")["is_sleeping"] is True
        reply = one.post("/completion", {"prompt": "hi", "n_predict": 4})
        assert (reply.status_code, reply.json()["content"]) == (200, "you")
        assert one.wait_for("loaded")["message"] == "the engine is back"
        one.wait_for("sleeping")
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(30) == 0
