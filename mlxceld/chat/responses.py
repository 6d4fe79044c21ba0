"""Requests of OpenAI's Responses API in the form of a chat request. Pure.

Items of `input` are messages, calls of functions, their results and reasoning; in a
chat the last three belong to messages. Nothing is stored here, so a request that
refers to an earlier response is refused. Hosted tools (web search and the like) are
left out, as llama-server does: a model without them answers by itself.
"""

from __future__ import annotations

from typing import Any

from mlxceld.chat.checks import a_text, an_object, objects
from mlxceld.chat.conversation import ConversationError

_RENAMED = {"max_output_tokens": "max_tokens"}

_OWN = frozenset(
    {
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "reasoning",
        "text",
        "messages",
        "prompt",
        # One answer, without alternatives and their odds.
        "n",
        "n_cmpl",
        "logprobs",
        "top_logprobs",
        "n_probs",
    }
)
"""Fields that mean something else here, or nothing; all others are passed on."""

_STORED = ("previous_response_id", "conversation", "prompt")


def chat_request(body: dict[str, Any]) -> dict[str, Any]:
    """The chat request for a body of /v1/responses.

    Values that are passed on are checked where a chat request is. Raises
    ConversationError.
    """
    for name in _STORED:
        if body.get(name) is not None:
            raise ConversationError(
                f"this server does not support '{name}': it keeps no responses"
            )
    if body.get("background") is True:
        raise ConversationError("this server does not support 'background'")
    chat = {
        _RENAMED.get(name, name): value
        for name, value in body.items()
        if name not in _OWN and value is not None
    }
    chat["messages"] = _messages(body)
    if body.get("tools") is not None:
        tools = [_tool(*found) for found in objects(body["tools"], "tools")]
        chat["tools"] = [tool for tool in tools if tool is not None]
    choice = body.get("tool_choice")
    if choice is not None:
        chat["tool_choice"] = _choice(choice)
    reasoning = an_object(body.get("reasoning") or {}, "reasoning")
    if reasoning.get("effort") is not None:
        chat["reasoning_effort"] = reasoning["effort"]
    wanted = an_object(body.get("text") or {}, "text").get("format")
    if wanted is not None:
        chat["response_format"] = _format(an_object(wanted, "text.format"))
    return chat


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    given = body.get("input")
    if given is None:
        raise ConversationError("'input' is required")
    messages: list[dict[str, Any]] = []
    if body.get("instructions") is not None:
        words = a_text(body["instructions"], "instructions")
        messages.append({"role": "system", "content": words})
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
        return messages
    if not given and not messages:
        raise ConversationError("'input' must not be empty")
    for item, where in objects(given, "input"):
        _add(messages, item, where)
    return messages


def _add(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        _add_message(messages, item, where)
    elif kind == "function_call":
        _turn_of_the_model(messages).setdefault("tool_calls", []).append(
            {
                "id": _call_id(item, where),
                "type": "function",
                "function": {
                    "name": a_text(item.get("name"), f"{where}.name"),
                    "arguments": a_text(item.get("arguments"), f"{where}.arguments"),
                },
            }
        )
    elif kind == "function_call_output":
        messages.append(
            {
                "role": "tool",
                "tool_call_id": _call_id(item, where),
                "content": _words(item.get("output"), f"{where}.output"),
            }
        )
    elif kind == "reasoning":
        turn = _turn_of_the_model(messages)
        earlier = turn.get("reasoning_content", "")
        turn["reasoning_content"] = earlier + _thought(item, where)
    else:
        raise ConversationError(
            f"{where}: items of type {kind!r:.60} are not supported", unsupported=True
        )


def _call_id(item: dict[str, Any], where: str) -> str:
    """The id that the model knows: answers put `call_` before it."""
    return a_text(item.get("call_id"), f"{where}.call_id").removeprefix("call_")


def _add_message(
    messages: list[dict[str, Any]], item: dict[str, Any], where: str
) -> None:
    role = a_text(item.get("role"), f"{where}.role")
    content = _words(item.get("content"), f"{where}.content")
    if role == "developer":
        # Templates know the older word for it.
        role = "system"
    only_systems = all(message["role"] == "system" for message in messages)
    if role == "system" and messages and only_systems:
        # Most templates take one system text, at the beginning.
        messages[-1]["content"] += "\n\n" + content
    elif role == "assistant" and (turn := _last_turn(messages)) and _is_open(turn):
        turn["content"] = content
    else:
        messages.append({"role": role, "content": content})


def _last_turn(messages: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The model's turn at the end of the list, to which an item may belong."""
    last = messages[-1] if messages else None
    return last if last is not None and last["role"] == "assistant" else None


def _is_open(turn: dict[str, Any]) -> bool:
    """Whether a turn has thoughts and no words yet."""
    return not turn["content"] and "tool_calls" not in turn


def _turn_of_the_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    turn = _last_turn(messages)
    if turn is None:
        turn = {"role": "assistant", "content": ""}
        messages.append(turn)
    return turn


def _words(content: Any, where: str) -> str:
    """Text, or the texts of parts; pictures and files are not supported."""
    if isinstance(content, str):
        return content
    found = []
    for part, place in objects(content, where):
        kind = part.get("type")
        if kind in ("input_image", "input_file", "input_audio"):
            medium = kind.removeprefix("input_")
            raise ConversationError(
                f"{place}: {medium} input is not supported", unsupported=True
            )
        if kind == "refusal":
            found.append(a_text(part.get("refusal"), f"{place}.refusal"))
        elif kind in ("input_text", "output_text", "text"):
            found.append(a_text(part.get("text"), f"{place}.text"))
        else:
            raise ConversationError(f"{place}: there is no part of type {kind!r:.60}")
    return "\n".join(found)


def _thought(item: dict[str, Any], where: str) -> str:
    """The text of a reasoning item: its content, or else its summary."""
    for name in ("content", "summary"):
        if item.get(name):
            parts = objects(item[name], f"{where}.{name}")
            return "".join(
                a_text(part.get("text"), f"{place}.text") for part, place in parts
            )
    return ""


def _tool(tool: dict[str, Any], where: str) -> dict[str, Any] | None:
    if tool.get("type") != "function":
        return None
    function = {
        name: tool[name]
        for name in ("name", "description", "parameters", "strict")
        if tool.get(name) is not None
    }
    a_text(function.get("name"), f"{where}.name")
    return {"type": "function", "function": function}


def _choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "function":
        name = a_text(choice.get("name"), "tool_choice.name")
        return {"type": "function", "function": {"name": name}}
    if choice.get("type") == "allowed_tools":
        return choice.get("mode", "auto")
    return "auto"


def _format(wanted: dict[str, Any]) -> dict[str, Any]:
    if wanted.get("type") != "json_schema":
        return {"type": wanted.get("type")}
    inner = {name: value for name, value in wanted.items() if name != "type"}
    return {"type": "json_schema", "json_schema": inner}
