"""Requests that cannot be served: their status and words, and the life after them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.server import Server
from tests.tiny import VOCAB_SIZE

NATIVE, OPENAI, CHAT = "/completion", "/v1/completions", "/v1/chat/completions"
ROUTES = (NATIVE, OPENAI, CHAT)

TEMPLATE_TOKENS = 16
"""The chat template around one message: `<|im_start|>`, `u`, `s`, `er`, a line end,
`<|im_end|>`, a line end, `<|im_start|>`, `a`, `s`, `s`, `is`, `t`, `an`, `t` and a line
end."""


def body(route: str, text: str, **more: Any) -> dict[str, Any]:
    if route == CHAT:
        return {"messages": [{"role": "user", "content": text}], **more}
    return {"prompt": text, **more}


def still_serves(served: Server, route: str) -> bool:
    asked = body(route, "hello", max_tokens=2)
    return served.post(route, asked).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ROUTES)
def test_a_prompt_too_long_is_400_with_both_numbers_and_no_stream(
    served: Server, route: str, stream: bool
) -> None:
    # No two of these letters make one token.
    reply = served.post(route, body(route, "z" * 1100, stream=stream))
    n_prompt = 1100 + (TEMPLATE_TOKENS if route == CHAT else 0)
    assert reply.status_code == 400
    assert reply.headers["content-type"].startswith("application/json")
    assert reply.json() == {
        "error": {
            "code": 400,
            "message": f"request ({n_prompt} tokens) exceeds the available context "
            "size (1024 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": n_prompt,
            # Of one request, not the pool of 4096.
            "n_ctx": 1024,
        }
    }
    assert still_serves(served, route)


VALUES = [
    ("temperature", '"hot"'),
    ("temperature", "NaN"),
    ("temperature", "-1"),
    ("temperature", "1e999"),
    ("top_p", "Infinity"),
    ("top_p", "-0.1"),
    ("min_p", "{}"),
    ("top_k", str(VOCAB_SIZE + 1)),
    ("top_k", "2.5"),
    ("top_k", "-3"),
    ("seed", '"seven"'),
    ("seed", "1" + "0" * 30),
    ("max_tokens", "-2"),
    ("max_tokens", "2.5"),
    ("max_tokens", "true"),
    ("max_tokens", '"5"'),
    ("max_tokens", "1" + "0" * 400),
    ("repeat_penalty", "-1"),
    ("presence_penalty", "[]"),
    ("stop", "7"),
    ("stream", '"yes"'),
    ("logit_bias", "7"),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("name", "value"), VALUES)
def test_a_value_that_is_none_is_400_and_named(
    served: Server, route: str, name: str, value: str
) -> None:
    prompt = '"prompt": "hello"'
    if route == CHAT:
        prompt = '"messages": [{"role": "user", "content": "hello"}]'
    limit = "" if name == "max_tokens" else ', "max_tokens": 2'
    reply = served.http.post(route, content=f'{{{prompt}{limit}, "{name}": {value}}}')
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert (error["code"], error["type"]) == (400, "invalid_request_error")
    assert name in error["message"]
    assert still_serves(served, route)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "text",
    ["", "hello", "[1, 2]", "null", "3", '{"prompt": ', '{"a": 1}}', "[" * 50_000],
)
def test_what_is_no_json_object_is_400(served: Server, route: str, text: str) -> None:
    reply = served.http.post(route, content=text)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert still_serves(served, route)


@pytest.mark.parametrize(
    ("route", "asked", "name"),
    [
        (NATIVE, {"prompt": ""}, "prompt"),
        (NATIVE, {"prompt": []}, "prompt"),
        (NATIVE, {}, "prompt"),
        (NATIVE, {"prompt": [VOCAB_SIZE]}, "rompt"),
        (NATIVE, {"prompt": [1.5]}, "prompt"),
        (OPENAI, {"prompt": ""}, "prompt"),
        (OPENAI, {"prompt": None}, "prompt"),
        (CHAT, {}, "messages"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": "hello"}, "messages"),
        (CHAT, {"messages": [{"content": "hello"}]}, "role"),
    ],
)
def test_a_prompt_that_is_none_is_400_and_named(
    served: Server, route: str, asked: dict[str, Any], name: str
) -> None:
    for stream in (False, True):
        reply = served.post(route, {**asked, "stream": stream})
        assert reply.status_code == 400, reply.text
        assert name in reply.json()["error"]["message"]
        assert still_serves(served, route)


def test_fields_that_nobody_knows_are_ignored_as_in_llama_server(
    served: Server,
) -> None:
    for route in ROUTES:
        asked = body(route, "hello", max_tokens=2, wizardry={"level": 9})
        assert served.post(route, asked).status_code == 200


def test_none_of_this_is_a_fault_in_the_log(served: Server) -> None:
    levels = {event["level"] for event in served.events}
    assert levels <= {"info", "warning"}
    assert served.process.poll() is None
