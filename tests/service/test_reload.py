"""SIGHUP: what is taken, what waits, what is refused, and who notices."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlxceld.api.live import Live
from mlxceld.api.state import State
from mlxceld.config import Resolved, resolve
from mlxceld.engine.client import EngineClient
from mlxceld.engine.messages import Load, ModelSource
from mlxceld.options import OPTIONS
from mlxceld.plan import Wish
from mlxceld.service import reload
from mlxceld.service.reload import Reloader
from mlxceld.settings import ServerSettings, Settings
from tests.service.running import PATIENCE, Daemon, daemon

HEAD = 'version = 2\n[model]\nhf_repo = "some/model"\n'
"""Three lines."""


def settings_of(*argv: str) -> Settings:
    return resolve(["-hf", "a/b", *argv], {}).settings


# ---- decisions ----


def test_what_differs_is_told_in_the_order_of_the_table_and_secrets_are_not() -> None:
    old = settings_of("-c", "4096", "--api-key", "hush")
    new = settings_of("-c", "8192", "-np", "2", "--api-key", "hush-hush", "--top-k=7")
    assert [change.words for change in reload.changes(old, new)] == [
        "engine.ctx_size: 4096 becomes 8192",
        "engine.parallel: unset becomes 2",
        "sampling.top_k: 40 becomes 7",
        "server.api_key: another value, which is not shown",
    ]
    assert [change.live for change in reload.changes(old, new)] == [
        False,
        False,
        True,
        True,
    ]


def test_live_options_change_and_the_others_keep_their_value() -> None:
    old = settings_of("-c", "4096", "--temp", "0.5")
    new = settings_of("-c", "8192", "--temp", "0.7", "--port", "9", "--metrics")
    mixed = reload.merged(old, new)
    assert mixed.sampling.temperature == 0.7
    assert mixed.server.metrics is True
    assert (mixed.engine.ctx_size, mixed.server.port) == (4096, 8080)


def test_what_the_engine_was_told_at_its_start_takes_a_restart() -> None:
    live = {option.key for option in OPTIONS if option.reload == "live"}
    at_start = {"engine.ctx_size", "engine.parallel", "engine.mode", "model.path"}
    at_start |= {"server.host", "server.port", "engine.batch_size", "logging.file"}
    assert not live & at_start
    assert {"logging.level", "server.api_key_file", "server.drain_timeout"} <= live
    assert {"sampling.temperature", "server.api_key", "model.alias"} <= live


def make(
    read: Callable[[], Resolved], settings: Settings, environ: dict[str, str]
) -> tuple[Reloader, Live]:
    client = EngineClient(Load(source=ModelSource(path="x"), wish=Wish()))
    live = Live(State(settings, client), environ)
    return Reloader(read, settings, live, environ), live


def test_rules_are_swapped_as_a_whole_and_old_ones_stay_as_they_were() -> None:
    new = [
        "-hf",
        "a/b",
        "--temp",
        "0.1",
        "--api-key",
        "k",
        "--cors-origins",
        "https://x",
    ]
    one, live = make(lambda: resolve(new, {}), settings_of(), {})
    before = live.rules
    assert asyncio.run(one.reload()) == ""
    after = live.rules
    assert before.state.settings.sampling.temperature == 0.8
    assert not before.keys
    assert after.state.settings.sampling.temperature == 0.1
    assert after.state.defaults["temperature"] == 0.1
    assert after.keys.admits([(b"x-api-key", b"k")])
    assert not after.keys.admits([])
    assert after.cors.headers(None) == [("access-control-allow-origin", "https://x")]
    assert after.state.running is before.state.running
    assert one.settings is after.state.settings


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-c", "many"], "--ctx-size"),
        (["-c", "2048", "-np", "8", "--mode", "llama-compat"], "256"),
        (["--api-key-file", "/no/such/file"], "/no/such/file"),
        (["--slot-save-path", "/no/such/folder"], "/no/such/folder"),
        (["--ssl-key-file", "/no/such/key"], "server.ssl_key_file"),
    ],
)
def test_one_thing_that_is_wrong_keeps_all_of_the_old(
    argv: list[str], words: str
) -> None:
    bad = ["-hf", "a/b", "--temp", "0.1", *argv]
    one, live = make(lambda: resolve(bad, {}), settings_of(), {})
    before = live.rules
    note = asyncio.run(one.reload())
    assert note.startswith("reload refused: ")
    assert live.rules is before
    assert one.settings.sampling.temperature == 0.8


def test_a_configuration_that_lost_its_model_is_refused() -> None:
    one, live = make(lambda: resolve(["--temp", "0.1"], {}), settings_of(), {})
    before = live.rules
    assert asyncio.run(one.reload()) == "reload refused: no model is named"
    assert live.rules is before


def test_a_fault_of_ours_keeps_the_old_as_well() -> None:
    def broken() -> Resolved:
        raise ZeroDivisionError

    one, live = make(broken, settings_of(), {})
    before = live.rules
    assert asyncio.run(one.reload()) == "reload refused: reload"
    assert live.rules is before


def test_sockets_of_the_manager_still_say_who_may_name_us() -> None:
    """The settings say loopback, but the manager listens for everybody."""
    client = EngineClient(Load(source=ModelSource(path="x"), wish=Wish()))
    live = Live(State(Settings(), client), {}, ["0.0.0.0"])
    one = Reloader(lambda: resolve(["-hf", "a/b"], {}), Settings(), live, {})
    foreign = [(b"host", b"model.lan")]
    assert live.rules.hosts.admits(foreign, file=False)
    assert asyncio.run(one.reload()) == ""
    assert live.rules.hosts.admits(foreign, file=False)
    usual = Live(State(Settings(server=ServerSettings()), client), {})
    assert not usual.rules.hosts.admits(foreign, file=False)


# ---- a running daemon ----


def hang_up(one: Daemon) -> dict[str, Any]:
    """Send SIGHUP; returns the last line about this reload."""
    one.process.send_signal(signal.SIGHUP)
    return one.wait_for("reload", lambda e: "applied" in e or "problems" in e)


def test_the_next_request_gets_what_a_reload_changed(tmp_path: Path) -> None:
    keys, file = tmp_path / "keys", tmp_path / "mlxcel.toml"
    keys.write_text("first-key\n")
    keys.chmod(0o600)
    rest = f'port = 0\napi_key_file = "{keys}"\n'
    file.write_text(f"{HEAD}[engine]\nctx_size = 1000\n[server]\n{rest}")
    with daemon(argv=["--config", str(file)]) as one:
        url = one.ready()
        first = {"authorization": "Bearer first-key"}
        second = {"authorization": "Bearer second-key"}
        assert httpx.get(f"{url}/metrics", headers=first).status_code == 501
        assert hang_up(one)["message"] == "the configuration has not changed"

        keys.write_text("second-key\n")
        file.write_text(
            f"{HEAD}[engine]\nctx_size = 2000\n[sampling]\ntemperature = 0.25\n"
            f"[server]\nmetrics = true\n{rest}[logging]\nlevel = 'debug'\n"
        )
        told = hang_up(one)
        assert told["applied"] == [
            "sampling.temperature",
            "server.metrics",
            "logging.level",
            "server.api_key_file",
        ]
        assert told["waiting"] == ["engine.ctx_size"]
        messages = [e["message"] for e in one.events if e["event"] == "reload"]
        assert "engine.ctx_size: 1000 becomes 2000 (takes a restart)" in messages
        assert "sampling.temperature: 0.8 becomes 0.25" in messages

        assert httpx.get(f"{url}/metrics", headers=first).status_code == 401
        assert httpx.get(f"{url}/metrics", headers=second).status_code == 200
        props = httpx.get(f"{url}/props", headers=second).json()
        settings = props["default_generation_settings"]
        assert settings["params"]["temperature"] == 0.25
        assert settings["n_ctx"] == 1000

        # What waits for a restart is named again, as long as it waits.
        assert hang_up(one)["waiting"] == ["engine.ctx_size"]

        keys.chmod(0o640)
        (problem,) = hang_up(one)["problems"]
        assert f"chmod 600 {keys}" in problem
        assert httpx.get(f"{url}/props", headers=second).status_code == 200
        one.process.send_signal(signal.SIGTERM)
        assert one.ended() == 0
        assert "first-key" not in json.dumps(one.events)
        assert "second-key" not in json.dumps(one.events)


def test_the_engine_hears_of_other_bounds_of_its_queue(tmp_path: Path) -> None:
    """Also the one that is started after it has crashed."""
    file = tmp_path / "mlxcel.toml"
    start = f"{HEAD}[engine]\nctx_size = 1000\n[server]\nport = 0\nslots = true\n"
    file.write_text(start)
    script = {"step_seconds": 0.02, "crash": "boom"}
    with (
        daemon(argv=["--config", str(file)], script=script, backoff=0.01) as one,
        ThreadPoolExecutor(2) as pool,
    ):
        url = one.ready()
        write(file, start + "queue_size = 0\n")
        assert hang_up(one)["applied"] == ["server.queue_size"]

        def ask(prompt: str, n: int = 1) -> httpx.Response:
            body = {"prompt": prompt, "n_predict": n}
            return httpx.post(f"{url}/completion", json=body, timeout=PATIENCE)

        for crashed in (False, True):
            running = pool.submit(ask, "go", 40)
            while not httpx.get(f"{url}/slots").json()[0]["is_processing"]:
                time.sleep(0.01)
            refused = ask("no room")
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert running.result(PATIENCE).status_code == 200
            if not crashed:
                assert ask("boom and more").status_code == 500
                one.wait_for("loaded")


def one_stream(client: httpx.Client, n: int) -> str:
    """The text of a stream, as its client puts it together; checks its end."""
    body = {"prompt": "go", "n_predict": n, "stream": True}
    text, last = [], {}
    with client.stream("POST", "/completion", json=body) as reply:
        assert reply.status_code == 200
        for line in reply.iter_lines():
            if line:
                last = json.loads(line.removeprefix("data: "))
                text.append(last["content"])
    assert last["stop"] is True
    assert last["tokens_predicted"] == n
    return "".join(text)


def test_eight_streams_do_not_notice_twenty_reloads(tmp_path: Path) -> None:
    """Good files and bad ones, and streams that begin and end all the while."""
    file = tmp_path / "mlxcel.toml"
    engine = '[engine]\nmode = "llama-compat"\nctx_size = 8000\nparallel = 8\n'
    start = f"{HEAD}{engine}[server]\nport = 0\n[sampling]\n"
    bad = [
        ("temperature = 'hot'\n", 11, "sampling.temperature: found"),
        ("temperature = 0.5\ntop_k = \n", 12, "not valid TOML"),
        ("temprature = 0.5\n", 11, "unknown key `temprature`"),
    ]
    file.write_text(start)
    done = threading.Event()
    with (
        daemon(argv=["--config", str(file)], script={"step_seconds": 0.02}) as one,
        ThreadPoolExecutor(8) as pool,
        httpx.Client(base_url=one.ready(), timeout=PATIENCE) as watcher,
    ):

        def keep_streaming() -> list[str]:
            with httpx.Client(base_url=watcher.base_url, timeout=PATIENCE) as client:
                texts = [one_stream(client, 30)]
                while not done.is_set():
                    texts.append(one_stream(client, 30))
            return texts

        streams = [pool.submit(keep_streaming) for _ in range(8)]
        try:
            for turn in range(20):
                if turn % 2:
                    row, line, words = bad[turn // 2 % 3]
                    write(file, start + row)
                    (problem,) = hang_up(one)["problems"]
                    assert problem.startswith(f"{file}:{line}: {words}"), problem
                else:
                    write(file, f"{start}temperature = 0.{turn + 10}\n")
                    assert hang_up(one)["applied"] == ["sampling.temperature"]
                    props = watcher.get("/props").json()
                    params = props["default_generation_settings"]["params"]
                    assert params["temperature"] == pytest.approx((turn + 10) / 100)
        finally:
            done.set()
        texts = [text for stream in streams for text in stream.result(PATIENCE)]
        assert len(texts) >= 8
        assert set(texts) == {"x " * 30}
        assert not any(e["event"] == "request_failed" for e in one.events)


def write(file: Path, text: str) -> None:
    """Put a file in the place of another in one step, as configuration tools do."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, file)


def test_a_file_that_cannot_be_read_to_its_end_does_not_keep_the_daemon_from_ending(
    tmp_path: Path,
) -> None:
    """A pipe that nobody writes to, as a network disk that does not answer."""
    file = tmp_path / "mlxcel.toml"
    file.write_text(f"{HEAD}[server]\nport = 0\n[engine]\nctx_size = 1000\n")
    with daemon(argv=["--config", str(file)]) as one:
        url = one.ready()
        file.unlink()
        os.mkfifo(file)
        one.process.send_signal(signal.SIGHUP)
        # It is being read once somebody may write without waiting for a reader.
        while True:
            try:
                writer = os.open(file, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError:
                time.sleep(0.01)
        assert httpx.get(f"{url}/health").status_code == 200
        one.process.send_signal(signal.SIGTERM)
        assert one.ended() == 0
        os.close(writer)
