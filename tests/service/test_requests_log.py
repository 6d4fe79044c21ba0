"""One line in the log for each request, and no word of what people wrote."""

from __future__ import annotations

import io
import json
import logging
import random
import re
import string
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mlxceld import logs
from mlxceld.api.record import Record, begin, printable
from tests import fake
from tests.api.serving import Served, serve
from tests.service.running import daemon

SCRIPT = fake.Script(
    answers={"fox": ["The ", "quick ", "brown ", "fox"], "one": ["1"]},
    fail_step="later",
    step_seconds=0.001,
)


class Log(io.StringIO):
    def requests(self) -> list[dict[str, Any]]:
        """The lines of requests, but for those that ask whether all is quiet."""
        lines = map(json.loads, self.getvalue().splitlines())
        found = [line for line in lines if line["event"] == "request"]
        return [line for line in found if line["route"] != "/slots"]


@pytest.fixture
def log() -> Iterator[Log]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = Log()
    logs.set_up("debug", "json", stream=stream)
    yield stream
    for handler in [h for h in root.handlers if h not in before]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.getLogger("mlxceld").setLevel(logging.NOTSET)
    logging.captureWarnings(False)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(SCRIPT) as running:
        yield running


def the_line(log: Log, served: Served) -> dict[str, Any]:
    """The line of the one request, which may come after the end of its reply."""
    served.until(lambda: len(log.requests()) == 1)
    (line,) = log.requests()
    return line


def test_a_line_says_what_a_request_was_and_how_it_went(
    log: Log, served: Served
) -> None:
    body = {"prompt": "fox one two three", "cache_prompt": False}
    reply = served.post("/completion", body, headers={"X-Request-Id": "abc-1"})
    line = the_line(log, served)
    times = {name: line.pop(name) for name in ("queue_ms", "ttft_ms", "total_ms")}
    assert 0 <= times["queue_ms"] <= times["ttft_ms"] <= times["total_ms"]
    assert line.pop("timestamp").endswith("Z")
    assert line.pop("slot") in range(4)
    assert line == {
        "event": "request",
        "level": "info",
        "request_id": "abc-1",
        "method": "POST",
        "route": "/completion",
        "status": 200,
        "prompt_tokens": 4,
        "cached_tokens": 0,
        # Four pieces and the end.
        "completion_tokens": reply.json()["tokens_predicted"],
        "finish_reason": "stop",
    }


def test_tokens_from_the_cache_are_counted(log: Log, served: Served) -> None:
    served.post("/completion", {"prompt": "one a b c d", "id_slot": 2})
    served.post("/completion", {"prompt": "one a b c d", "id_slot": 2})
    served.until(lambda: len(log.requests()) == 2)
    line = log.requests()[1]
    # The last token of a prompt is always read.
    assert (line["prompt_tokens"], line["cached_tokens"]) == (5, 4)
    assert line["slot"] == 2


def test_a_stream_is_logged_when_it_is_over(log: Log, served: Served) -> None:
    body = {
        "messages": [{"role": "user", "content": "x y"}],
        "max_tokens": 3,
    }
    served.events("/v1/chat/completions", body)
    line = the_line(log, served)
    assert line["route"] == "/v1/chat/completions"
    assert line["finish_reason"] == "length"
    assert line["completion_tokens"] == 3


def test_several_answers_are_one_request(log: Log, served: Served) -> None:
    served.post("/v1/completions", {"prompt": ["one a", "one b c"], "max_tokens": 1})
    line = the_line(log, served)
    assert line["prompt_tokens"] == 5
    assert line["completion_tokens"] == 2
    assert len(line["slot"]) == 2


def test_an_error_is_named_by_its_type_alone(log: Log, served: Served) -> None:
    reply = served.post("/completion", {"prompt": "word " * 2000})
    assert reply.status_code == 400
    line = the_line(log, served)
    assert (line["status"], line["error"]) == (400, "exceed_context_size_error")
    assert "slot" not in line


def test_an_error_within_a_stream_is_named_too(log: Log, served: Served) -> None:
    served.post("/completion", {"prompt": "later", "stream": True})
    line = the_line(log, served)
    assert (line["status"], line["error"]) == (200, "server_error")
    assert line["completion_tokens"] == 3


def test_a_client_that_leaves_is_told_from_one_that_has_its_answer(
    log: Log, served: Served
) -> None:
    body = {"prompt": "endless", "stream": True, "n_predict": 3000}
    with served.http.stream("POST", "/completion", json=body) as reply:
        next(reply.iter_bytes())
    line = the_line(log, served)
    assert (line["status"], line["finish_reason"]) == (200, "cancelled")
    assert line["completion_tokens"] > 0
    served.until(served.idle)


def test_a_client_that_leaves_before_its_answer_gets_a_status_of_its_own(
    log: Log, served: Served
) -> None:
    body = {"prompt": "endless", "n_predict": 1000}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{served.url}/completion", json=body, timeout=0.2)
    line = the_line(log, served)
    assert (line["status"], line["finish_reason"]) == (499, "cancelled")
    served.until(served.idle)


def test_what_machines_ask_for_is_logged_at_debug_and_their_mistakes_are_not(
    log: Log, served: Served
) -> None:
    for path in ("/health", "/metrics", "/v1/models", "/nothing/here"):
        served.get(path)
    served.until(lambda: len(log.requests()) == 4)
    found = [(line["route"], line["level"]) for line in log.requests()]
    assert found == [
        ("/health", "debug"),
        ("/metrics", "debug"),
        ("/v1/models", "debug"),
        ("/nothing/here", "info"),
    ]


def test_every_answer_carries_the_id_of_its_request(served: Served) -> None:
    given = {"X-Request-Id": "0af7651916cd43dd"}
    assert served.get("/health", headers=given).headers["x-request-id"] == (
        "0af7651916cd43dd"
    )
    assert served.get("/nothing", headers=given).headers["x-request-id"] == (
        "0af7651916cd43dd"
    )
    made = {served.get("/health").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)


@pytest.mark.parametrize(
    "odd",
    [b"", b"x" * 129, b"a b", b"a\x1b[31m", b'a"b', "가".encode(), b"a\tb", b"<b>"],
)
def test_an_id_that_could_write_into_the_log_is_replaced(odd: bytes) -> None:
    record = begin({}, [(b"x-request-id", odd)])
    assert re.fullmatch("[0-9a-f]{32}", record.id)


def test_faults_are_logged_with_the_id_of_the_request(
    log: Log, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("mlxceld.api.native.read_request", broken)
    served.post("/completion", {"prompt": "x"}, headers={"X-Request-Id": "f-1"})
    served.until(lambda: bool(log.requests()))
    events = [json.loads(line) for line in log.getvalue().splitlines()]
    (failed,) = [e for e in events if e["event"] == "request_failed"]
    assert (failed["request_id"], failed["route"]) == ("f-1", "/completion")
    assert log.requests()[0]["error"] == "server_error"


def test_paths_that_no_route_has_are_shown_as_plain_text() -> None:
    assert printable("/v1/v1/models") == "/v1/v1/models"
    assert printable("/a\n{b} 가\x1b") == "/a?{b}???"
    assert printable("/" + "a" * 200) == "/" + "a" * 79 + "..."


def test_a_request_that_nothing_is_known_of_has_a_status_and_a_time() -> None:
    found = Record().fields(404)
    assert set(found) == {"status", "total_ms"}


def test_every_field_of_a_line_is_explained() -> None:
    full = Record(
        slots=[1],
        queue_ms=1.0,
        ttft_ms=2.0,
        finish_reason="stop",
        error="server_error",
    )
    here = {"request_id", "method", "route"}
    assert here | set(full.fields(200)) == set(logs.REQUEST_FIELDS)


def words(n: int, seed: int) -> list[str]:
    """`n` words that nothing else in the world is made of."""
    letters = random.Random(seed)
    return ["".join(letters.choices(string.ascii_lowercase, k=12)) for _ in range(n)]


def body(path: str, text: list[str]) -> dict[str, Any]:
    """A request with `text` wherever people write."""
    a, b, c, d = text
    limit = {"max_tokens": 4, "stop": [d]}
    if path == "/v1/chat/completions":
        messages = [{"role": "system", "content": a}, {"role": "user", "content": b}]
        return {"messages": messages, "user": c, **limit}
    if path == "/v1/messages":
        messages = [{"role": "user", "content": b}]
        stops = {"max_tokens": 2, "stop_sequences": [d]}
        return {"system": a, "messages": messages, "model": c, **stops}
    if path == "/v1/responses":
        return {"instructions": a, "input": b, "model": c, "max_output_tokens": 2}
    if path == "/tokenize":
        return {"content": " ".join(text)}
    if path == "/apply-template":
        return {"messages": [{"role": a, "content": b}]}
    if path == "/v1/nothing":
        return {a: b}
    return {"prompt": f"{a} {b} {c}", "logit_bias": [[d, 1.0]], **limit}


PATHS = (
    "/completion",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/tokenize",
    "/apply-template",
    "/v1/nothing",
)


@pytest.mark.slow
def test_the_log_of_a_thousand_requests_holds_no_word_of_any() -> None:
    """Good, streamed, refused, broken and failing ones, at level debug."""
    canaries = words(4000, seed=7)
    key = "canary-key-of-the-server"
    # Of the requests 8 and 16, which are well-formed.
    script = {"fail_prefill": canaries[32], "fail_step": canaries[64]}
    with daemon(script=script, server={"api_key": [key]}) as one:
        url = one.ready()
        with httpx.Client(base_url=url, timeout=30) as http:
            for number in range(1000):
                path = PATHS[number % len(PATHS)]
                text = canaries[4 * number : 4 * number + 4]
                wanted = body(path, text)
                if number % 3 == 0:
                    wanted["stream"] = True
                if number % 11 == 0:
                    wanted["temperature"] = text[3]
                raw = json.dumps(wanted).encode()
                if number % 13 == 0:
                    raw = raw[:-1]
                wrong = number % 17 == 0
                http.post(
                    f"{path}?{text[0]}={text[1]}",
                    content=raw,
                    headers={
                        "Authorization": f"Bearer {text[2] if wrong else key}",
                        "Cookie": text[3],
                        "User-Agent": text[0],
                        "Referer": f"http://localhost/{text[1]}",
                    },
                )
        one.process.terminate()
        one.ended()
    log = "\n".join([*map(json.dumps, one.events), *one.other])
    lines = [event for event in one.events if event["event"] == "request"]
    assert len(lines) == 1000
    assert {line["status"] for line in lines} >= {200, 400, 401, 404, 500}
    assert [event["event"] for event in one.events].count("engine_fault") == 2
    assert not [word for word in [*canaries, key] if word in log]
