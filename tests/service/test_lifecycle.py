"""Start, signals, drain and death, on real processes with the scripted engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.service.running import PATIENCE, ROOT, daemon, is_gone, streaming
from tests.tiny import tiny_model_dir


def test_health_says_503_from_the_first_moment_and_200_once_the_model_is_loaded() -> (
    None
):
    with daemon(script={"load_seconds": 1.5}) as one:
        url = one.wait_for("bound")["url"]
        early = httpx.get(f"{url}/health", timeout=PATIENCE)
        assert early.status_code == 503
        assert early.json()["error"]["message"] == "Loading model"
        listening = one.wait_for("listening")
        assert listening["message"] == f"listening on {url}"
        assert httpx.get(f"{url}/health", timeout=PATIENCE).status_code == 200


def test_how_long_the_start_took_is_told_by_phase() -> None:
    with daemon(script={"load_seconds": 0.3}, server={"metrics": True}) as one:
        url = one.ready()
        seconds = one.wait_for("started")["seconds"]
        engine = ["engine", "imports", "weights"]
        assert list(seconds) == ["front", *engine, "serving", "total"]
        assert seconds["weights"] >= 0.3
        parts = sum(took for phase, took in seconds.items() if phase != "total")
        assert parts == pytest.approx(seconds["total"], abs=0.01)
        metrics = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
        [told] = [
            line.split()[1]
            for line in metrics.splitlines()
            if line.startswith('mlxcel_start_seconds{phase="total"}')
        ]
        assert float(told) == pytest.approx(seconds["total"], abs=0.01)


def test_the_plan_is_in_the_log_in_words() -> None:
    with daemon(
        engine={"mode": "llama-compat", "ctx_size": 4096, "parallel": 4}
    ) as one:
        listening = one.wait_for("listening")
        plan = [e["message"] for e in one.events if e["event"] == "plan"]
        assert "4 slots of 1024 tokens each, 4096 in all (mode llama-compat)" in plan
        assert (listening["slots"], listening["n_ctx"]) == (4, 1024)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_a_running_stream_finish(number: signal.Signals) -> None:
    with daemon(script={"step_seconds": 0.02}) as one:
        url = one.ready()
        engine = one.engine()
        with streaming(url, 60) as lines:
            one.process.send_signal(number)
            last = json.loads(list(lines)[-1].removeprefix("data: "))
        assert last["stop"] is True
        assert last["tokens_predicted"] == 60
        assert one.ended() == 0
        assert is_gone(engine)


def test_ctrl_c_in_a_terminal_lets_a_running_stream_finish(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the engine too."""
    path = tiny_model_dir(tmp_path / "tiny")
    flags = ["--port", "0", "-c", "1024", "--ignore-eos"]
    with daemon("mlxceld.cli", "-m", str(path), *flags) as one:
        url = one.ready()
        with streaming(url, 300) as lines:
            os.killpg(one.process.pid, signal.SIGINT)
            last = json.loads(list(lines)[-1].removeprefix("data: "))
        assert last["tokens_predicted"] == 300
        assert one.ended() == 0


def test_a_second_signal_ends_at_once() -> None:
    with daemon(script={"step_seconds": 0.05}) as one:
        url = one.ready()
        engine = one.engine()
        # The stream breaks off without its end, as it must.
        with contextlib.suppress(httpx.HTTPError), streaming(url, 900):
            one.process.send_signal(signal.SIGTERM)
            one.wait_for("draining")
            one.process.send_signal(signal.SIGTERM)
            assert one.ended() == 1
        assert is_gone(engine)


def test_a_signal_while_loading_stops_at_once() -> None:
    with daemon(script={"load_seconds": 60}) as one:
        one.wait_for("loading")
        engine = one.engine()
        began = time.monotonic()
        one.process.send_signal(signal.SIGTERM)
        assert one.ended() == 0
        assert time.monotonic() - began < 8
        assert is_gone(engine)


def test_the_engine_goes_when_the_front_is_killed() -> None:
    with daemon() as one:
        one.ready()
        engine = one.engine()
        one.process.kill()
        assert is_gone(engine)


def test_an_engine_that_crashes_ends_its_requests_and_comes_back() -> None:
    with daemon(script={"crash": "boom"}) as one:
        url = one.ready()
        body = {"prompt": "boom and more", "n_predict": 5}
        answer = httpx.post(f"{url}/completion", json=body, timeout=PATIENCE)
        assert answer.status_code == 500
        # The status with which the scripted engine ends itself.
        assert one.wait_for("engine_lost")["status"] == 3
        one.wait_for("loaded")
        body = {"prompt": "fine", "n_predict": 5}
        answer = httpx.post(f"{url}/completion", json=body, timeout=PATIENCE)
        assert answer.status_code == 200


CRASHES_ONCE = """
import os, sys
from mlxceld.engine import main
from tests import fake

def crash(*_):
    open(flag, "w").close()
    os._exit(7)

flag, fd = sys.argv[1], sys.argv[3]
if not os.path.exists(flag):
    main._loop = crash
sys.argv = ["fake", "{}", "--fd", fd]
fake.main()
"""
"""An engine that ends in the moment after it said that it is ready, the first time."""


def test_an_engine_that_crashes_before_it_is_announced_is_announced_when_it_is_back(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", CRASHES_ONCE, str(tmp_path / "flag")]
    with daemon(command=command) as one:
        url = one.ready()
        assert [e["event"] for e in one.events].count("engine_lost") == 1
        body = {"prompt": "fine", "n_predict": 5}
        answer = httpx.post(f"{url}/completion", json=body, timeout=PATIENCE)
        assert answer.status_code == 200


def test_an_engine_that_sleeps_before_it_is_announced_is_said_to() -> None:
    """The front takes longer to be up than the engine is idle."""
    with daemon(engine={"sleep_idle_seconds": 0.01}) as one:
        url = one.ready()
        one.wait_for("sleeping")
        body = {"prompt": "fine", "n_predict": 5}
        answer = httpx.post(f"{url}/completion", json=body, timeout=PATIENCE)
        assert answer.status_code == 200
        one.wait_for("loaded")
        one.wait_for("sleeping")


def test_hanging_up_does_not_end_the_daemon() -> None:
    with daemon() as one:
        url = one.ready()
        one.process.send_signal(signal.SIGHUP)
        one.wait_for("reload")
        assert httpx.get(f"{url}/health", timeout=PATIENCE).status_code == 200


def test_a_reload_that_is_asked_for_too_early_does_not_end_the_daemon(
    tmp_path: Path,
) -> None:
    model = tiny_model_dir(tmp_path)
    with daemon("mlxceld.cli", "-m", str(model), "--port", "0") as one:
        one.wait_for("starting")
        one.process.send_signal(signal.SIGHUP)
        one.wait_for("bound")


def test_settings_that_the_engine_refuses_end_with_78() -> None:
    """The scripted engine finds that 2048 tokens cannot be divided by 5."""
    engine = {"mode": "llama-compat", "ctx_size": 2048, "parallel": 5}
    with daemon(engine=engine) as one:
        failed = one.wait_for("load_failed")
        for word in ("2048", "5", "409", "raise ctx_size", "lower parallel"):
            assert word in failed["message"]
        assert one.ended() == 78


def run_and_end(*flags: str) -> subprocess.CompletedProcess[str]:
    """What a daemon that refuses to start says; it must not take long."""
    return subprocess.run(
        [sys.executable, "-m", "mlxceld.cli", "--port", "0", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_share_below_the_floor_ends_with_78_before_the_model_is_loaded(
    tmp_path: Path,
) -> None:
    path = tiny_model_dir(tmp_path / "tiny")
    done = run_and_end(
        *("-m", str(path), "--mode", "llama-compat", "-c", "2048", "-np", "5")
    )
    assert done.returncode == 78
    for word in ("2048", "5", "409", "raise ctx_size", "lower parallel"):
        assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_is_not_there_ends_with_78_and_its_path(tmp_path: Path) -> None:
    done = run_and_end("-m", str(tmp_path / "nothing.gguf"))
    assert done.returncode == 78
    assert f"{tmp_path}/nothing.gguf" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_file_that_cannot_be_written_ends_with_78(tmp_path: Path) -> None:
    path = tiny_model_dir(tmp_path / "tiny")
    done = run_and_end("-m", str(path), "--log-file", str(tmp_path / "no" / "d.log"))
    assert done.returncode == 78
    assert "logging.file" in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([sys.executable, "-c", "raise SystemExit(3)"], "status 3"),
        (["/no/such/program"], "cannot be started"),
    ],
)
def test_an_engine_that_cannot_load_ends_the_daemon_with_a_failure(
    command: list[str], words: str
) -> None:
    with daemon(command=command) as one:
        assert words in one.wait_for("load_failed")["message"]
        assert one.ended() == 1
        assert one.other == []


def test_a_key_file_that_is_not_there_ends_with_78(tmp_path: Path) -> None:
    with daemon(server={"api_key_file": str(tmp_path / "keys")}) as one:
        assert one.ended() == 78
        assert f"{tmp_path}/keys" in "".join(one.other)
        assert "Traceback" not in "".join(one.other)


def test_a_busy_port_ends_with_1_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with daemon(server={"port": port}) as one:
            assert one.ended() == 1
            assert f"port {port} of 127.0.0.1 is in use" in "".join(one.other)
            assert "loading" not in {event["event"] for event in one.events}


def test_a_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    with daemon(server={"host": [str(path)]}) as one:
        assert one.ready() == f"unix:{path}"
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, timeout=PATIENCE) as client:
            # A web page cannot get here, so any name will do.
            assert client.get("http://any.name/health").status_code == 200
        one.process.send_signal(signal.SIGTERM)
        assert one.ended() == 0
    assert not path.exists()
