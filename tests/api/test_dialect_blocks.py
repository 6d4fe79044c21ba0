"""Thoughts and calls of tools in Anthropic's messages and OpenAI's responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.api.serving import Served, serve
from tests.api.test_anthropic import named_events
from tests.api.test_tools import SCRIPT

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "weather", "description": "tells it", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "name": "weather", "parameters": SCHEMA}


@pytest.fixture(scope="module")
def caller() -> Iterator[Served]:
    """Thinks `hm`, says `Let me see.` and calls the weather in Bonn."""
    with serve(SCRIPT) as running:
        yield running


def message(words: str, **more: Any) -> dict[str, Any]:
    talk = [{"role": "user", "content": words}]
    return {"messages": talk, "tools": [WEATHER], **more}


def test_a_message_has_a_block_for_each_thought_text_and_call(caller: Served) -> None:
    body = caller.post("/v1/messages", message("ask")).json()
    thought, text, call = body["content"]
    assert thought == {"type": "thinking", "thinking": "hm", "signature": ""}
    assert text == {"type": "text", "text": "Let me see."}
    assert call.pop("id")
    assert call == {"type": "tool_use", "name": "weather", "input": {"city": "Bonn"}}
    assert (body["stop_reason"], body["stop_sequence"]) == ("tool_use", None)


def test_a_stream_opens_and_closes_one_block_after_the_other(caller: Served) -> None:
    text = caller.post("/v1/messages", message("ask", stream=True)).text
    events = [data for _, data in named_events(text)]
    blocks = [data for data in events if data["type"].startswith("content_block")]
    indices = [data["index"] for data in blocks]
    assert indices == sorted(indices)
    for index, kind in enumerate(("thinking", "text", "tool_use")):
        own = [data for data in blocks if data["index"] == index]
        assert own[0]["type"] == "content_block_start"
        assert own[0]["content_block"]["type"] == kind
        assert own[-1]["type"] == "content_block_stop"
    kinds = [data["delta"]["type"] for data in blocks if "delta" in data]
    assert list(dict.fromkeys(kinds)) == [
        "thinking_delta",
        "signature_delta",
        "text_delta",
        "input_json_delta",
    ]
    pieces = [
        data["delta"].get("partial_json", "") for data in blocks if "delta" in data
    ]
    assert json.loads("".join(pieces)) == {"city": "Bonn"}
    (start,) = [
        data["content_block"]
        for data in blocks
        if data.get("content_block", {}).get("type") == "tool_use"
    ]
    assert (start["name"], start["input"]) == ("weather", {})
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_two_calls_are_two_blocks(caller: Served) -> None:
    body = caller.post("/v1/messages", message("twice")).json()
    assert [block["type"] for block in body["content"]] == ["tool_use", "tool_use"]
    assert body["content"][0]["id"] != body["content"][1]["id"]


def test_no_tools_are_called_when_the_request_says_none(caller: Served) -> None:
    asked = message("ask", tool_choice={"type": "none"})
    body = caller.post("/v1/messages", asked).json()
    assert [block["type"] for block in body["content"]] == ["thinking", "text"]
    assert "<tool_call>" in body["content"][1]["text"]
    assert body["stop_reason"] == "end_turn"


def test_thoughts_can_be_switched_off(caller: Served) -> None:
    asked = message("ask", thinking={"type": "disabled"})
    body = caller.post("/v1/messages", asked).json()
    assert [block["type"] for block in body["content"]] == ["text", "tool_use"]


def test_an_answer_that_is_cut_within_a_call_has_no_half_arguments(
    caller: Served,
) -> None:
    body = caller.post("/v1/messages", message("ask", max_tokens=5)).json()
    assert body["content"][-1]["type"] == "tool_use"
    assert body["content"][-1]["input"] == {}
    assert body["stop_reason"] == "max_tokens"


def test_thoughts_of_earlier_turns_reach_the_template(caller: Served) -> None:
    talk = [
        {"role": "user", "content": "ask"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "let me", "signature": ""},
                {
                    "type": "tool_use",
                    "id": "a",
                    "name": "weather",
                    "input": {"city": "Bonn"},
                },
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "wet"}],
        },
    ]
    asked = {"messages": talk, "tools": [WEATHER], "max_tokens": 2}
    assert caller.post("/v1/messages", asked).status_code == 200


def test_the_client_collects_thoughts_and_calls(caller: Served) -> None:
    client = anthropic.Anthropic(base_url=caller.url, api_key="none", max_retries=0)
    with client.messages.stream(
        model="toy",
        max_tokens=50,
        messages=[{"role": "user", "content": "ask"}],
        tools=[{"name": "weather", "input_schema": {"type": "object"}}],
    ) as running:
        found = running.get_final_message()
    thought, text, call = found.content
    assert thought.type == "thinking"
    assert thought.thinking == "hm"
    assert text.type == "text"
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("weather", {"city": "Bonn"})
    assert found.stop_reason == "tool_use"


def response(words: str, **more: Any) -> dict[str, Any]:
    return {"input": words, "tools": [FUNCTION, {"type": "web_search"}], **more}


def test_a_response_has_an_item_for_each_thought_text_and_call(caller: Served) -> None:
    body = caller.post("/v1/responses", response("ask")).json()
    thought, text, call = body["output"]
    assert thought["id"].startswith("rs_")
    assert thought["type"] == "reasoning"
    assert thought["content"] == [{"text": "hm", "type": "reasoning_text"}]
    assert text["content"][0]["text"] == "Let me see."
    assert call["id"].startswith("fc_")
    assert call["call_id"].startswith("call_")
    assert (call["type"], call["name"]) == ("function_call", "weather")
    assert json.loads(call["arguments"]) == {"city": "Bonn"}
    assert call["status"] == "completed"


def test_the_events_of_items_that_are_no_text(caller: Served) -> None:
    text = caller.post("/v1/responses", response("ask", stream=True)).text
    names = list(dict.fromkeys(name for name, _ in named_events(text)))
    assert names == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.output_item.done",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.completed",
    ]
    added = [d for n, d in named_events(text) if n == "response.output_item.added"]
    assert [data["output_index"] for data in added] == [0, 1, 2]


def test_the_openai_client_collects_calls_and_sends_their_results(
    caller: Served,
) -> None:
    client = openai.OpenAI(base_url=f"{caller.url}/v1", api_key="none", max_retries=0)
    tools: Any = [FUNCTION]
    with client.responses.stream(model="toy", input="ask", tools=tools) as running:
        found = running.get_final_response()
    (call,) = [item for item in found.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Bonn"}
    talk: Any = [
        {"role": "user", "content": "ask"},
        *[item.model_dump(exclude_none=True) for item in found.output],
        {"type": "function_call_output", "call_id": call.call_id, "output": "wet"},
    ]
    again = client.responses.create(model="toy", input=talk, tools=tools)
    assert again.status == "completed"
