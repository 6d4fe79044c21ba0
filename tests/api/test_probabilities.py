"""Probabilities of tokens, in llama-server's dialect and in OpenAI's.

The toy engine is sure of every token: its logarithm is 0, and it is its own and only
candidate. The numbers themselves are the sampler's tests.
"""

from __future__ import annotations

from typing import Any

import openai
import pytest

from mlxceld.api.answer import Answer
from mlxceld.engine import messages as m
from tests import fake
from tests.api.serving import Served, serve

CHAT = "/v1/chat/completions"
FOX = [{"role": "user", "content": "fox"}]
PIECES = ["The ", "quick br", "own f", "ox ju", "mps"]


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [entry["token"] for entry in found]


def test_a_native_answer_has_an_entry_for_each_token(served: Served) -> None:
    asked = {"prompt": "fox", "n_predict": 2, "n_probs": 3}
    body = served.post("/completion", asked).json()
    assert list(body)[-1] == "completion_probabilities"
    entries = body["completion_probabilities"]
    assert texts(entries) == ["The ", "quick br"]
    first = entries[0]
    assert list(first) == ["id", "token", "bytes", "logprob", "top_logprobs"]
    assert (first["bytes"], first["logprob"]) == ([84, 104, 101, 32], 0.0)
    assert list(first["top_logprobs"][0]) == ["id", "token", "bytes", "logprob"]
    assert body["generation_settings"]["n_probs"] == 3


def test_a_native_stream_has_them_event_by_event(served: Served) -> None:
    events = served.events(
        "/completion", {"prompt": "fox", "n_predict": 3, "n_probs": 1}
    )
    *parts, last = events
    assert [texts(part["completion_probabilities"]) for part in parts] == [
        ["The "],
        ["quick br"],
        ["own f"],
    ]
    assert "completion_probabilities" not in last


def test_without_the_wish_there_are_none(served: Served) -> None:
    for body in ({"n_probs": 0}, {"logprobs": None}, {}):
        reply = served.post("/completion", {"prompt": "fox", "n_predict": 1, **body})
        assert "completion_probabilities" not in reply.json()


def test_a_special_token_has_no_text(served: Served) -> None:
    """The end of the answer is a token, but nothing that anybody reads."""
    body = served.post("/completion", {"prompt": "fox", "n_probs": 1}).json()
    assert texts(body["completion_probabilities"]) == [*PIECES, ""]
    assert body["completion_probabilities"][-1]["bytes"] == []


def test_several_prompts_have_their_own(served: Served) -> None:
    asked = {"prompt": ["fox", "lines"], "n_predict": 1, "n_probs": 1}
    body = served.post("/completion", asked).json()
    found = [texts(answer["completion_probabilities"]) for answer in body]
    assert found == [["The "], ["one\n"]]


def test_a_completion_has_logprobs_in_its_choice(served: Served) -> None:
    asked = {"prompt": "fox", "max_tokens": 2, "logprobs": 2}
    [choice] = served.post("/v1/completions", asked).json()["choices"]
    assert list(choice) == ["text", "index", "logprobs", "finish_reason"]
    assert list(choice["logprobs"]) == ["content"]
    assert texts(choice["logprobs"]["content"]) == ["The ", "quick br"]


def test_a_chat_answer_has_logprobs_in_its_choice(served: Served) -> None:
    asked = {"messages": FOX, "max_tokens": 2, "logprobs": True}
    [choice] = served.post(CHAT, asked).json()["choices"]
    assert list(choice) == ["finish_reason", "index", "message", "logprobs"]
    assert texts(choice["logprobs"]["content"]) == ["The ", "quick br"]
    del asked["logprobs"]
    assert "logprobs" not in served.post(CHAT, asked).json()["choices"][0]


@pytest.mark.parametrize(
    ("more", "n_probs"),
    [
        ({}, 20),
        ({"top_logprobs": 5}, 5),
        ({"top_logprobs": None}, 20),
        # The token itself is told in any case, beside one candidate.
        ({"top_logprobs": 0}, 1),
        ({"n_probs": 3}, 20),
    ],
)
def test_how_many_candidates_a_chat_asks_for(
    served: Served, more: dict[str, Any], n_probs: int
) -> None:
    asked = {"messages": FOX, "max_tokens": 1, "logprobs": True, "verbose": True}
    body = served.post(CHAT, {**asked, **more}).json()
    assert body["__verbose"]["generation_settings"]["n_probs"] == n_probs
    assert texts(body["choices"][0]["logprobs"]["content"]) == ["The "]


def test_a_chat_without_logprobs_may_ask_natively(served: Served) -> None:
    asked = {"messages": FOX, "max_tokens": 1, "n_probs": 1}
    [choice] = served.post(CHAT, asked).json()["choices"]
    assert texts(choice["logprobs"]["content"]) == ["The "]


def streamed(served: Served, path: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a stream's chunks."""
    events = served.events(path, asked)
    assert events.pop() == "[DONE]"
    return [chunk["choices"][0] for chunk in events]


def test_a_chat_stream_tells_with_each_text(served: Served) -> None:
    asked = {"messages": FOX, "max_tokens": 3, "logprobs": True, "top_logprobs": 1}
    opening, *parts, ending = streamed(served, CHAT, asked)
    assert "logprobs" not in opening
    assert "logprobs" not in ending
    for part, piece in zip(parts, PIECES, strict=False):
        assert part["delta"] == {"content": piece}
        assert list(part) == ["finish_reason", "index", "delta", "logprobs"]
        assert texts(part["logprobs"]["content"]) == [piece]


def test_a_completions_stream_tells_with_each_text(served: Served) -> None:
    asked = {"prompt": "fox", "max_tokens": 2, "logprobs": 1}
    *parts, ending = streamed(served, "/v1/completions", asked)
    assert [texts(part["logprobs"]["content"]) for part in parts] == [
        ["The "],
        ["quick br"],
    ]
    assert ending["logprobs"] is None


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_tokens_without_text_are_told_with_the_next_text(
    served: Served, path: str
) -> None:
    """A character of three tokens, and one text that is held back for a stop."""
    asked: dict[str, Any] = {"logprobs": True}
    for prompt, stop, chunks in [
        ("bytes", [], [[b"\xea", b"\xb0", b"\x80"], [b"!"], [b""]]),
        (
            "fox",
            ["own fax"],
            [[b"The "], [b"quick br"], [b"own f", b"ox ju"], [b"mps"], [b""]],
        ),
    ]:
        asked |= {"prompt": prompt, "messages": [{"role": "user", "content": prompt}]}
        parts = streamed(served, path, {**asked, "stop": stop})
        told = [part["logprobs"]["content"] for part in parts if part.get("logprobs")]
        assert [[bytes(e["bytes"]) for e in content] for content in told] == chunks
        # The end of the answer, which has no text, comes with the reason.
        assert parts[-1]["finish_reason"] == "stop"
        assert parts[-1]["logprobs"]


def test_tools_and_logprobs_do_not_go_together_in_a_stream(served: Served) -> None:
    function = {"name": "f", "parameters": {"type": "object"}}
    asked = {
        "messages": FOX,
        "max_tokens": 1,
        "logprobs": True,
        "tools": [{"type": "function", "function": function}],
    }
    reply = served.post(CHAT, {**asked, "stream": True})
    assert reply.status_code == 400
    assert "logprobs is not supported" in reply.json()["error"]["message"]
    assert served.post(CHAT, asked).status_code == 200


def test_openais_client_reads_logprobs(served: Served) -> None:
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    messages: Any = FOX
    whole = client.chat.completions.create(
        model="any", messages=messages, logprobs=True, top_logprobs=1
    )
    found = whole.choices[0].logprobs
    assert found is not None
    assert found.content is not None
    assert "".join(entry.token for entry in found.content) == "".join(PIECES)
    assert whole.choices[0].message.content == "".join(PIECES)
    assert found.content[0].logprob == 0.0
    told = ""
    for chunk in client.chat.completions.create(
        model="any", messages=messages, logprobs=True, top_logprobs=1, stream=True
    ):
        if chunk.choices[0].logprobs and chunk.choices[0].logprobs.content:
            told += "".join(e.token for e in chunk.choices[0].logprobs.content)
    assert told == "".join(PIECES)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six candidates may be held: with two for each token, three tokens."""
    monkeypatch.setattr("mlxceld.api.answer.MOST_CANDIDATES", 6)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("path", ["/completion", "/v1/completions", CHAT])
def test_a_whole_answer_holds_only_so_many(served: Served, path: str) -> None:
    asked = {"prompt": "fox", "messages": FOX, "n_probs": 1, "logprobs": 1}
    if path == CHAT:
        asked |= {"logprobs": True, "top_logprobs": 1}
    assert served.post(path, {**asked, "n_predict": 3}).status_code == 200
    reply = served.post(path, {**asked, "n_predict": 5})
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == (
        "more than 6 probabilities would have to be held at once: "
        "ask for fewer with `n_probs`, or for a stream"
    )
    served.until(served.idle)


@pytest.mark.usefixtures("few")
def test_several_answers_share_what_may_be_held(served: Served) -> None:
    asked = {"messages": FOX, "logprobs": True, "top_logprobs": 1, "max_tokens": 4}
    assert served.post(CHAT, asked).status_code == 200
    assert served.post(CHAT, {**asked, "n": 2}).status_code == 400


def test_a_stream_tells_more_than_may_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxceld.api.answer.MOST_CANDIDATES", 50)
    asked = {"messages": FOX, "logprobs": True, "top_logprobs": 1, "max_tokens": 20}
    with serve(fake.Script(step_seconds=0.02)) as served:
        events = served.events(CHAT, {**asked, "n": 2})
    found = [
        entry
        for event in events[:-1]
        for choice in event["choices"]
        for entry in (choice.get("logprobs") or {"content": []})["content"]
    ]
    # Forty tokens, and twenty-five may wait.
    assert texts(found) == ["x "] * 40


def test_each_answer_of_a_stream_may_hold_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of a step come together, however little may be held."""
    monkeypatch.setattr("mlxceld.api.answer.MOST_CANDIDATES", 1)
    asked = {"messages": FOX, "logprobs": True, "top_logprobs": 1, "max_tokens": 4}
    with serve(fake.Script(step_seconds=0.2)) as served:
        events = served.events(CHAT, {**asked, "n": 4})
    assert events[-1] == "[DONE]"
    assert not any("error" in event for event in events[:-1])


def test_one_token_may_have_the_whole_vocabulary(served: Served) -> None:
    """A million and one candidates, of which the toy engine tells one."""
    asked = {"prompt": "fox", "n_predict": 1, "n_probs": 2**31 - 1}
    assert served.post("/completion", asked).status_code == 200


def test_what_a_stream_has_told_is_not_kept() -> None:
    told, whole = Answer(0, told=True), Answer(1)
    entry = m.TokenProbability(5, b"x", 0.0, [])
    for answer in (told, whole):
        answer.take(m.Delta(1, "x", [5], 1, probabilities=[entry]), now=1.0)
    assert (told.probabilities, whole.probabilities) == ([], [entry])
