"""OpenAI's dialect, as its own client and as raw JSON."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.api.serving import Served

HELLO = [{"role": "user", "content": "fox hello"}]
CHAT = "/v1/chat/completions"


def test_a_chat_answer_has_llama_servers_keys_in_its_order(served: Served) -> None:
    body = served.post(
        CHAT, {"model": "gpt", "messages": HELLO, "max_tokens": 3}
    ).json()
    assert list(body) == [
        "choices",
        "created",
        "model",
        "system_fingerprint",
        "object",
        "usage",
        "id",
        "timings",
    ]
    assert body["choices"] == [
        {
            "finish_reason": "length",
            "index": 0,
            "message": {"role": "assistant", "content": "The quick brown f"},
        }
    ]
    assert (body["object"], body["model"]) == ("chat.completion", "toy")
    assert list(body["usage"]) == [
        "completion_tokens",
        "prompt_tokens",
        "total_tokens",
        "prompt_tokens_details",
    ]
    assert (body["usage"]["prompt_tokens"], body["usage"]["total_tokens"]) == (2, 5)
    assert body["id"].startswith("chatcmpl-")
    assert len(body["id"]) == len("chatcmpl-") + 32


def test_a_chat_stream_opens_with_the_role_and_ends_with_done(served: Served) -> None:
    events = served.events(CHAT, {"messages": HELLO, "max_tokens": 2})
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": None},
        {"content": "The "},
        {"content": "quick br"},
        {},
    ]
    assert list(chunks[0]) == [
        "choices",
        "created",
        "id",
        "model",
        "system_fingerprint",
        "object",
    ]
    assert list(chunks[0]["choices"][0]) == ["finish_reason", "index", "delta"]
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[-1]["timings"]["predicted_n"] == 2
    assert not any("usage" in chunk for chunk in chunks)


@pytest.mark.parametrize(
    ("more", "reason"),
    [({}, "stop"), ({"stop": ["own fox"]}, "stop"), ({"max_tokens": 2}, "length")],
)
@pytest.mark.parametrize("usage", [True, False, None])
def test_exactly_one_chunk_has_the_reason_and_usage_comes_when_wanted(
    served: Served, more: dict[str, Any], reason: str, usage: bool | None
) -> None:
    asked: dict[str, Any] = {"messages": HELLO, **more}
    if usage is not None:
        asked["stream_options"] = {"include_usage": usage}
    events = served.events(CHAT, asked)
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    reasons = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
    assert [found for found in reasons if found is not None] == [reason]
    with_usage = [chunk for chunk in chunks if "usage" in chunk]
    if not usage:
        assert with_usage == []
        return
    assert with_usage == [chunks[-1]]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens"] == 2
    assert "timings" in chunks[-1]
    assert "timings" not in chunks[-2]


def test_a_completion_and_its_stream(served: Served) -> None:
    asked = {"prompt": "fox", "max_tokens": 3}
    body = served.post("/v1/completions", asked).json()
    assert list(body) == [
        "choices",
        "created",
        "model",
        "system_fingerprint",
        "object",
        "usage",
        "id",
        "timings",
    ]
    assert body["choices"] == [
        {
            "text": "The quick brown f",
            "index": 0,
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    events = served.events("/v1/completions", asked)
    assert events[-1] == "[DONE]"
    assert [e["choices"][0]["text"] for e in events[:-1]] == [
        "The ",
        "quick br",
        "own f",
        "",
    ]
    last = events[-2]
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["usage"]["completion_tokens"] == 3
    assert "timings" in last
    assert not any("usage" in event for event in events[:-2])


def test_progress_comes_in_chunks_of_their_own(served: Served) -> None:
    words = " ".join(f"p{i}" for i in range(600))
    asked = {
        "messages": [{"role": "user", "content": words}],
        "max_tokens": 1,
        "return_progress": True,
        "cache_prompt": False,
    }
    events = served.events(CHAT, asked)[:-1]
    reads = [event for event in events if "prompt_progress" in event]
    read = [event["prompt_progress"]["processed"] for event in reads]
    assert read[0] == 0
    assert len(read) > 2
    assert all(n < more for n, more in zip(read, read[1:], strict=False))
    opening = {"role": "assistant", "content": None}
    assert all(event["choices"][0]["delta"] == opening for event in reads)
    assert events[len(reads)]["choices"][0]["delta"] == opening
    assert list(reads[0]["prompt_progress"]) == [
        "total",
        "cache",
        "processed",
        "time_ms",
    ]


def test_the_prefill_is_continued_and_repeated_in_the_whole_answer(
    served: Served,
) -> None:
    messages = [{"role": "assistant", "content": "fox and"}]
    asked = {"messages": messages, "max_tokens": 1}
    body = served.post(CHAT, asked).json()
    assert body["choices"][0]["message"]["content"] == "fox andThe "
    events = served.events(CHAT, asked)
    assert events[1]["choices"][0]["delta"] == {"content": "The "}


def test_contents_of_parts_and_null_are_text(served: Served) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "fox"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "f", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
    ]
    reply = served.post("/apply-template", {"messages": messages})
    assert reply.json() == {"prompt": "fox  42 a\nb "}
    reply = served.post(CHAT, {"messages": messages, "max_tokens": 1})
    assert reply.status_code == 200
    assert reply.json()["usage"]["prompt_tokens"] == 4


MISTAKES: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "'messages' is required"),
    ({"messages": "x"}, 400, "Expected 'messages' to be an array"),
    ({"messages": []}, 400, "'messages' must not be empty"),
    ({"messages": ["x"]}, 400, "must be an object"),
    # llama-server answers this mistake of the client with 500.
    ({"messages": [{"content": "x"}]}, 400, "Missing 'role' in message"),
    (
        {"messages": [{"role": "user"}]},
        400,
        "All non-assistant messages must contain 'content'",
    ),
    ({"messages": [{"role": "user", "content": 5}]}, 400, "Invalid 'content' type"),
    (
        {"messages": [{"role": "assistant", "content": c} for c in "ab"]},
        400,
        "Cannot have 2 or more assistant messages at the end of the list.",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        501,
        "image input is not supported",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        501,
        "audio input is not supported",
    ),
    ({"messages": HELLO, "tool_choice": "zzz"}, 400, "Invalid tool_choice: zzz"),
    ({"messages": HELLO, "tools": "x"}, 400, "Expected 'tools' to be an array"),
    ({"messages": HELLO, "tools": [{"type": "function"}]}, 400, "Missing 'function'"),
    ({"messages": HELLO, "response_format": {"type": "sound"}}, 400, "response_format"),
    ({"messages": HELLO, "top_logprobs": 2}, 400, "top_logprobs requires logprobs"),
    (
        {"messages": HELLO, "top_logprobs": 2, "logprobs": False},
        400,
        "top_logprobs requires logprobs",
    ),
    (
        {"messages": HELLO, "logprobs": True, "top_logprobs": "2"},
        400,
        "Field 'top_logprobs'",
    ),
    ({"messages": HELLO, "logprobs": "yes"}, 400, "Field 'logprobs'"),
    ({"messages": HELLO, "n": 9}, 400, "between 1 <= value <= 4, but got 9"),
    (
        {
            "messages": HELLO,
            "add_generation_prompt": True,
            "continue_final_message": True,
        },
        400,
        "continue_final_message",
    ),
    ({"messages": HELLO, "continue_final_message": True}, 400, "assistant message"),
    ({"messages": HELLO, "chat_template_kwargs": [1]}, 400, "chat_template_kwargs"),
    ({"messages": [{"role": "user", "content": ""}]}, 400, "rompt"),
    ({"messages": HELLO, "max_tokens": "5"}, 400, "Field 'max_tokens'"),
]


@pytest.mark.parametrize(("body", "status", "words"), MISTAKES)
def test_mistakes_in_a_chat_request(
    served: Served, body: dict[str, Any], status: int, words: str
) -> None:
    for stream in (False, True):
        reply = served.post(CHAT, {"max_tokens": 1, **body, "stream": stream})
        assert reply.status_code == status, reply.text
        assert words in reply.json()["error"]["message"]
        assert reply.json()["error"]["code"] == status


def test_what_asks_for_nothing_passes(served: Served) -> None:
    asked = {
        "messages": HELLO,
        "max_tokens": 1,
        "tools": [],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "logprobs": False,
        "n": 1,
        "user": "somebody",
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False, "messages": []},
    }
    assert served.post(CHAT, asked).status_code == 200


def test_verbose_answers_carry_the_native_one(served: Served) -> None:
    asked = {"messages": HELLO, "max_tokens": 1, "verbose": True}
    body = served.post(CHAT, asked).json()
    assert body["__verbose"]["prompt"] == "fox hello "
    assert body["__verbose"]["tokens_evaluated"] == 2


@pytest.fixture(scope="module")
def client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)


def test_openais_client_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": "fox hello"}],
        temperature=0,
    )
    assert answer.choices[0].message.content == "The quick brown fox jumps"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    # Five pieces and the end.
    assert answer.usage.completion_tokens == 6


def test_openais_client_streams_a_chat(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": "fox hello"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "The quick brown fox jumps"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 2


def test_openais_client_completes(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="any", prompt="fox", max_tokens=2)
    assert answer.choices[0].text == "The quick br"
    parts = client.completions.create(
        model="any", prompt="fox", max_tokens=2, stream=True
    )
    assert "".join(part.choices[0].text for part in parts) == "The quick br"


def test_openais_client_lists_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["toy"]


def test_openais_client_sees_a_too_long_prompt(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="any", prompt="w " * 1100)
    assert caught.value.status_code == 400
    assert "1100" in str(caught.value)
