"""Real daemons around the scripted engine, and what they log, for the tests here."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
NOTHING: Mapping[str, str] = MappingProxyType({})

PATIENCE = 30.0
"""Seconds for anything to happen; two busy cores are slow to start a process."""


class Daemon:
    """A running daemon and the events it has logged."""

    def __init__(
        self,
        *command: str,
        environ: Mapping[str, str] = NOTHING,
        before: Sequence[str] = (),
        fds: Sequence[int] = (),
    ) -> None:
        """`before` are words of a program that starts ours, `fds` what it inherits."""
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", *command],
            pass_fds=fds,
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **environ},
        )
        self.events: list[dict[str, Any]] = []
        self.other: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(
        self, event: str, holds: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> dict[str, Any]:
        """The next such event of this name; fails when the log ends before."""
        end = time.monotonic() + PATIENCE
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=left)
                if line is None:
                    break
                if not line.startswith("{"):
                    self.other.append(line)
                    continue
                self.events.append(json.loads(line))
                if self.events[-1]["event"] == event and holds(self.events[-1]):
                    return self.events[-1]
        raise AssertionError(f"no `{event}` in {self.events} {self.other}")

    def ready(self) -> str:
        """The URL, once the model is loaded."""
        return str(self.wait_for("listening")["url"])

    def ended(self) -> int:
        """The exit status, once there is one."""
        status = self.process.wait(PATIENCE)
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            if line.startswith("{"):
                self.events.append(json.loads(line))
            else:
                self.other.append(line)
        return status

    def engine(self) -> int:
        """Process id of the engine."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        if children.exists():
            return int(children.read_text().split()[0])
        listed = subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, check=True
        )
        return int(listed.stdout.split()[0])


@contextlib.contextmanager
def daemon(
    *command: str,
    environ: Mapping[str, str] = NOTHING,
    before: Sequence[str] = (),
    fds: Sequence[int] = (),
    **wanted: Any,
) -> Iterator[Daemon]:
    """A daemon with the scripted engine, or the one that `command` starts.

    `environ` is added to the environment.
    """
    scripted = ("tests.service.daemon", json.dumps(wanted))
    words = command or scripted
    one = Daemon(*words, environ=environ, before=before, fds=fds)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()


def is_gone(pid: int) -> bool:
    """Whether the process ends within ten seconds."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        # A process nobody waits for stays listed as a zombie in some containers.
        stat = Path(f"/proc/{pid}/stat")
        with contextlib.suppress(OSError):
            if stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        time.sleep(0.05)
    return False


@contextlib.contextmanager
def streaming(
    url: str,
    n_predict: int,
    prompt: str = "go",
    headers: Mapping[str, str] = NOTHING,
    **fields: Any,
) -> Iterator[Iterator[str]]:
    """The data lines of a stream that has begun; `fields` are more of its request."""
    body = {"prompt": prompt, "n_predict": n_predict, "stream": True, **fields}
    with (
        httpx.Client(timeout=PATIENCE, headers=headers) as client,
        client.stream("POST", f"{url}/completion", json=body) as response,
    ):
        assert response.status_code == 200
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        next(lines)
        yield lines
