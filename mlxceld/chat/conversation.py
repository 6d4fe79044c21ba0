"""The `messages` of a chat request: checked, and brought to one shape.

Clients send contents as text, as a list of text parts, or as null beside tool calls;
templates are mostly written for text. A mistake is a `ConversationError` that says
which message it is in. Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from mlxceld.chat.template import Message


class ConversationError(ValueError):
    """The messages cannot be used; `unsupported` when they only are not here."""

    def __init__(self, message: str, *, unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages for the template, and the beginning of an answer to be continued."""

    messages: tuple[Message, ...]
    prefill: str = ""
    """Text of a trailing assistant message: the answer goes on from there."""


_MEDIA = {
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "input_video": "video",
    "video_url": "video",
}


def read_conversation(
    value: Any, *, must_continue: bool = False, continues: bool = True
) -> Conversation:
    """The conversation in `messages`.

    A trailing assistant message is continued, as llama-server does, unless `continues`
    is false; with `must_continue` there has to be one. Raises ConversationError.
    """
    if value is None:
        raise ConversationError("'messages' is required")
    if not isinstance(value, list):
        raise ConversationError("Expected 'messages' to be an array")
    if not value:
        raise ConversationError("'messages' must not be empty")
    messages = [_message(item, f"messages[{i}]") for i, item in enumerate(value)]
    if messages[-1]["role"] != "assistant":
        if must_continue:
            raise ConversationError(
                "continue_final_message needs an assistant message at the end"
            )
        return Conversation(tuple(messages))
    if not continues:
        return Conversation(tuple(messages))
    if len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise ConversationError(
            "Cannot have 2 or more assistant messages at the end of the list."
        )
    if messages[-1].get("tool_calls"):
        raise ConversationError("an assistant message with tool calls cannot be last")
    # llama-server puts an empty line between the parts of what is continued.
    prefill = _content(value[-1].get("content"), "", between="\n\n")
    return Conversation(tuple(messages[:-1]), prefill)


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, dict):
        raise ConversationError(f"{where}: must be an object")
    role = item.get("role")
    if not isinstance(role, str) or not role:
        raise ConversationError(f"{where}: Missing 'role' in message")
    message = dict(item)
    calls = message.get("tool_calls")
    if calls is None:
        message.pop("tool_calls", None)
    else:
        message["tool_calls"] = _calls(calls, where)
    if "content" not in item and not (role == "assistant" and calls):
        raise ConversationError(
            f"{where}: an assistant message needs 'content' or 'tool_calls'"
            if role == "assistant"
            else f"{where}: All non-assistant messages must contain 'content'"
        )
    message["content"] = _content(item.get("content"), where)
    return message


def _content(content: Any, where: str, *, between: str = "\n") -> str:
    """Text; parts are joined by line breaks, null is empty."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ConversationError(
            f"{where}: Invalid 'content' type: expected string or array"
        )
    parts = (_part(part, f"{where}.content[{i}]") for i, part in enumerate(content))
    return between.join(parts)


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise ConversationError(f"{where}: a part must be an object with a 'type'")
    if kind in _MEDIA:
        raise ConversationError(
            f"{where}: {_MEDIA[kind]} input is not supported", unsupported=True
        )
    text = part.get("text")
    if kind not in ("text", "input_text", "output_text") or not isinstance(text, str):
        raise ConversationError(f"{where}: expected a part of type 'text' with 'text'")
    return text


def _calls(calls: Any, where: str) -> list[Any]:
    """Tool calls of an earlier turn. Arguments become objects, as templates expect."""
    if not isinstance(calls, list):
        raise ConversationError(f"{where}: Expected 'tool_calls' to be an array")
    read = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ConversationError(
                f"{where}: a tool call needs 'function' with 'name'"
            )
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                pass
            except RecursionError:
                raise ConversationError(
                    f"{where}: the arguments of a tool call are nested too deeply"
                ) from None
        read.append({**call, "function": {**function, "arguments": arguments}})
    return read
