"""More asked than fits, over HTTP: nobody hangs, nothing is left behind."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.serving import parse_events
from tests.e2e.server import Server, command, scripted, until
from tests.e2e.test_hang_up import Client
from tests.tiny import VOCAB_SIZE

SHARED = ("--mode", "llama-compat", "-c", "1024", "-np", "4", "-kvu", "--metrics")
EXCEEDED = {
    "code": 500,
    "message": "Context size has been exceeded.",
    "type": "server_error",
}
GREEDY = {"n_predict": 400, "temperature": 0, "ignore_eos": True}


def start(model: Path, *flags: str) -> Iterator[Server]:
    with command("-m", str(model), *SHARED, *flags) as one:
        yield one.ready()


@pytest.fixture(scope="module")
def patient(long_model: Path) -> Iterator[Server]:
    """Four slots that share 1024 tokens; the youngest steps back, RAM keeps nothing."""
    yield from start(long_model, "--cache-ram", "0")


@pytest.fixture(scope="module")
def strict(long_model: Path) -> Iterator[Server]:
    """The same as llama-server has it: all who run end."""
    yield from start(long_model, "--overflow", "error")


def prompt(number: int, n: int = 100) -> list[int]:
    chance = random.Random(number)
    return [chance.randrange(3, VOCAB_SIZE) for _ in range(n)]


def body(number: int, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt(number), **GREEDY, **more}


def remember_two(server: Server) -> None:
    """Two finished requests whose prompts the slots keep."""
    for number in (90, 91):
        server.answer("/completion", {"prompt": prompt(number, 300), "n_predict": 1})


def together(jobs: list[Callable[[], Any]]) -> list[Any]:
    """Run the jobs at the same time; their results."""
    gate = threading.Barrier(len(jobs))

    def run(job: Callable[[], Any]) -> Any:
        gate.wait(10)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


def at_rest(server: Server) -> None:
    until(lambda: server.busy() == 0, 1.0)
    props = server.get("/props")
    assert props["n_live_tokens"] == 0
    assert server.metric("llamacpp:requests_deferred") == 0


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_four_that_outgrow_the_pool_all_get_their_solo_answers(
    patient: Server, stream: bool
) -> None:
    def ask(number: int) -> str:
        if stream:
            events = patient.stream("/completion", body(number))
            assert events[-1]["stop_type"] == "limit"
            assert events[-1]["tokens_predicted"] == 400
            return "".join(event["content"] for event in events)
        answer = patient.answer("/completion", body(number))
        assert answer["tokens_predicted"] == 400
        return str(answer["content"])

    alone = [ask(number) for number in range(4)]
    remember_two(patient)
    live: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            live.append(patient.get("/props")["n_live_tokens"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    before = patient.metric("mlxcel_requests_preempted_total")
    for _ in range(5):
        assert together([partial(ask, n) for n in range(4)]) == alone
        # One that comes late, as the machine is busy, may find room.
        if patient.metric("mlxcel_requests_preempted_total") > before:
            break
    over.set()
    watcher.join()
    assert patient.metric("mlxcel_requests_preempted_total") > before
    assert 500 < max(live) <= 1024
    at_rest(patient)
    assert ask(0) == alone[0]


def failing(server: Server, path: str, number: int, stream: bool) -> tuple[Any, float]:
    """The error that a request ends with, if any, and when it came."""
    asked = body(number, stream=stream)
    if path.startswith("/v1"):
        asked["max_tokens"] = asked.pop("n_predict")
    with httpx.stream("POST", server.url + path, json=asked, timeout=60) as reply:
        text = "".join(reply.iter_text())
    came = time.monotonic()
    if not stream:
        assert reply.status_code in (200, 500)
        return json.loads(text).get("error"), came
    assert reply.status_code == 200
    events = [frame for frame in text.split("\n\n") if frame]
    errors = [event for event in events if '"error"' in event]
    if not errors:
        return None, came
    assert errors == events[-1:]
    assert "[DONE]" not in text
    return json.loads(events[-1].removeprefix("data: "))["error"], came


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_with_error_all_four_end_within_a_second_and_a_fifth_is_served(
    strict: Server, path: str, stream: bool
) -> None:
    remember_two(strict)
    for _ in range(5):
        failed = strict.metric("mlxcel_requests_failed_total")
        found = together([partial(failing, strict, path, n, stream) for n in range(4)])
        times = [came for error, came in found if error == EXCEEDED]
        assert not times or max(times) - min(times) < 1.0
        at_rest(strict)
        assert strict.metric("mlxcel_requests_failed_total") == failed + len(times)
        # One that comes late, as the machine is busy, runs when the others are gone.
        if len(times) == 4:
            break
    assert len(times) == 4
    assert strict.answer("/completion", body(9))["tokens_predicted"] == 400


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_prompt_that_can_never_fit_is_refused_while_another_goes_on(
    patient: Server, stream: bool
) -> None:
    asked = {**body(5), "n_predict": 900, "stream": True}
    url = f"{patient.url}/completion"
    with httpx.stream("POST", url, json=asked, timeout=60) as other:
        parts = other.iter_text()
        text = next(parts)
        began = time.monotonic()
        reply = patient.post(
            "/completion", {"prompt": prompt(6, 2000), "stream": stream}
        )
        took = time.monotonic() - began
        text += "".join(parts)
    answer = "".join(event["content"] for event in parse_events(text))
    asked["stream"] = False
    assert patient.answer("/completion", asked)["content"] == answer
    assert took < 1.0
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (2000, 1024)


def test_a_second_turn_pays_only_for_what_is_new(patient: Server) -> None:
    """750 tokens fit beside nothing that is running: 649 of them are there already."""
    first = prompt(7, 600)
    answer = patient.answer(
        "/completion",
        {**GREEDY, "prompt": first, "n_predict": 50, "return_tokens": True},
    )
    second = [*first, *answer["tokens"], *prompt(8, 100)]
    reply = patient.answer("/completion", {"prompt": second, "n_predict": 1})
    assert (reply["timings"]["cache_n"], reply["timings"]["prompt_n"]) == (649, 101)


def test_eight_agents_compute_their_common_beginning_at_most_twice(
    long_model: Path,
) -> None:
    """Eight at once on four slots, 1500 tokens in common and a few of their own."""
    beginning = prompt(11, 1500)
    asked = [
        {"prompt": [*beginning, *prompt(20 + n, 5)], "n_predict": 8} for n in range(8)
    ]
    flags = ("--mode", "llama-compat", "-c", "8192", "-np", "4", "--metrics")
    with command("-m", str(long_model), *flags) as server:
        server.ready()
        answers = together([partial(server.answer, "/completion", b) for b in asked])
        read = server.metric("llamacpp:prompt_tokens_total")
    assert read <= 2 * 1500 + 8 * 5
    times = [answer["timings"] for answer in answers]
    assert all(t["cache_n"] + t["prompt_n"] == 1505 for t in times)
    assert sum(t["prompt_n"] for t in times) == read
    assert sum(t["cache_n"] == 1500 for t in times) >= 6


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_who_waits_too_long_is_told_when_to_come_again(
    stream: bool, impatient: Server
) -> None:
    first = Client(impatient, "/completion", {"prompt": "a b", "stream": True})
    until(lambda: impatient.busy() == 1)
    began = time.monotonic()
    reply = impatient.post("/completion", {"prompt": "c d", "stream": stream})
    took = time.monotonic() - began
    assert 0.4 <= took < 1.5
    assert reply.status_code == 503
    assert reply.json()["error"]["type"] == "unavailable_error"
    assert int(reply.headers["retry-after"]) >= 1
    assert impatient.busy() == 1
    first.hang_up()
    until(lambda: impatient.busy() == 0, 1.0)
    answer = impatient.answer("/completion", {"prompt": "c d", "n_predict": 1})
    assert answer["content"] == "x "


@pytest.fixture(scope="module")
def impatient() -> Iterator[Server]:
    """One slot with an answer that takes minutes; others wait half a second."""
    with scripted(
        script={"step_seconds": 0.02},
        engine={"ctx_size": 4096, "queue_timeout": 0.5},
        server={"metrics": True},
    ) as one:
        yield one


# ---- a long day ----


def children(pid: int) -> list[int]:
    """The processes that `pid` has started and that still run."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def weigh(server: Server) -> tuple[list[int], list[int]]:
    """Bytes and open files of the daemon's processes.

    Without the buffers that MLX keeps for reuse: those are bounded, and one is kept for
    each size that has come up.
    """
    pids = [server.process.pid, *children(server.process.pid)]
    page = os.sysconf("SC_PAGE_SIZE")
    rss = [int(Path(f"/proc/{p}/statm").read_text().split()[1]) * page for p in pids]
    rss[-1] -= int(server.metric("mlxcel_mlx_cache_bytes"))
    return rss, [len(list(Path(f"/proc/{p}/fd").iterdir())) for p in pids]


def one_of_many(server: Server, number: int) -> int:
    """A random request; 200, or 0 for a client that went away."""
    chance = random.Random(number)
    asked = {
        "prompt": prompt(chance.choice([1, 2, 3, number]), chance.randrange(1, 300)),
        "n_predict": 150 if chance.random() < 0.1 else chance.randrange(1, 12),
        "stream": chance.random() < 0.5,
        "ignore_eos": True,
        "id_slot": chance.choice([-1, -1, 0, 3]),
        "cache_prompt": chance.random() < 0.9,
    }
    if chance.random() < 0.4:
        client = Client(server, "/completion", asked)
        time.sleep(chance.choice([0.0, 0.01, 0.05, 0.2]))
        client.hang_up()
        return 0
    return server.post("/completion", asked).status_code


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_after_two_hundred_requests_nothing_is_left_behind(patient: Server) -> None:
    def serve(numbers: range) -> list[int]:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda n: one_of_many(patient, n), numbers))
        at_rest(patient)
        return found

    serve(range(900, 1060))
    rss, files = weigh(patient)
    kv_bytes = patient.get("/props")["kv_bytes"]
    left = patient.metric("mlxcel_requests_cancelled_total")
    codes = serve(range(1060, 1260))
    rss_now, files_now = weigh(patient)
    assert set(codes) == {0, 200}
    assert patient.metric("mlxcel_requests_cancelled_total") > left + 20
    assert len(rss) == 2
    assert all(now <= 1.02 * before for now, before in zip(rss_now, rss, strict=True))
    assert files_now == files
    assert patient.get("/props")["kv_bytes"] == kv_bytes
    assert not [e for e in patient.events if e["level"] == "error"]
    assert not any("Traceback" in line for line in patient.other)
