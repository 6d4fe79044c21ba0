"""Real daemons for tests: started by their command line, spoken to over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.api.serving import parse_events

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds for anything to happen; two busy cores are slow to start a process."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a daemon that nobody has configured, and `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    # An empty file keeps the daemon from finding one of whoever runs the tests.
    return {**kept, "MLXCELD_CONFIG": os.devnull, **(more or {})}


_OURS = ("LLAMA_", "MLXCELD_", "HF_TOKEN")


def run(*flags: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command line that ends by itself."""
    done = subprocess.run(
        [sys.executable, "-m", "mlxceld.cli", *flags],
        cwd=ROOT,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


class Server:
    """A daemon that runs; `http` speaks to it once it is ready."""

    def __init__(self, command: list[str], env: Mapping[str, str] | None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=environment(env),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.events: list[dict[str, Any]] = []
        self.other: list[str] = []
        self._ended = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.http = httpx.Client(timeout=PATIENCE)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                if line.startswith("{"):
                    self.events.append(json.loads(line))
                else:
                    self.other.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def close(self) -> None:
        self.http.close()
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The events of this name so far."""
        with self._news:
            return [e for e in self.events if e["event"] == event]

    def troubles(self) -> list[Any]:
        """What the log says of errors, and what is not of the log, a traceback say."""
        with self._news:
            return [e for e in self.events if e["level"] == "error"] + self.other[-50:]

    def wait_for(self, event: str) -> dict[str, Any]:
        """The first event of this name; fails when the log ends without it."""
        with self._news:
            self._news.wait_for(
                lambda: self._ended or any(e["event"] == event for e in self.events),
                PATIENCE,
            )
        found = self.logged(event)
        assert found, f"no `{event}` in {self.events} {self.other}"
        return found[0]

    def ready(self) -> Server:
        """Wait until the model is served."""
        self.http.base_url = httpx.URL(self.wait_for("listening")["url"])
        return self

    @property
    def url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    def get(self, path: str) -> Any:
        """The JSON of a status route."""
        reply = self.http.get(path)
        assert reply.status_code == 200, f"{reply.text} {self.troubles()}"
        return reply.json()

    def post(self, path: str, body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def answer(self, path: str, body: Any) -> Any:
        """The JSON of a request that succeeds."""
        reply = self.post(path, body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def stream(self, path: str, body: Mapping[str, Any]) -> list[Any]:
        """The events of a stream that succeeds."""
        reply = self.post(path, {**body, "stream": True})
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"] == "text/event-stream"
        return parse_events(reply.text)

    def slots(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/slots")
        return found

    def busy(self) -> int:
        """How many slots are processing."""
        return sum(slot["is_processing"] for slot in self.slots())

    def metric(self, name: str) -> float:
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(name)


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> float:
    """Wait for a condition and return how long it took; fails when it does not come."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "did not happen in time"
        time.sleep(0.01)
    return time.monotonic() - began


@contextlib.contextmanager
def command(*flags: str, env: Mapping[str, str] | None = None) -> Iterator[Server]:
    """The daemon that this command line starts, on a port that is free."""
    one = Server(["mlxceld.cli", "--port", "0", *flags], env)
    try:
        yield one
    finally:
        one.close()


@contextlib.contextmanager
def scripted(**wanted: Any) -> Iterator[Server]:
    """A daemon around the scripted engine, once it is ready."""
    one = Server(["tests.service.daemon", json.dumps(wanted)], None)
    try:
        yield one.ready()
    finally:
        one.close()
