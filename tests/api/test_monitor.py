from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import httpx
import pytest

from mlxceld.api import monitor
from mlxceld.api.state import State
from mlxceld.engine import messages as m
from mlxceld.engine.client import EngineClient
from mlxceld.engine.client import State as EngineState
from mlxceld.flips import announcements
from mlxceld.plan import Geometry, Wish, make_plan
from tests import fake
from tests.api.serving import SETTINGS, Served, serve
from tests.service.running import daemon, streaming

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@contextmanager
def watching(served: Served, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """What the page is told, update by update."""
    with (
        httpx.Client(base_url=served.url, timeout=10, headers=headers) as http,
        http.stream("GET", "/monitor/events") as reply,
    ):
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "text/event-stream"
        lines = (line for line in reply.iter_lines() if line)
        yield (json.loads(line.removeprefix("data: "))["now"] for line in lines)


def first(served: Served, **headers: str) -> dict[str, Any]:
    with watching(served, **headers) as updates:
        return next(updates)


def until(
    updates: Iterator[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The first update of which this holds; they must not take much longer."""
    return next(now for now in islice(updates, 80) if holds(now))


@pytest.fixture(scope="module")
def slow() -> Iterator[Served]:
    """One slot, fifty tokens a second."""
    wish = Wish(mode="llama-compat", ctx_size=1024, parallel=1)
    with serve(fake.Script(step_seconds=0.02), wish=wish) as running:
        yield running


@pytest.fixture(scope="module")
def locked() -> Iterator[Served]:
    """A server with a key, under a prefix."""
    server = replace(SETTINGS.server, api_key=("sesame",), api_prefix="/llm")
    with serve(settings=replace(SETTINGS, server=server)) as running:
        yield running


def test_a_browser_gets_the_page_and_a_program_the_line(served: Served) -> None:
    page = served.get("/", headers=BROWSER)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    assert served.get("/").text.startswith("mlxcel-server ")


def test_every_file_that_the_page_names_is_there(served: Served) -> None:
    page = served.get("/", headers=BROWSER).text
    named = set(re.findall(r'(?:src|href)="([^#"]+)"', page))
    for name in list(named):
        if name.endswith(".js"):
            script = served.get(f"/{name}").text
            modules = re.findall(r'from "\./([a-z]+\.js)"', script)
            named |= {f"monitor/{module}" for module in modules}
    assert named == {f"monitor/{name}" for name in monitor.FILES}
    for name in named:
        assert served.get(f"/{name}").status_code == 200, name
    assert served.get("/monitor/other.js").status_code == 404


def test_everything_of_the_page_forbids_foreign_and_inline_code(
    served: Served,
) -> None:
    for path in ("/", *monitor.PUBLIC):
        headers = served.get(path, headers=BROWSER).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_a_file_that_the_browser_has_is_not_sent_again(served: Served) -> None:
    tag = served.get("/monitor/monitor.js").headers["etag"]
    for known in (tag, f'"other", W/{tag}'):
        again = served.get("/monitor/monitor.js", headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    other = served.get("/monitor/monitor.js", headers={"if-none-match": '"other"'})
    assert other.status_code == 200


def test_head_of_the_page_has_its_headers_and_no_body(served: Served) -> None:
    head = served.http.head("/", headers=BROWSER)
    assert head.status_code == 200
    assert head.headers["content-type"].startswith("text/html")
    assert head.content == b""


def test_without_the_page_there_is_the_line_alone() -> None:
    server = replace(SETTINGS.server, ui=False)
    with serve(settings=replace(SETTINGS, server=server)) as served:
        assert served.get("/", headers=BROWSER).text.startswith("mlxcel-server ")
        for path in (monitor.EVENTS, *monitor.PUBLIC):
            assert served.get(path).status_code == 404
        assert served.get("/props").json()["ui"] is False


def test_the_page_needs_no_key_and_what_it_shows_does(locked: Served) -> None:
    assert locked.get("/", headers=BROWSER).status_code == 200
    assert locked.get("/monitor/monitor.js").status_code == 200
    assert locked.get("/llm/monitor/monitor.js").status_code == 200
    for path in ("/monitor/events", "/llm/monitor/events"):
        assert locked.get(path).status_code == 401
    assert first(locked, authorization="Bearer sesame")["state"] == "ready"


def test_the_page_under_a_prefix_has_a_folder_of_its_own(locked: Served) -> None:
    moved = locked.get("/llm", headers=BROWSER)
    assert (moved.status_code, moved.headers["location"]) == (308, "llm/")
    assert locked.get("/llm/", headers=BROWSER).text.startswith("<!doctype html>")
    assert locked.get("/llm").text.startswith("mlxcel-server ")


def test_an_update_tells_plan_slots_and_pool(served: Served) -> None:
    served.until(served.idle)
    now = first(served)
    assert now["model"] == "toy"
    assert now["state"] == "ready"
    plan = now["plan"]
    shape = ("mode", "slots", "slot_ctx", "pool", "shared")
    assert [plan[name] for name in shape] == ["llama-compat", 4, 1024, 4096, False]
    # A scripted token takes 1024 bytes.
    assert plan["kv_bytes"] == 4 << 20
    assert [slot["id"] for slot in now["slots"]] == [0, 1, 2, 3]
    assert not any(slot["busy"] for slot in now["slots"])
    assert (now["live"], now["waiting"]) == (0, 0)


def test_an_update_tells_the_tokens_of_a_running_request(slow: Served) -> None:
    with (
        watching(slow) as updates,
        streaming(slow.url, 900, "secretword two three"),
    ):
        now = until(updates, lambda now: now["slots"][0]["generated"] > 0)
        slot = now["slots"][0]
        assert slot["busy"]
        assert (slot["cached"] + slot["read"], slot["unread"]) == (3, 0)
        assert now["live"] == slot["held"] >= 3
        assert "secretword" not in json.dumps(now)
    slow.until(slow.idle)


def test_updates_come_four_times_a_second_at_most_while_tokens_flow(
    slow: Served,
) -> None:
    with (
        httpx.Client(base_url=slow.url, timeout=10) as http,
        http.stream("GET", "/monitor/events") as reply,
        streaming(slow.url, 900),
    ):
        lines = (line for line in reply.iter_lines() if line)
        frames = [json.loads(next(lines).removeprefix("data: ")) for _ in range(4)]
    times = [frame["ms"] for frame in frames]
    assert all(later - sooner >= 245 for sooner, later in pairwise(times))
    slow.until(slow.idle)


def test_a_failed_request_is_told_without_its_words() -> None:
    script = fake.Script(fail_prefill="boom")
    with serve(script) as served:
        assert served.post("/completion", {"prompt": "boom canary"}).status_code == 500
        assert served.post("/completion", {"n_predict": "canary"}).status_code == 400
        errors = first(served)["errors"]
    assert [(one["route"], one["status"], one["kind"]) for one in errors] == [
        ("/completion", 500, "server_error"),
        ("/completion", 400, "invalid_request_error"),
    ]
    assert "canary" not in json.dumps(errors)


def test_the_page_is_there_while_the_model_loads() -> None:
    with serve(fake.Script(load_seconds=2.0), wait=False) as served:
        served.until(lambda: served.client.loading is not None)
        assert served.get("/", headers=BROWSER).status_code == 200
        assert served.get("/").status_code == 503
        now = first(served)
        assert now["state"] == "loading"
        assert now["loading"] == {"doing": "loading weights", "done": 0, "total": 100}
        assert now["plan"] is None


def test_a_crash_is_told_and_the_way_back() -> None:
    with serve(fake.Script(crash="die")) as served, watching(served) as updates:
        assert next(updates)["state"] == "ready"
        assert served.post("/completion", {"prompt": "die now"}).status_code == 500
        until(updates, lambda now: now["state"] == "restarting")
        now = until(updates, lambda now: now["state"] == "ready")
        assert (now["restarts"], now["lost"]) == (1, "ended with status 3")


def test_a_drain_is_told_and_does_not_wait_for_those_who_watch() -> None:
    script = {"step_seconds": 0.02}
    with daemon(script=script, server={"drain_timeout": 60}) as running:
        url = running.ready()
        with (
            httpx.Client(base_url=url, timeout=20) as http,
            http.stream("GET", "/monitor/events") as reply,
        ):
            lines = (line for line in reply.iter_lines() if line)
            next(lines)
            with streaming(url, 900):
                running.process.terminate()
                running.wait_for("draining")
                told = (json.loads(line[6:])["now"] for line in lines)
                until(told, lambda now: now["state"] == "draining")
            # The one request has gone; the watcher has not, and its stream ends.
            assert running.ended() == 0
            assert all(now["state"] == "draining" for now in told)


def state_of(wish: Wish, engine: EngineState, *, loaded: bool = True) -> State:
    """What the routes share, with an engine that is in some state."""
    client = EngineClient(m.Load(source=m.ModelSource(path="toy"), wish=wish))
    client.state = engine
    if loaded:
        info = m.ModelInfo(n_vocab=1, n_ctx_train=8192)
        client.ready = m.Ready(info, make_plan(wish))
    return State(SETTINGS, client)


def shown(state: State) -> dict[str, Any]:
    found = monitor.present(state)
    assert found is not None
    told: dict[str, Any] = json.loads(found)
    return told


@pytest.mark.parametrize(
    ("engine", "loaded", "draining", "word"),
    [
        ("loading", False, False, "loading"),
        ("ready", True, False, "ready"),
        ("loading", True, False, "restarting"),
        ("sleeping", True, False, "sleeping"),
        ("waking", True, False, "waking"),
        ("failed", True, False, "failed"),
        ("ready", True, True, "draining"),
    ],
)
def test_every_state_has_its_word(
    engine: EngineState, loaded: bool, draining: bool, word: str
) -> None:
    state = state_of(Wish(ctx_size=2048), engine, loaded=loaded)
    state.watching.draining = draining
    assert shown(state)["state"] == word
    # The page has a sentence for it in both languages.
    assert (monitor.WEB / "words.js").read_text().count(f'"state.{word}": "') == 2


def test_a_server_that_has_stopped_shows_nothing() -> None:
    assert monitor.present(state_of(Wish(ctx_size=2048), "stopped")) is None


def test_a_default_that_will_change_is_told_with_both_plans() -> None:
    wish = Wish(ctx_size=2048, parallel=4)
    geometry = Geometry(n_ctx_train=8192, kv_bytes_per_token=10)
    state = state_of(wish, "ready")
    state.watching.flips = tuple(announcements(wish, {}, geometry))
    (flip,) = shown(state)["flips"]
    assert (flip["option"], flip["old"], flip["new"], flip["version"]) == (
        "engine.mode",
        '"legacy"',
        '"llama-compat"',
        "1.0",
    )
    assert (flip["plan"]["slots"], flip["plan"]["slot_ctx"]) == (4, 512)


def test_a_default_that_would_be_refused_is_told_in_words() -> None:
    wish = Wish(ctx_size=1024, parallel=4)
    state = state_of(wish, "loading", loaded=False)
    state.watching.flips = tuple(announcements(wish, {}))
    (flip,) = shown(state)["flips"]
    assert flip["plan"] is None
    assert flip["then"].startswith("refused, because ctx_size 1024 divided by")
