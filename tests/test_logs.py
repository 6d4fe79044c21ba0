"""The log: its two forms, its levels, and what must not be in it."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
from pathlib import Path

import pytest

from mlxceld import logs
from mlxceld.logs import Event
from mlxceld.problems import Refused

pytestmark = pytest.mark.usefixtures("log_put_back")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def log_one(stream: io.StringIO, style: str = "auto", level: str = "info") -> str:
    logs.set_up(level, style, stream=stream)
    logs.get("mlxceld.test").info(
        Event.LISTENING, message="listening on http://127.0.0.1:1", port=1
    )
    return stream.getvalue()


def test_elsewhere_than_on_a_terminal_each_event_is_one_json_line() -> None:
    line = json.loads(log_one(io.StringIO()))
    assert line["event"] == "listening"
    assert line["message"] == "listening on http://127.0.0.1:1"
    assert line["port"] == 1
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")


def test_on_a_terminal_the_message_stands_alone() -> None:
    text = log_one(Terminal())
    assert "listening on http://127.0.0.1:1" in text
    assert "port" not in text
    assert "{" not in text


@pytest.mark.parametrize(("style", "is_json"), [("json", True), ("console", False)])
def test_the_form_can_be_forced(style: str, is_json: bool) -> None:
    assert log_one(Terminal(), style).startswith("{") is is_json


def test_fields_of_an_event_without_a_message_are_shown_to_people_too() -> None:
    stream = io.StringIO()
    logs.set_up(style="console", stream=stream)
    logs.get().info(Event.BOUND, port=4711)
    assert "bound" in stream.getvalue()
    assert "port=4711" in stream.getvalue()


def test_events_below_the_level_are_dropped() -> None:
    assert log_one(io.StringIO(), level="warning") == ""


def test_a_library_is_heard_from_warnings_up_even_at_level_debug() -> None:
    """HTTP clients log headers, and with them tokens, at level debug."""
    stream = io.StringIO()
    logs.set_up("debug", stream=stream)
    logging.getLogger("httpcore.http11").debug("Authorization: Bearer abc")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("litestar").warning("odd: %s", "thing")
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["message"]) == ("litestar", "odd: thing")


def test_requests_are_not_logged_by_the_http_server() -> None:
    stream = io.StringIO()
    logs.set_up("debug", stream=stream)
    logging.getLogger("uvicorn.access").error("GET /?q=secret")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("style", ["json", "console"])
def test_tracebacks_do_not_show_the_values_of_variables(style: str) -> None:
    stream = io.StringIO()
    logs.set_up(style=style, stream=stream)
    prompt = "-".join(["very", "private"])
    try:
        len(prompt) / 0
    except ZeroDivisionError:
        logs.get().exception(Event.FAILED)
    assert "ZeroDivisionError" in stream.getvalue()
    assert "test_logs.py" in stream.getvalue()
    assert "very-private" not in stream.getvalue()


def test_a_file_gets_json_lines_beside_the_terminal(tmp_path: Path) -> None:
    file, stream = tmp_path / "d.log", Terminal()
    logs.set_up(file=str(file), stream=stream)
    logs.get().info(Event.STOPPED, message="stopped")
    assert json.loads(file.read_text())["event"] == "stopped"
    assert "stopped" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "d.log"
    logs.set_up(file=str(file), stream=io.StringIO())
    logs.get().info(Event.STARTING)
    file.rename(tmp_path / "d.log.1")
    logs.get().info(Event.STOPPED)
    assert json.loads(file.read_text())["event"] == "stopped"


def test_a_file_that_cannot_be_written_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "d.log"
    with pytest.raises(Refused) as refused:
        logs.set_up(file=str(file))
    (problem,) = refused.value.problems
    assert problem.where == "logging.file"
    assert str(file) in problem.what


def test_setting_up_twice_does_not_write_twice() -> None:
    stream = io.StringIO()
    logs.set_up(stream=io.StringIO())
    assert len(log_one(stream).splitlines()) == 1


def test_a_log_that_cannot_be_written_is_told_once_and_brings_nobody_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = folder / "d.log"
    logs.set_up("info", "json", str(file), stream=io.StringIO())
    log = logs.get("mlxceld.test")
    log.info(Event.STARTING)
    shutil.rmtree(folder)
    for _ in range(3):
        log.info(Event.LISTENING)
    folder.mkdir()
    log.info(Event.STOPPED)
    assert [json.loads(line)["event"] for line in file.open()] == ["stopped"]
    assert capsys.readouterr().err == (
        f"mlxcel-server: the log file `{file}` cannot be written: "
        "No such file or directory\n"
        f"mlxcel-server: the log file `{file}` can be written again\n"
    )


class Closed(io.StringIO):
    def write(self, text: str, /) -> int:
        raise BrokenPipeError


def test_a_terminal_that_has_gone_is_not_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "d.log"
    logs.set_up("info", "json", str(file), stream=Closed())
    logs.get("mlxceld.test").info(Event.LISTENING)
    assert json.loads(file.read_text())["event"] == "listening"
    assert capsys.readouterr().err == ""


def test_a_daemon_without_standard_error_can_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    logs.set_up("info", "json")
    logs.get("mlxceld.test").info(Event.LISTENING)


def test_the_names_of_events_are_plain_words_and_each_is_explained() -> None:
    for event in Event:
        assert re.fullmatch("[a-z]+(_[a-z]+)*", event.value)
        assert str(event) == event.value
        assert event.about
        assert not event.about.endswith(".")
