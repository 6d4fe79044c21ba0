"""What the manager hears: message by message, and through a whole life."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from mlxceld.service import notify
from mlxceld.service.notify import Notifier, from_environment
from tests.service.manager import FakeManager, manager
from tests.service.running import daemon


def test_assignments_go_out_as_lines_of_one_message(tmp_path: Path) -> None:
    with manager(tmp_path) as fake:
        notifier = Notifier(fake.address)
        notifier.send(notify.READY, notify.status("all  is\nwell"))
        assert fake.hear() == {"READY": "1", "STATUS": "all is well"}
        notifier.send(notify.extend(1.5))
        assert fake.hear() == {"EXTEND_TIMEOUT_USEC": "1500000"}
        notifier.close()
        notifier.send(notify.READY)
        assert fake.hear(0.05) is None


@pytest.mark.skipif(not os.path.exists("/proc/net/unix"), reason="Linux has them")
def test_an_abstract_name_is_reached_too() -> None:
    fake = FakeManager(f"@mlxceld-test-{os.getpid()}")
    Notifier(fake.address).send(notify.STOPPING)
    assert fake.hear() == {"STOPPING": "1"}
    fake.close()


@pytest.mark.parametrize("address", ["", "nonsense", "vsock:2:1234"])
def test_without_a_socket_nothing_is_sent(address: str) -> None:
    notifier = Notifier(address)
    assert not notifier.heard
    notifier.send(notify.READY)


def test_a_manager_that_has_gone_is_no_fault(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "nobody")).send(notify.READY)


def test_a_manager_that_does_not_listen_holds_nobody_up(tmp_path: Path) -> None:
    with manager(tmp_path) as fake:
        notifier = Notifier(fake.address)
        began = time.monotonic()
        for _ in range(3000):
            notifier.send(notify.ALIVE)
        assert time.monotonic() - began < 5


def test_the_variables_are_taken_out_of_the_environment(tmp_path: Path) -> None:
    environ = {
        "NOTIFY_SOCKET": str(tmp_path / "s"),
        "WATCHDOG_USEC": "30000000",
        "WATCHDOG_PID": "42",
        "PATH": "/bin",
    }
    notifier = from_environment(environ, pid=42)
    assert notifier.watchdog == 30.0
    assert notifier.heard
    assert environ == {"PATH": "/bin"}
    notifier.close()


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "7"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_a_watchdog_is_for_one_process(
    variables: dict[str, str], seconds: float
) -> None:
    assert from_environment(dict(variables), pid=42).watchdog == seconds


def test_a_reload_begins_at_a_time_that_the_manager_can_compare() -> None:
    before = time.monotonic_ns() // 1000
    word, when = notify.reloading()
    assert word == "RELOADING=1"
    assert before <= int(when.removeprefix("MONOTONIC_USEC="))
    assert int(when.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


def test_the_manager_hears_of_start_reload_and_stop_in_this_order(
    tmp_path: Path,
) -> None:
    with manager(tmp_path) as fake:
        environ = {"NOTIFY_SOCKET": fake.address, "LLAMA_API_KEY": "hush"}
        argv = ["-hf", "some/model", "-c", "2000", "-np", "2", "--port", "0"]
        argv += ["--mode", "llama-compat"]
        script = {"load_seconds": 1.5}
        with daemon(environ=environ, argv=argv, script=script) as one:
            url = one.wait_for("bound")["url"]
            start = fake.until("READY")
            # The model is loaded and served from that moment on.
            assert httpx.get(f"{url}/health").status_code == 200
            assert start[-1]["STATUS"] == "2 slots of 1000 tokens, 0 running"
            states = [message.get("STATUS", "") for message in start[:-1]]
            assert "loading weights, 0 B of 100 B" in states
            assert start[0]["EXTEND_TIMEOUT_USEC"] == "60000000"
            environment = Path(f"/proc/{one.engine()}/environ")
            if environment.exists():
                inherited = environment.read_bytes()
                assert b"NOTIFY_SOCKET" not in inherited
                assert b"hush" not in inherited

            one.process.send_signal(signal.SIGHUP)
            reload = fake.until("READY")
            begun = next(message for message in reload if "RELOADING" in message)
            assert 0 < int(begun["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
            assert "STOPPING" not in {name for message in reload for name in message}

            one.process.send_signal(signal.SIGTERM)
            stop = fake.until("STOPPING")
            assert "READY" not in {name for message in stop for name in message}
            assert stop[-1]["STATUS"] == "stopping"
            # 15 seconds for the requests, and some for the end.
            assert int(stop[-1]["EXTEND_TIMEOUT_USEC"]) == 20_000_000
            assert one.ended() == 0
            while (message := fake.hear(0)) is not None:
                assert "READY" not in message


def test_a_reload_that_is_refused_shows_in_the_status(tmp_path: Path) -> None:
    file = tmp_path / "mlxcel.toml"
    good = 'version = 2\n[model]\nhf_repo = "some/model"\n[server]\nport = 0\n'
    file.write_text(good + "[engine]\nctx_size = 1000\n")
    with manager(tmp_path) as fake:
        environ = {"NOTIFY_SOCKET": fake.address}
        with daemon(environ=environ, argv=["--config", str(file)]) as one:
            fake.until("READY")
            file.write_text(good + "[engine]\nctx_size = true\n")
            one.process.send_signal(signal.SIGHUP)
            refused = fake.until("READY")[-1]
            assert refused["STATUS"] == (
                f"1 slot of 1000 tokens, 0 running; reload refused: {file}:7"
            )
            file.write_text(good + "[engine]\nctx_size = 1000\n")
            one.process.send_signal(signal.SIGHUP)
            assert fake.until("READY")[-1]["STATUS"] == (
                "1 slot of 1000 tokens, 0 running"
            )


def test_the_sockets_buffer_is_not_ours_to_wait_for() -> None:
    """A datagram socket of the sender is never blocking."""
    notifier = Notifier("/nowhere")
    assert notifier._socket is not None
    assert notifier._socket.gettimeout() == 0
    assert notifier._socket.type == socket.SOCK_DGRAM
    notifier.close()
