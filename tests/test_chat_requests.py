"""Requests of other dialects in the form of a chat request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlxceld.chat import anthropic, responses
from mlxceld.chat.conversation import ConversationError

USER = {"role": "user", "content": "hi"}


def turns(*messages: Any, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = anthropic.chat_request(
        {"messages": list(messages), **more}
    )["messages"]
    return found


def test_a_plain_message_needs_nothing_but_a_limit() -> None:
    assert anthropic.chat_request({"model": "m", "messages": [USER]}) == {
        "max_tokens": 4096,
        "messages": [USER],
    }


def test_fields_with_other_names_and_fields_that_stay() -> None:
    chat = anthropic.chat_request(
        {
            "messages": [USER],
            "max_tokens": 7,
            "stop_sequences": ["a"],
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 5,
            "stream": True,
            "metadata": {"user_id": "u"},
            "service_tier": "auto",
            "thinking": {"type": "enabled", "budget_tokens": 50},
        }
    )
    assert chat == {
        "messages": [USER],
        "max_tokens": 7,
        "stop": ["a"],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "stream": True,
        "thinking_budget_tokens": 50,
    }


def test_no_messages_at_all_are_one_empty_turn() -> None:
    assert turns() == [{"role": "user", "content": ""}]
    assert turns(system="s") == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": ""},
    ]


def test_results_and_texts_keep_their_order() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "42"}
    text = {"type": "text", "text": "so?"}
    tool = {"role": "tool", "tool_call_id": "t", "content": "42"}
    user = {"role": "user", "content": [text]}
    assert turns({"role": "user", "content": [result, text]}) == [tool, user]
    assert turns({"role": "user", "content": [text, result]}) == [user, tool]


def test_a_result_of_several_texts_is_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    result = {"type": "tool_result", "tool_use_id": "t", "content": parts}
    (tool,) = turns({"role": "user", "content": [result]})
    assert tool["content"] == "ab"


def test_a_turn_of_the_model_with_thought_and_call() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "tool_use", "id": "t", "name": "sky", "input": {"é": 1}},
    ]
    (turn,) = turns({"role": "assistant", "content": blocks})
    assert turn == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [
            {
                "id": "t",
                "type": "function",
                "function": {"name": "sky", "arguments": '{"é": 1}'},
            }
        ],
    }


def test_documents_of_text_are_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "the words"}
    (turn,) = turns(
        {"role": "user", "content": [{"type": "document", "source": source}]}
    )
    assert turn["content"] == [{"type": "text", "text": "the words"}]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {}},
        {"type": "document", "source": {"type": "base64"}},
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "image", "source": {}}],
        },
    ],
)
def test_what_is_no_text_is_unsupported(block: dict[str, Any]) -> None:
    with pytest.raises(ConversationError) as refused:
        turns({"role": "user", "content": [block]})
    assert refused.value.unsupported
    assert "input is not supported" in str(refused.value)


def test_tools_and_the_choice_among_them() -> None:
    schema = {"type": "object", "properties": {}}
    asked = {
        "messages": [USER],
        "tools": [{"name": "sky", "description": "d", "input_schema": schema}],
        "tool_choice": {
            "type": "tool",
            "name": "sky",
            "disable_parallel_tool_use": True,
        },
    }
    chat = anthropic.chat_request(asked)
    assert chat["tools"] == [
        {
            "type": "function",
            "function": {"name": "sky", "description": "d", "parameters": schema},
        }
    ]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "sky"}}
    assert chat["parallel_tool_calls"] is False
    for theirs, ours in (("auto", "auto"), ("any", "required"), ("none", "none")):
        asked["tool_choice"] = {"type": theirs}
        assert anthropic.chat_request(asked)["tool_choice"] == ours


def test_an_output_format_is_a_schema() -> None:
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    chat = anthropic.chat_request(
        {"messages": [USER], "output_config": {"format": wanted}}
    )
    assert chat["response_format"] == {
        "type": "json_schema",
        "json_schema": {"schema": {"type": "object"}},
    }


def test_thinking_is_off_when_it_is_disabled() -> None:
    asked = {"messages": [USER], "thinking": {"type": "disabled"}}
    kwargs = anthropic.chat_request(asked)["chat_template_kwargs"]
    assert kwargs == {"enable_thinking": False}


def said(*items: Any, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = responses.chat_request(
        {"input": list(items), **more}
    )["messages"]
    return found


def test_a_text_is_a_turn_of_the_user_after_the_instructions() -> None:
    chat = responses.chat_request(
        {
            "model": "m",
            "input": "hi",
            "instructions": "be brief",
            "max_output_tokens": 6,
        }
    )
    assert chat == {
        "model": "m",
        "max_tokens": 6,
        "messages": [{"role": "system", "content": "be brief"}, USER],
    }


def test_system_texts_at_the_beginning_are_one() -> None:
    developer = {"role": "developer", "content": "and kind"}
    assert said(developer, USER, instructions="be brief") == [
        {"role": "system", "content": "be brief\n\nand kind"},
        USER,
    ]
    assert [turn["role"] for turn in said(USER, developer)] == ["user", "system"]


def test_reasoning_text_and_calls_are_one_turn_of_the_model() -> None:
    thought = {"type": "reasoning_text", "text": "hm"}
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_abc",
        "name": "sky",
        "arguments": "{}",
    }
    found = said(
        USER,
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [thought]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me see."}],
        },
        call,
        {**call, "call_id": "call_def"},
        {"type": "function_call_output", "call_id": "call_abc", "output": "blue"},
        {
            "type": "function_call_output",
            "call_id": "call_def",
            "output": [{"type": "input_text", "text": "grey"}],
        },
    )
    function = {"name": "sky", "arguments": "{}"}
    assert found == [
        USER,
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "abc", "type": "function", "function": function},
                {"id": "def", "type": "function", "function": function},
            ],
        },
        {"role": "tool", "tool_call_id": "abc", "content": "blue"},
        {"role": "tool", "tool_call_id": "def", "content": "grey"},
    ]


def test_a_summary_stands_for_thoughts_that_are_not_told() -> None:
    summary = [{"type": "summary_text", "text": "short"}]
    (turn,) = said({"type": "reasoning", "id": "r", "summary": summary})
    assert turn["reasoning_content"] == "short"


def test_hosted_tools_are_left_out() -> None:
    chat = responses.chat_request(
        {
            "input": "hi",
            "tools": [{"type": "web_search"}, {"type": "function", "name": "sky"}],
            "tool_choice": {"type": "function", "name": "sky"},
        }
    )
    function = {"type": "function", "function": {"name": "sky"}}
    assert chat["tools"] == [function]
    assert chat["tool_choice"] == function


def test_effort_and_format_have_other_places() -> None:
    chat = responses.chat_request(
        {
            "input": "hi",
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
            "top_logprobs": 3,
        }
    )
    assert chat["reasoning_effort"] == "low"
    assert chat["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {}},
    }
    assert "top_logprobs" not in chat


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "prompt"])
def test_nothing_is_kept_that_a_request_could_refer_to(name: str) -> None:
    with pytest.raises(ConversationError, match=f"does not support '{name}'"):
        responses.chat_request({"input": "hi", name: "x"})


def test_every_request_can_be_written_as_json_again() -> None:
    chat = anthropic.chat_request({"messages": [USER], "system": "s"})
    assert json.loads(json.dumps(chat)) == chat
