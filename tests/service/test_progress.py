"""The line that counts the weights: on a terminal, out of the log's way."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxceld import logs
from mlxceld.engine.messages import Loading
from mlxceld.logs import Event
from mlxceld.service.progress import Progress
from tests.service.running import PATIENCE, ROOT

pytestmark = pytest.mark.usefixtures("log_put_back")

MIB = 1024 * 1024
BEGUN = Loading("loading weights", 10 * MIB, 500 * MIB)
HALF = Loading("loading weights", 250 * MIB, 500 * MIB)
NEXT = Loading("warming up")


class Terminal:
    """Both ends of a terminal, and what somebody in front of it sees."""

    def __init__(self) -> None:
        self._ours, self.fd = pty.openpty()
        self.stream = os.fdopen(self.fd, "w", encoding="utf-8", closefd=False)
        self.written = ""

    def widen(self, columns: int) -> None:
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, size)

    def read(self, patience: float = 0) -> None:
        while select.select([self._ours], [], [], patience)[0]:
            self.written += os.read(self._ours, 65536).decode()
            patience = 0

    def rows(self) -> list[str]:
        """What stands on it, without colours and the time of day."""
        self.read()
        rows, column = [""], 0
        for char in re.sub(r"\x1b\[[0-9;]*m", "", self.written):
            if char == "\r":
                column = 0
            elif char == "\n":
                rows.append("")
            else:
                row = rows[-1].ljust(column)
                rows[-1] = row[:column] + char + row[column + 1 :]
                column += 1
        times = re.compile(r"^\d\d:\d\d:\d\d \[\w+ *\] ")
        return [times.sub("", row).rstrip() for row in rows]

    def close(self) -> None:
        self.stream.close()
        os.close(self.fd)
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    one = Terminal()
    yield one
    one.close()


def test_the_bytes_are_counted_on_one_line_below_the_log(terminal: Terminal) -> None:
    logs.set_up(stream=terminal.stream)
    progress = Progress()
    progress.tell(BEGUN)
    assert terminal.rows() == [
        "loading weights",
        "loading weights: 10.0 MiB of 500.0 MiB",
    ]
    progress.tell(HALF)
    assert terminal.rows() == [
        "loading weights",
        "loading weights: 250.0 MiB of 500.0 MiB",
    ]


def test_a_shorter_line_leaves_nothing_of_a_longer_one(terminal: Terminal) -> None:
    logs.set_up(stream=terminal.stream)
    progress = Progress()
    progress.tell(HALF)
    progress.tell(Loading("loading weights", 1, 2))
    assert terminal.rows()[-1] == "loading weights: 1 B of 2 B"


def test_a_record_takes_the_place_of_the_line_which_comes_back_below_it(
    terminal: Terminal,
) -> None:
    logs.set_up(stream=terminal.stream)
    progress = Progress()
    progress.tell(BEGUN)
    logs.get("mlxceld.test").info(Event.REQUEST, message="asked")
    assert terminal.rows() == ["loading weights", "asked", ""]
    progress.tell(HALF)
    assert terminal.rows() == [
        "loading weights",
        "asked",
        "loading weights: 250.0 MiB of 500.0 MiB",
    ]


@pytest.mark.parametrize(
    ("then", "rows"),
    [(NEXT, ["loading weights", "warming up", ""]), (None, ["loading weights", ""])],
)
def test_the_line_goes_when_the_weights_are_there(
    terminal: Terminal, then: Loading | None, rows: list[str]
) -> None:
    logs.set_up(stream=terminal.stream)
    progress = Progress()
    progress.tell(HALF)
    progress.tell(then)
    assert terminal.rows() == rows


def test_what_an_engine_said_before_it_crashed_is_not_shown_again(
    terminal: Terminal,
) -> None:
    logs.set_up(stream=terminal.stream)
    progress = Progress()
    progress.tell(HALF)
    progress.tell(HALF)
    assert terminal.rows() == ["loading weights", ""]


def test_the_line_never_wraps(terminal: Terminal) -> None:
    terminal.widen(24)
    logs.set_up(stream=terminal.stream)
    Progress().tell(HALF)
    assert terminal.rows()[-1] == "loading weights: 250.0 "[:23].rstrip()


def test_a_daemon_in_the_background_leaves_what_is_typed_to_the_shell_alone(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda fd: os.getpgrp() + 1)
    logs.set_up(stream=terminal.stream)
    Progress().tell(HALF)
    assert terminal.rows() == ["loading weights", ""]


def test_no_line_where_the_log_leaves_such_events_out(terminal: Terminal) -> None:
    logs.set_up("warning", stream=terminal.stream)
    Progress().tell(HALF)
    assert terminal.rows() == [""]


def test_json_lines_on_a_terminal_stay_as_they_are(terminal: Terminal) -> None:
    logs.set_up("info", "json", stream=terminal.stream)
    progress = Progress()
    progress.tell(BEGUN)
    progress.tell(HALF)
    progress.tell(None)
    lines = [json.loads(row) for row in terminal.rows() if row]
    assert [line["message"] for line in lines] == ["loading weights"]


@pytest.mark.parametrize("style", ["auto", "json", "console"])
def test_elsewhere_than_on_a_terminal_there_is_no_line(style: str) -> None:
    stream = io.StringIO()
    logs.set_up("info", style, stream=stream)
    progress = Progress()
    progress.tell(BEGUN)
    progress.tell(HALF)
    progress.tell(None)
    assert stream.getvalue().count("\n") == 1
    assert "MiB" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_a_log_file_has_no_line(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "daemon.log"
    logs.set_up("info", "console", str(file), stream=terminal.stream)
    progress = Progress()
    progress.tell(HALF)
    progress.tell(NEXT)
    text = file.read_text(encoding="utf-8")
    assert "MiB" not in text
    assert "\r" not in text
    assert text.count("\n") == 2


def test_a_terminal_that_is_gone_is_no_fault(terminal: Terminal) -> None:
    logs.set_up(stream=terminal.stream)
    progress = Progress()
    progress.tell(BEGUN)
    terminal.stream.close()
    progress.tell(HALF)


SERVE = """
import asyncio, sys
from mlxceld import logs
from mlxceld.service import lifecycle, startup
from mlxceld.settings import EngineSettings, ServerSettings, Settings

logs.set_up()
settings = Settings(
    engine=EngineSettings(ctx_size=1000),
    server=ServerSettings(host=["127.0.0.1"], port=0),
)
engine = [sys.executable, "-m", "tests.fake", "{}"]
load = startup.load_message(settings)
sys.exit(asyncio.run(lifecycle.serve(settings, load, engine)))
"""


def test_a_daemon_shows_the_line_while_it_loads_and_not_once_it_serves(
    terminal: Terminal,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        cwd=ROOT,
        stderr=terminal.fd,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + PATIENCE
        while "listening on" not in terminal.written:
            assert time.monotonic() < end, terminal.written
            terminal.read(1)
    finally:
        process.kill()
        process.wait()
    # What the scripted engine says of its weights.
    assert "loading weights: 0 B of 100 B" in terminal.written
    rows = terminal.rows()
    assert "loading weights" in rows
    assert not any("of 100 B" in row for row in rows)
