"""Anthropic's message requests in the form of a chat request. Pure.

One conversation, two ways to write it down: there the system text, tool calls and
tool results are blocks of contents, in a chat they are messages of their own. Fields
that a chat has no words for are left out, as llama-server does; a block that cannot be
read is a mistake, never dropped.
"""

from __future__ import annotations

import json
from typing import Any

from mlxceld.chat.checks import a_text, an_object, objects
from mlxceld.chat.conversation import ConversationError

MAX_TOKENS = 4096
"""What llama-server takes for a request without `max_tokens`."""

_SAME = (
    "temperature",
    "top_p",
    "top_k",
    "stream",
    "chat_template_kwargs",
    "seed",
    "id_slot",
    "cache_prompt",
    "sse_ping_interval",
)
"""Fields that mean the same in both: Anthropic's, and llama-server's own."""

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_request(body: dict[str, Any]) -> dict[str, Any]:
    """The chat request for a body of /v1/messages.

    Values that are passed on are checked where a chat request is. Raises
    ConversationError.
    """
    chat = {name: body[name] for name in _SAME if body.get(name) is not None}
    limit = body.get("max_tokens")
    chat["max_tokens"] = MAX_TOKENS if limit is None else limit
    chat["messages"] = _messages(body)
    if body.get("stop_sequences") is not None:
        chat["stop"] = body["stop_sequences"]
    if body.get("tools") is not None:
        chat["tools"] = [
            _tool(tool, where) for tool, where in objects(body["tools"], "tools")
        ]
    if body.get("tool_choice") is not None:
        _choose(chat, an_object(body["tool_choice"], "tool_choice"))
    if body.get("thinking") is not None:
        _think(chat, an_object(body["thinking"], "thinking"))
    config = an_object(body.get("output_config") or {}, "output_config")
    wanted = config.get("format") or body.get("output_format")
    if wanted is not None:
        chat["response_format"] = _format(an_object(wanted, "output_config.format"))
    return chat


def _messages(body: dict[str, Any]) -> list[Any]:
    messages: list[Any] = []
    if body.get("system") is not None:
        system = _texts(body["system"], "system")
        messages.append({"role": "system", "content": system})
    if body.get("messages") is None:
        raise ConversationError("'messages' is required")
    for message, where in objects(body["messages"], "messages"):
        messages += _turn(message, where)
    if not any(message.get("role") != "system" for message in messages):
        # An empty list is taken, as llama-server does: the model begins by itself.
        messages.append({"role": "user", "content": ""})
    return messages


def _turn(message: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """One message as one or several: results of tools become messages of their own.

    The order of the blocks is kept, so that a result follows the call it answers.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return [message]
    turns: list[dict[str, Any]] = []
    open_turn: dict[str, Any] | None = None
    for block, place in objects(content, f"{where}.content"):
        kind = block.get("type")
        if kind == "tool_result":
            turns.append(_result(block, place))
            open_turn = None
            continue
        if open_turn is None:
            open_turn = {"role": message.get("role"), "content": []}
            turns.append(open_turn)
        if kind == "thinking":
            thought = a_text(block.get("thinking"), f"{place}.thinking")
            earlier = open_turn.get("reasoning_content", "")
            open_turn["reasoning_content"] = earlier + thought
        elif kind == "tool_use":
            open_turn.setdefault("tool_calls", []).append(_call(block, place))
        elif kind != "redacted_thinking":
            open_turn["content"].append(_part(block, place))
    for turn in turns:
        if turn["content"] == []:
            turn["content"] = None if turn.get("tool_calls") else ""
    return turns or [{**message, "content": ""}]


def _part(block: dict[str, Any], where: str) -> dict[str, Any]:
    """A text part; of documents those that are text."""
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": a_text(block.get("text"), f"{where}.text")}
    if kind == "image":
        raise ConversationError(
            f"{where}: image input is not supported - "
            "hint: this server serves models for text only",
            unsupported=True,
        )
    if kind == "document":
        source = an_object(block.get("source"), f"{where}.source")
        if source.get("type") == "text":
            data = a_text(source.get("data"), f"{where}.source.data")
            return {"type": "text", "text": data}
        if source.get("type") == "content":
            return {"type": "text", "text": _texts(source.get("content"), where)}
        raise ConversationError(
            f"{where}: document input is not supported, except for plain text",
            unsupported=True,
        )
    raise ConversationError(f"{where}: there is no block of type {kind!r:.60}")


def _result(block: dict[str, Any], where: str) -> dict[str, Any]:
    content = block.get("content")
    return {
        "role": "tool",
        "tool_call_id": a_text(block.get("tool_use_id"), f"{where}.tool_use_id"),
        "content": "" if content is None else _texts(content, f"{where}.content", ""),
    }


def _call(block: dict[str, Any], where: str) -> dict[str, Any]:
    given = block.get("input")
    arguments = {} if given is None else an_object(given, f"{where}.input")
    return {
        "id": a_text(block.get("id", ""), f"{where}.id"),
        "type": "function",
        "function": {
            "name": a_text(block.get("name"), f"{where}.name"),
            "arguments": json.dumps(arguments, ensure_ascii=False),
        },
    }


def _tool(found: dict[str, Any], where: str) -> dict[str, Any]:
    if found.get("type") not in (None, "custom"):
        raise ConversationError(
            f"{where}: tools of type {found['type']!r:.60} are not supported"
        )
    function: dict[str, Any] = {
        "name": a_text(found.get("name"), f"{where}.name"),
        "parameters": an_object(
            found.get("input_schema") or {"type": "object"}, f"{where}.input_schema"
        ),
    }
    if found.get("description") is not None:
        description = a_text(found["description"], f"{where}.description")
        function = {"name": function["name"], "description": description, **function}
    return {"type": "function", "function": function}


def _choose(chat: dict[str, Any], choice: dict[str, Any]) -> None:
    kind = choice.get("type")
    if kind == "tool":
        name = a_text(choice.get("name"), "tool_choice.name")
        chat["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif isinstance(kind, str) and kind in _CHOICES:
        chat["tool_choice"] = _CHOICES[kind]
    else:
        raise ConversationError(
            "tool_choice.type: must be `auto`, `any`, `tool` or `none`"
        )
    if choice.get("disable_parallel_tool_use") is not None:
        chat["parallel_tool_calls"] = choice["disable_parallel_tool_use"] is not True


def _think(chat: dict[str, Any], thinking: dict[str, Any]) -> None:
    """A budget in tokens, or no thoughts at all where the template can do without."""
    if thinking.get("type") == "enabled" and thinking.get("budget_tokens") is not None:
        chat["thinking_budget_tokens"] = thinking["budget_tokens"]
    if thinking.get("type") == "disabled":
        variables = an_object(chat.get("chat_template_kwargs") or {}, "thinking")
        chat["chat_template_kwargs"] = {"enable_thinking": False, **variables}


def _format(wanted: dict[str, Any]) -> dict[str, Any]:
    if wanted.get("type") != "json_schema":
        raise ConversationError("output_config.format.type: must be `json_schema`")
    schema = an_object(wanted.get("schema"), "output_config.format.schema")
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def _texts(value: Any, where: str, between: str = "\n") -> str:
    """Text, or text blocks joined: by line breaks, as the parts of a chat are."""
    if isinstance(value, str):
        return value
    return between.join(_part(*found)["text"] for found in objects(value, where))
