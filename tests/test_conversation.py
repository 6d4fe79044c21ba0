"""The messages of a chat request, from whatever clients send to plain text."""

from __future__ import annotations

from typing import Any

import pytest

from mlxceld.chat.conversation import ConversationError, read_conversation

USER = {"role": "user", "content": "hi"}


def test_the_parts_of_an_answer_to_continue_have_an_empty_line_between_them() -> None:
    parts = [{"type": "text", "text": "Wh"}, {"type": "text", "text": "ill"}]
    question = {"role": "user", "content": "Who?"}
    talk = read_conversation([question, {"role": "assistant", "content": parts}])
    assert talk.prefill == "Wh\n\nill"


def test_text_parts_are_joined_by_line_breaks() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    talk = read_conversation([{"role": "user", "content": parts}])
    assert talk.messages[0]["content"] == "a\nb"


def test_null_content_beside_tool_calls_is_empty_text() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": '{"a": 1}'}}
    talk = read_conversation(
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "42"},
        ]
    )
    assert talk.messages[1]["content"] == ""
    assert talk.messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert [message["role"] for message in talk.messages] == [
        "user",
        "assistant",
        "tool",
    ]


def test_arguments_that_are_no_json_stay_text() -> None:
    call = {"function": {"name": "f", "arguments": "{broken"}}
    message = {"role": "assistant", "tool_calls": [call]}
    talk = read_conversation([USER, message, USER])
    assert talk.messages[1]["tool_calls"][0]["function"]["arguments"] == "{broken"


def test_null_tool_calls_are_none() -> None:
    message = {"role": "assistant", "content": "x", "tool_calls": None}
    assert "tool_calls" not in read_conversation([message, USER]).messages[0]


def test_a_trailing_assistant_message_is_the_beginning_of_the_answer() -> None:
    talk = read_conversation([USER, {"role": "assistant", "content": "Well,"}])
    assert [message["role"] for message in talk.messages] == ["user"]
    assert talk.prefill == "Well,"


def test_what_was_sent_is_left_as_it_was() -> None:
    sent = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    read_conversation(sent)
    assert sent == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "'messages' is required"),
        ({}, "Expected 'messages' to be an array"),
        ([], "'messages' must not be empty"),
        ([USER, "x"], "messages\\[1\\]: must be an object"),
        ([{"content": "x"}], "messages\\[0\\]: Missing 'role'"),
        ([{"role": 5, "content": "x"}], "Missing 'role'"),
        ([USER, {"role": "assistant"}, USER], "needs 'content' or 'tool_calls'"),
        ([{"role": "user", "content": [5]}], "messages\\[0\\].content\\[0\\]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "with 'text'"),
        ([{"role": "user", "content": [{"type": "smell", "text": ""}]}], "type 'text'"),
        ([{"role": "assistant", "tool_calls": 5}], "'tool_calls' to be an array"),
        ([{"role": "assistant", "tool_calls": [{}]}], "'function' with 'name'"),
        (
            [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}],
            "cannot be last",
        ),
    ],
)
def test_mistakes_say_where_they_are(value: Any, words: str) -> None:
    with pytest.raises(ConversationError, match=words) as caught:
        read_conversation(value)
    assert not caught.value.unsupported


def test_pictures_are_unsupported_and_not_wrong() -> None:
    content = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    with pytest.raises(ConversationError, match="image") as caught:
        read_conversation([{"role": "user", "content": content}])
    assert caught.value.unsupported


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 5000 + "]" * 5000])
def test_arguments_that_are_nested_without_end_are_a_mistake(text: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    with pytest.raises(ConversationError, match="messages\\[1\\]: .* too deeply"):
        read_conversation([USER, turn, USER])
