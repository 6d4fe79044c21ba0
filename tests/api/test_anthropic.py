"""Anthropic's dialect, as its own client and as raw events."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from tests.api.serving import Served

PATH = "/v1/messages"
FOX = [{"role": "user", "content": "fox hello"}]


def named_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Every event of a stream with its name; frames are two lines, comments aside."""
    found = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        if frame.startswith(":"):
            continue
        first, second = frame.split("\n")
        assert first.startswith("event: ")
        assert second.startswith("data: ")
        data = json.loads(second.removeprefix("data: "))
        found.append((first.removeprefix("event: "), data))
    return found


def stream(served: Served, **asked: Any) -> list[tuple[str, dict[str, Any]]]:
    reply = served.post(PATH, {"messages": FOX, "stream": True, **asked})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "text/event-stream"
    return named_events(reply.text)


def test_an_answer_has_llama_servers_keys_in_its_order(served: Served) -> None:
    body = served.post(
        PATH, {"model": "m", "max_tokens": 3, "messages": FOX, "cache_prompt": False}
    ).json()
    assert body.pop("id").startswith("msg_")
    assert list(body.items()) == [
        ("type", "message"),
        ("role", "assistant"),
        ("content", [{"type": "text", "text": "The quick brown f"}]),
        ("model", "toy"),
        ("stop_reason", "max_tokens"),
        ("stop_sequence", None),
        (
            "usage",
            {"cache_read_input_tokens": 0, "input_tokens": 2, "output_tokens": 3},
        ),
    ]


def test_a_stream_tells_a_message_block_by_block(served: Served) -> None:
    events = stream(served, max_tokens=2)
    assert [name for name, _ in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(data["type"] == name for name, data in events)
    message = events[0][1]["message"]
    assert message["content"] == []
    assert message["stop_reason"] is None
    usage = message["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == 2
    assert usage["output_tokens"] == 0
    assert events[1][1] == {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    assert events[2][1]["delta"] == {"type": "text_delta", "text": "The "}
    assert events[4][1] == {"type": "content_block_stop", "index": 0}
    assert events[5][1] == {
        "type": "message_delta",
        "delta": {"stop_reason": "max_tokens", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    }
    assert events[6][1] == {"type": "message_stop"}


@pytest.mark.parametrize(
    ("asked", "reason", "word"),
    [
        ({}, "end_turn", None),
        ({"max_tokens": 2}, "max_tokens", None),
        ({"stop_sequences": ["own fox"]}, "stop_sequence", "own fox"),
    ],
)
def test_the_reason_is_the_same_streamed_or_not(
    served: Served, asked: dict[str, Any], reason: str, word: str | None
) -> None:
    body = served.post(PATH, {"messages": FOX, **asked}).json()
    assert (body["stop_reason"], body["stop_sequence"]) == (reason, word)
    events = stream(served, **asked)
    assert events[-2][1]["delta"] == {"stop_reason": reason, "stop_sequence": word}
    texts = [
        data["delta"]["text"] for name, data in events if name == "content_block_delta"
    ]
    assert "".join(texts) == body["content"][0]["text"]


def test_the_end_of_the_model_alone_is_a_message_without_blocks(served: Served) -> None:
    """The fake's answer to this prompt has no token but the end."""
    asked = {"messages": [{"role": "user", "content": "silence"}]}
    body = served.post(PATH, asked).json()
    assert (body["content"], body["stop_reason"]) == ([], "end_turn")
    events = named_events(served.post(PATH, {**asked, "stream": True}).text)
    names = [name for name, _ in events]
    assert names == ["message_start", "message_delta", "message_stop"]


def test_a_failure_before_the_first_token_is_a_status(served: Served) -> None:
    asked = {"messages": [{"role": "user", "content": "boom now"}], "stream": True}
    reply = served.post(PATH, asked)
    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "server_error"
    long = {"messages": [{"role": "user", "content": "w " * 2000}], "stream": True}
    reply = served.post(PATH, long)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "exceed_context_size_error"
    assert reply.json()["error"]["n_prompt_tokens"] == 2000


def test_a_failure_half_way_is_an_error_event_and_the_end(served: Served) -> None:
    events = stream(served, messages=[{"role": "user", "content": "later"}])
    assert [name for name, _ in events][-2:] == ["content_block_delta", "error"]
    assert events[-1][1] == {
        "code": 500,
        "message": "scripted fault in a step",
        "type": "server_error",
    }


def test_system_and_tool_turns_reach_the_template(served: Served) -> None:
    """The fake's template writes down every content; the first word chooses."""
    asked = {
        "system": [{"type": "text", "text": "fox"}, {"type": "text", "text": "trots"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "t1", "name": "sky", "input": {"a": 1}}
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
                    {"type": "text", "text": "thanks"},
                ],
            },
        ],
        "max_tokens": 1,
    }
    body = served.post(PATH, asked).json()
    assert body["content"] == [{"type": "text", "text": "The "}]
    usage = body["usage"]
    # fox trots weather? sunny thanks
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == 5


def test_a_prefilled_turn_is_continued_and_not_repeated(served: Served) -> None:
    talk = [*FOX, {"role": "assistant", "content": "Well,"}]
    body = served.post(PATH, {"messages": talk, "max_tokens": 1}).json()
    assert body["content"] == [{"type": "text", "text": "The "}]


def test_pictures_are_refused_with_llama_servers_status(served: Served) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    talk = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    reply = served.post(PATH, {"messages": talk})
    assert reply.status_code == 500
    assert "image input is not supported" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({}, "'messages' is required"),
        ({"messages": 5}, "messages: must be an array"),
        ({"messages": ["hi"]}, "messages[0]: must be an object"),
        (
            {"messages": [{"role": "user", "content": [{"type": "poem"}]}]},
            "messages[0].content[0]: there is no block of type 'poem'",
        ),
        ({"messages": FOX, "tools": [{}]}, "tools[0].name: must be a string"),
        (
            {"messages": FOX, "tool_choice": {"type": "perhaps"}},
            "tool_choice.type: must be `auto`, `any`, `tool` or `none`",
        ),
    ],
)
def test_a_mistake_is_400_and_says_where(
    served: Served, asked: dict[str, Any], where: str
) -> None:
    reply = served.post(PATH, asked)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == where


@pytest.fixture
def client(served: Served) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0)


def test_the_client_reads_an_answer(client: anthropic.Anthropic) -> None:
    message = client.messages.create(
        model="toy", max_tokens=3, messages=[{"role": "user", "content": "fox"}]
    )
    (block,) = message.content
    assert block.type == "text"
    assert block.text == "The quick brown f"
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 3


def test_the_client_reads_a_stream(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model="toy", max_tokens=3, messages=[{"role": "user", "content": "fox"}]
    ) as running:
        assert list(running.text_stream) == ["The ", "quick br", "own f"]
        message = running.get_final_message()
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 3


def test_the_client_counts(client: anthropic.Anthropic) -> None:
    count = client.messages.count_tokens(
        model="toy", messages=[{"role": "user", "content": "fox and hen"}]
    )
    assert count.input_tokens == 3


def test_the_client_raises_what_it_raises_for_such_a_status(
    client: anthropic.Anthropic,
) -> None:
    with pytest.raises(anthropic.BadRequestError, match="exceeds the available"):
        client.messages.create(
            model="toy",
            max_tokens=3,
            messages=[{"role": "user", "content": "w " * 2000}],
        )
    with (
        pytest.raises(anthropic.APIStatusError),
        client.messages.stream(
            model="toy", max_tokens=9, messages=[{"role": "user", "content": "later"}]
        ) as running,
    ):
        running.until_done()
