from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import start
from benchmarks.start import Start, table

DAEMON = """
import json, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print('a warning of a library', file=sys.stderr)
print('17', file=sys.stderr)
seconds = {'front': 0.5, 'total': 2.0}
print(json.dumps({'event': 'started', 'seconds': seconds}), file=sys.stderr, flush=True)
signal.pause()
"""


def test_a_start_is_what_the_daemon_tells_and_what_is_seen_from_outside() -> None:
    one = start.start([sys.executable, "-c", DAEMON], cold=True)
    assert one.phases == {"front": 0.5, "total": 2.0}
    assert one.cold
    assert one.cpu > 0
    assert 0 < one.wall < 60


def test_a_daemon_that_does_not_start_is_an_error_with_what_it_said() -> None:
    with pytest.raises(RuntimeError, match="no such model"):
        start.start([sys.executable, "-c", "raise SystemExit('no such model')"])


def test_the_table_has_the_median_of_each_phase_warm_and_cold() -> None:
    starts = [
        Start(False, {"front": 1.0, "total": 4.0}, 4.5, 3.0),
        Start(False, {"front": 2.0, "total": 6.0}, 6.5, 4.0),
        Start(False, {"front": 9.0, "total": 5.0}, 5.5, 5.0),
        Start(True, {"front": 1.5, "total": 8.0}, 8.5, 3.5),
    ]
    assert table(starts).splitlines() == [
        "| phase, seconds | warm, 3 starts | cold, 1 starts |",
        "| --- | ---: | ---: |",
        "| front | 2.00 | 1.50 |",
        "| total | 5.00 (4.00 to 6.00) | 8.00 (8.00 to 8.00) |",
        "| process to log line | 5.50 (4.50 to 6.50) | 8.50 (8.50 to 8.50) |",
        "| CPU of front and engine | 4.00 (3.00 to 5.00) | 3.50 (3.50 to 3.50) |",
    ]


def test_files_that_are_forgotten_are_whole(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    start.forget(tmp_path)
    start.forget(tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").read_bytes() == b"weights"


def test_all_starts_are_written_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []

    def started(command: list[str], *, cold: bool = False) -> Start:
        commands.append(command)
        return Start(cold, {"total": 1.0}, 1.25, 0.5)

    model, out = tmp_path / "m.gguf", tmp_path / "out.json"
    model.touch()
    monkeypatch.setattr(start, "start", started)
    words = ["--model", str(model), "--runs", "2", "--cold", "--out", str(out)]
    assert start.main([*words, "--", "--parallel", "3"]) == 0
    assert commands[0][-2:] == ["--parallel", "3"]
    assert len(commands) == 5  # the first is not counted
    written = json.loads(out.read_text())["starts"]
    assert [one["cold"] for one in written] == [False, True, False, True]
    assert "| total | 1.00 (1.00 to 1.00) |" in capsys.readouterr().out
