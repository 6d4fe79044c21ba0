"""Lines for systemd's journal carry their priority, and only there."""

from __future__ import annotations

import io
import logging
import os
import socket
from pathlib import Path

import pytest

from mlxceld import journal, logs
from mlxceld.logs import Event

pytestmark = pytest.mark.usefixtures("log_put_back")


def name_of(fd: int) -> str:
    """What systemd puts into `$JOURNAL_STREAM` for a file descriptor."""
    found = os.fstat(fd)
    return f"{found.st_dev}:{found.st_ino}"


def test_the_stream_is_compared_and_not_just_the_variable(tmp_path: Path) -> None:
    """The variable is inherited by what a service starts, with its output elsewhere."""
    with open(tmp_path / "a", "w") as one, open(tmp_path / "b", "w") as other:
        environ = {"JOURNAL_STREAM": name_of(one.fileno())}
        assert journal.connected(one, environ)
        assert not journal.connected(other, environ)
        assert not journal.connected(one, {})


@pytest.mark.parametrize("odd", ["", ":", "8", "8:", ":8", "a:b", "8:9:10", "²:3"])
def test_a_variable_that_makes_no_sense_is_none(odd: str, tmp_path: Path) -> None:
    with open(tmp_path / "a", "w") as one:
        assert not journal.connected(one, {"JOURNAL_STREAM": odd})


def test_a_stream_without_a_file_is_no_journal() -> None:
    assert not journal.connected(io.StringIO(), {"JOURNAL_STREAM": "8:9"})


@pytest.mark.parametrize(
    ("level", "number"),
    [
        (logging.CRITICAL, 3),
        (logging.ERROR, 3),
        (logging.WARNING, 4),
        (logging.INFO, 6),
        (logging.DEBUG, 7),
    ],
)
def test_priorities_are_those_of_syslog(level: int, number: int) -> None:
    assert journal.priority(level) == number


def test_lines_for_the_journal_begin_with_their_priority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("w") as stream:
        monkeypatch.setenv("JOURNAL_STREAM", name_of(ours.fileno()))
        logs.set_up("debug", "json", stream=stream)
        logs.get().warning(Event.RELOAD, message="odd")
        logs.get().debug(Event.REQUEST)
        stream.flush()
        first, second = theirs.recv(4096).decode().splitlines()
    assert first.startswith('<4>{"timestamp":')
    assert second.startswith('<7>{"timestamp":')


def test_each_line_of_a_text_for_people_is_an_entry_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("w") as stream:
        monkeypatch.setenv("JOURNAL_STREAM", name_of(ours.fileno()))
        logs.set_up("info", "console", stream=stream)
        logs.get().error(Event.FAILED, message="one\ntwo")
        stream.flush()
        lines = theirs.recv(4096).decode().splitlines()
    assert [line[:3] for line in lines] == ["<3>", "<3>"]
    assert lines[1] == "<3>two"
