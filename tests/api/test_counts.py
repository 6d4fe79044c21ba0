"""Counting the tokens of a request without answering it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.serving import Served

TALK = [{"role": "user", "content": "one two"}, {"role": "user", "content": "three"}]


@pytest.mark.parametrize(
    "path", ["/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"]
)
def test_the_tokens_of_a_chat(served: Served, path: str) -> None:
    assert served.post(path, {"messages": TALK}).json() == {
        "input_tokens": 3,
        "object": "response.input_tokens",
    }


@pytest.mark.parametrize(
    "path", ["/responses/input_tokens", "/v1/responses/input_tokens"]
)
def test_the_tokens_of_a_response(served: Served, path: str) -> None:
    asked = {"instructions": "be brief", "input": "one two"}
    assert served.post(path, asked).json() == {
        "input_tokens": 4,
        "object": "response.input_tokens",
    }


def test_the_tokens_of_a_message_and_nothing_else(served: Served) -> None:
    asked = {"system": "be brief", "messages": TALK}
    reply = served.post("/v1/messages/count_tokens", asked)
    assert reply.json() == {"input_tokens": 5}


def test_counts_are_those_of_an_answer(served: Served) -> None:
    asked = {"system": "count these", "messages": TALK, "max_tokens": 1}
    count = served.post("/v1/messages/count_tokens", asked).json()["input_tokens"]
    usage = served.post("/v1/messages", asked).json()["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/messages/count_tokens", {}, "'messages' is required"),
        ("/v1/chat/completions/input_tokens", {}, "'messages' is required"),
        ("/v1/responses/input_tokens", {}, "'input' is required"),
    ],
)
def test_a_request_without_a_text_is_400(
    served: Served, path: str, body: dict[str, Any], words: str
) -> None:
    reply = served.post(path, body)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == words
