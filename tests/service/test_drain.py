"""Stopping under load: who is served to the end, who is refused, who is cut off."""

from __future__ import annotations

import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.service.running import PATIENCE, Daemon, daemon, streaming

FOUR = {"mode": "llama-compat", "ctx_size": 4000, "parallel": 4}


def last_event(url: str, n_predict: int, prompt: str = "go") -> dict[str, Any]:
    """The last event of a whole stream, with the text of all of them."""
    body = {"prompt": prompt, "n_predict": n_predict, "stream": True}
    reply = httpx.post(f"{url}/completion", json=body, timeout=PATIENCE)
    assert reply.status_code == 200
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line]
    text = "".join(event.get("content", "") for event in events)
    return {**events[-1], "whole": text}


def tell_to_stop(one: Daemon) -> None:
    one.process.send_signal(signal.SIGTERM)
    one.wait_for("draining")


def test_a_draining_daemon_finishes_what_runs_and_refuses_what_is_new() -> None:
    with daemon(script={"step_seconds": 0.02}, server={"metrics": True}) as one:
        url = one.ready()
        with httpx.Client(timeout=PATIENCE) as kept, streaming(url, 60) as lines:
            assert kept.get(f"{url}/health").status_code == 200
            tell_to_stop(one)
            # Over a new connection, and over one that was there before.
            for get in (httpx.get, kept.get):
                health = get(f"{url}/health")
                assert health.status_code == 503
                assert health.json()["status"] == "draining"
                assert 1 <= int(health.headers["retry-after"]) <= 15
            refused = kept.post(f"{url}/completion", json={"prompt": "new"})
            assert refused.status_code == 503
            assert refused.json()["error"]["type"] == "unavailable_error"
            assert int(refused.headers["retry-after"]) >= 1
            assert kept.get(f"{url}/v1/models").status_code == 503
            for watched in ("slots", "metrics", "props"):
                assert kept.get(f"{url}/{watched}").status_code == 200
            last = json.loads(list(lines)[-1].removeprefix("data: "))
        assert last["tokens_predicted"] == 60
        assert one.ended() == 0


def test_all_of_eight_streams_finish_those_included_that_still_wait() -> None:
    """Four slots: half of them have not begun when the signal comes."""
    script = {"step_seconds": 0.01}
    with daemon(script=script, engine=FOUR, server={"metrics": True}) as one:
        url = one.ready()
        with ThreadPoolExecutor(8) as pool:
            streams = [pool.submit(last_event, url, 60) for _ in range(8)]
            with httpx.Client(base_url=url, timeout=PATIENCE) as watcher:
                while "requests_deferred 4" not in watcher.get("/metrics").text:
                    time.sleep(0.02)
            began = time.monotonic()
            tell_to_stop(one)
            for stream in streams:
                last = stream.result(PATIENCE)
                assert last["tokens_predicted"] == 60
                assert last["whole"] == "x " * 60
        assert one.ended() == 0
        assert time.monotonic() - began < 15
        assert "drain_cut" not in {event["event"] for event in one.events}


CUT = "the server is shutting down: it waited 1 seconds for this request to end"


def test_what_outlasts_the_drain_is_told_why_it_ends() -> None:
    """A stream in its last event, an answer in one piece by its status; connections
    that are idle are not waited for, and the port is free at once."""
    wanted: dict[str, Any] = {"engine": FOUR, "server": {"drain_timeout": 1.0}}
    with (
        daemon(script={"step_seconds": 0.05}, **wanted) as one,
        httpx.Client(base_url=one.ready(), timeout=PATIENCE) as idle,
        ThreadPoolExecutor(1) as pool,
    ):
        port = idle.base_url.port
        assert port is not None
        url = f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)):
            body = {"prompt": "go", "n_predict": 900}
            asked = pool.submit(
                httpx.post, f"{url}/completion", json=body, timeout=PATIENCE
            )
            with streaming(url, 900) as lines:
                while sum(s["is_processing"] for s in idle.get("/slots").json()) < 2:
                    time.sleep(0.02)
                began = time.monotonic()
                one.process.send_signal(signal.SIGTERM)
                last = json.loads(list(lines)[-1].removeprefix("data: "))
            assert last["error"]["code"] == 503
            assert last["error"]["message"] == CUT
            reply = asked.result(PATIENCE)
            assert reply.status_code == 503
            assert reply.json()["error"]["message"] == CUT
            assert one.ended() == 0
            assert 0.9 < time.monotonic() - began < 10
        assert [e["running"] for e in one.events if e["event"] == "drain_cut"] == [2]
        socket.create_server(("127.0.0.1", port)).close()


def test_a_prompt_that_takes_long_to_read_does_not_hold_up_the_end() -> None:
    """The engine is in the middle of a chunk of ten seconds."""
    script = {"prefill_seconds": 0.1}
    with (
        daemon(script=script, server={"drain_timeout": 0.3}) as one,
        httpx.Client(base_url=one.ready(), timeout=PATIENCE) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        body = {"prompt": "go " * 100, "n_predict": 1, "stream": True}
        asked = pool.submit(
            httpx.post, f"{client.base_url}/completion", json=body, timeout=PATIENCE
        )
        while not client.get("/slots").json()[0]["is_processing"]:
            time.sleep(0.02)
        began = time.monotonic()
        one.process.send_signal(signal.SIGTERM)
        assert "shutting down" in asked.result(PATIENCE).text
        assert one.ended() == 0
        assert time.monotonic() - began < 9


def test_a_request_that_never_comes_whole_is_cut_without_a_fault_in_the_log() -> None:
    with daemon(server={"drain_timeout": 0.2}) as one:
        url = httpx.URL(one.ready())
        with socket.create_connection((url.host, url.port or 80), 10) as sock:
            sock.sendall(
                b"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
            httpx.get(url.join("/health"))
            one.process.send_signal(signal.SIGTERM)
            assert one.ended() == 0
    assert [e["running"] for e in one.events if e["event"] == "drain_cut"] == [1]
    assert [e for e in one.events if e["level"] == "error"] == []
