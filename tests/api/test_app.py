"""Statuses, errors, keys, CORS and loading: what holds on every route."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlxceld.plan import Wish
from mlxceld.settings import ServerSettings, Settings
from tests import fake
from tests.api.serving import Served, serve

BODY: dict[str, Any] = {
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1]},
    "/apply-template": {"messages": [{"role": "user", "content": "a"}]},
    "/completion": {"prompt": "a", "n_predict": 1},
    "/completions": {"prompt": "a", "n_predict": 1},
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/chat/completions": {
        "messages": [{"role": "user", "content": "a"}],
        "max_tokens": 1,
    },
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "a"}],
        "max_tokens": 1,
    },
    "/chat/completions/input_tokens": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "a"}]},
    "/responses": {"input": "a", "max_output_tokens": 1},
    "/v1/responses": {"input": "a", "max_output_tokens": 1},
    "/responses/input_tokens": {"input": "a"},
    "/lora-adapters": [],
}
POSTS = list(BODY)
STREAMS = [path for path in POSTS if path.endswith(("completion", "completions"))]
NOT_FOUND = {
    "error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}
}


@pytest.mark.parametrize("path", POSTS)
def test_a_post_answers_200_and_never_201(served: Served, path: str) -> None:
    assert served.post(path, BODY[path]).status_code == 200


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_answers_200_with_one_data_line_for_each_event(
    served: Served, path: str
) -> None:
    reply = served.post(path, {**BODY[path], "stream": True})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["x-accel-buffering"] == "no"
    frames = reply.text.split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") for frame in frames)
    assert not any("data: data:" in frame or "\n" in frame for frame in frames)
    openai = path in ("/v1/completions", "/chat/completions", "/v1/chat/completions")
    assert (frames[-1] == "data: [DONE]") is openai


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nope"),
        ("POST", "/nope"),
        ("GET", "/completion"),
        ("POST", "/health"),
        ("PUT", "/completion"),
        ("DELETE", "/v1/models"),
        ("GET", "/schema"),
    ],
)
def test_unknown_paths_and_methods_are_404_in_one_shape(
    served: Served, method: str, path: str
) -> None:
    reply = served.http.request(method, path)
    assert reply.status_code == 404
    assert reply.json() == NOT_FOUND
    assert reply.headers["content-type"] == "application/json; charset=utf-8"


def test_head_is_get_without_a_body(served: Served) -> None:
    reply = served.http.head("/health")
    assert reply.status_code == 200
    assert reply.headers["content-length"] == "15"
    assert reply.content == b""


def test_the_root_says_what_this_is(served: Served) -> None:
    assert served.get("/").status_code == 200
    assert "mlxcel-server" in served.get("/").text


def test_a_fault_of_ours_is_500_without_its_words(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_more: Any) -> Any:
        raise KeyError("P-123 secret")

    monkeypatch.setattr("mlxceld.api.native.read_request", fail)
    reply = served.post("/completion", {"prompt": "a"})
    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "server_error"
    assert "P-123" not in reply.text
    assert served.get("/health").status_code == 200


def test_a_fault_of_ours_within_a_stream_is_one_error_event(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_more: Any) -> Any:
        raise KeyError("P-123 secret")

    monkeypatch.setattr("mlxceld.api.native.final", fail)
    events = served.events("/completion", {"prompt": "fox", "n_predict": 2})
    assert events[-1]["error"]["code"] == 500
    assert "P-123" not in str(events)
    served.until(served.idle)


def test_while_loading_everything_is_503() -> None:
    with serve(fake.Script(load_seconds=1.0), wait=False) as running:
        for method, path in (
            ("GET", "/health"),
            ("GET", "/v1/models"),
            ("GET", "/nope"),
            ("POST", "/completion"),
        ):
            reply = running.http.request(method, path)
            assert reply.status_code == 503
            assert reply.json() == {
                "error": {
                    "code": 503,
                    "message": "Loading model",
                    "type": "unavailable_error",
                }
            }
        assert running.http.options("/completion").status_code == 200
        running.until(lambda: running.get("/health").status_code == 200, 10)


def test_a_model_that_cannot_be_loaded_is_503_too() -> None:
    # 409 tokens for each of five slots are below the floor: the plan is refused.
    wish = Wish(mode="llama-compat", ctx_size=2048, parallel=5)
    with serve(wish=wish, wait=False) as running:
        running.until(lambda: running.client.state == "failed", 10)
        reply = running.get("/health")
        assert reply.status_code == 503
        assert reply.json()["error"]["message"] != "Loading model"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with keys, from the option and from a file, for one web origin."""
    keys: Path = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("# people\nfile-key\n\n", encoding="utf-8")
    keys.chmod(0o600)
    server = ServerSettings(
        api_key=("one", "two"),
        api_key_file=str(keys),
        api_prefix="/llm",
        cors_origins=("https://a.example",),
    )
    with serve(settings=Settings(server=server)) as running:
        yield running


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer one"},
        {"authorization": "Bearer two"},
        {"authorization": "Bearer file-key"},
        {"authorization": "one"},
        {"x-api-key": "two"},
    ],
)
def test_a_key_opens_the_door(closed: Served, headers: dict[str, str]) -> None:
    assert closed.get("/props", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer # people"},
        {"authorization": "bearer one"},
        {"authorization": "Bearer"},
        {"x-api-key": ""},
        {"authorization": "Bearer on\xe9"},
    ],
)
@pytest.mark.parametrize(
    "path", ["/props", "/v1/models", "/slots", "/nope", "/llm/slots"]
)
def test_without_a_key_everything_but_health_is_401(
    closed: Served, path: str, headers: dict[str, str]
) -> None:
    """/v1/models is closed as well, as in llama-server."""
    raw = [(k.encode(), v.encode("latin-1")) for k, v in headers.items()]
    reply = httpx.get(closed.url + path, headers=raw)
    assert reply.status_code == 401
    assert reply.json() == {
        "error": {
            "code": 401,
            "message": "Invalid API Key",
            "type": "authentication_error",
        }
    }
    for public in ("/", "/health", "/v1/health", "/llm/health", "/llm"):
        assert closed.get(public).status_code == 200


def test_a_generation_needs_the_key_too(closed: Served) -> None:
    body = {"prompt": "a", "n_predict": 1}
    assert closed.post("/completion", body).status_code == 401
    headers = {"authorization": "Bearer one"}
    assert closed.post("/completion", body, headers=headers).status_code == 200


def test_a_preflight_needs_no_key(closed: Served) -> None:
    reply = closed.http.options("/completion", headers={"origin": "https://b.example"})
    assert reply.status_code == 200
    assert reply.text == ""
    assert reply.headers["access-control-allow-origin"] == "https://a.example"
    assert reply.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert reply.headers["access-control-allow-headers"] == "*"
    assert reply.headers["access-control-allow-credentials"] == "true"


def test_errors_carry_the_cors_headers_too(closed: Served) -> None:
    reply = closed.get("/props")
    assert reply.status_code == 401
    assert reply.headers["access-control-allow-origin"] == "https://a.example"


def test_any_origin_is_echoed_by_default(served: Served) -> None:
    for path in ("/health", "/nope"):
        reply = served.get(path, headers={"origin": "http://a.example"})
        assert reply.headers["access-control-allow-origin"] == "http://a.example"
        assert reply.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in served.get("/health").headers


def test_names_of_headers_are_spelt_as_llama_server_spells_them(served: Served) -> None:
    """Some clients look names up as they are written."""
    answers = [
        served.http.get("/metrics", headers={"Origin": "http://a.example"}),
        served.http.options("/completion", headers={"Origin": "http://a.example"}),
    ]
    names = {name for answer in answers for name, _ in answer.headers.raw}
    assert names >= {
        b"Process-Start-Time-Unix",
        b"Access-Control-Allow-Origin",
        b"Access-Control-Allow-Methods",
        b"Access-Control-Allow-Headers",
        b"Access-Control-Allow-Credentials",
        b"Content-Type",
    }
