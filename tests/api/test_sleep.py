"""A model that is unloaded while nobody needs it: who wakes it, and who does not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mlxceld.engine.care import Care
from tests import fake
from tests.api.serving import Served, serve


@pytest.fixture(scope="module")
def sleepy() -> Iterator[Served]:
    """Sleeps after 0.4 seconds and needs half a second to load."""
    script = fake.Script(answers={"fox": ["The ", "fox"]}, load_seconds=0.5)
    with serve(script, care=Care(watchdog=0, sleep_after=0.4)) as running:
        yield running


@pytest.fixture(autouse=True)
def _falls_asleep(sleepy: Served) -> None:
    sleepy.until(lambda: sleepy.client.state == "sleeping")


def test_status_routes_do_not_wake_it_and_answer_as_before(sleepy: Served) -> None:
    assert sleepy.get("/health").json() == {"status": "ok"}
    props = sleepy.get("/props").json()
    assert props["is_sleeping"] is True
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert props["total_slots"] == 4
    assert (props["n_live_tokens"], props["kv_bytes"]) == (0, 0)
    slots = sleepy.get("/slots").json()
    assert [slot["is_processing"] for slot in slots] == [False] * 4
    assert sleepy.get("/v1/models").json()["data"][0]["meta"]["n_ctx"] == 1024
    assert "mlxcel_pool_tokens 4096" in sleepy.get("/metrics").text
    body = {"messages": [{"role": "user", "content": "hello"}]}
    reply = sleepy.post("/apply-template", body)
    assert (reply.status_code, reply.json()) == (200, {"prompt": "hello "})
    assert sleepy.post("/no-such-path", {}).status_code == 404
    time.sleep(0.2)
    assert sleepy.client.state == "sleeping"


def test_the_numbers_of_a_sleeping_model_are_those_it_went_to_sleep_with(
    sleepy: Served,
) -> None:
    sleepy.post("/completion", {"prompt": "fox hello", "n_predict": 3})
    held = "mlxcel_slot_held_tokens"
    lines = sleepy.get("/metrics").text.splitlines()
    awake = [line for line in lines if line.startswith(held)]
    assert sum(int(line.rpartition(" ")[2]) for line in awake) > 0
    sleepy.until(lambda: sleepy.client.state == "sleeping")
    lines = sleepy.get("/metrics").text.splitlines()
    assert [line for line in lines if line.startswith(held)] == awake
    assert sleepy.get("/props").json()["is_sleeping"] is True


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/completion", {"prompt": "fox", "n_predict": 3}, "content"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "fox"}], "max_tokens": 3},
            "choices",
        ),
        ("/tokenize", {"content": "a b"}, "tokens"),
    ],
)
def test_a_request_wakes_it_and_waits(
    path: str, body: dict[str, object], key: str, sleepy: Served
) -> None:
    reply = sleepy.post(path, body)
    assert reply.status_code == 200, reply.text
    assert reply.json()[key]
    assert sleepy.get("/props").json()["is_sleeping"] is False


def test_health_stays_good_and_others_wait_too_while_it_wakes(sleepy: Served) -> None:
    with ThreadPoolExecutor(4) as pool:
        body = {"prompt": "fox", "n_predict": 3}
        replies = [pool.submit(sleepy.post, "/completion", body) for _ in range(4)]
        sleepy.until(lambda: sleepy.client.state == "waking")
        assert sleepy.get("/health").status_code == 200
        assert sleepy.get("/props").json()["is_sleeping"] is True
        assert [reply.result().status_code for reply in replies] == [200] * 4


def test_a_stream_that_wakes_it_is_a_whole_stream(sleepy: Served) -> None:
    events = sleepy.events("/completion", {"prompt": "fox", "n_predict": 5})
    assert "".join(event["content"] for event in events) == "The fox"
    assert events[-1]["stop"] is True
