"""The tools of a chat request: checked, for the template, and as a constraint.

Fields are OpenAI's: `tools`, `tool_choice`, `parallel_tool_calls`. A mistake is a
`ToolError` in llama-server's words. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlxceld.chat.bodies import Schemas
from mlxceld.chat.template import Message

CHOICES = ("auto", "none", "required")

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


class ToolError(ValueError):
    """The tools, or the choice among them, cannot be used."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a request lets the model call."""

    listed: tuple[dict[str, Any], ...] = ()
    """As the template sees them: OpenAI's objects, complete with parameters."""
    required: bool = False
    """Whether the answer must be a call, of one of `allowed`."""
    allowed: tuple[str, ...] = ()
    parallel: bool = True

    def __bool__(self) -> bool:
        return bool(self.listed)

    @property
    def schemas(self) -> Schemas:
        """JSON schemas of the arguments, by the tools' names."""
        return {
            tool["function"]["name"]: tool["function"]["parameters"]
            for tool in self.listed
        }


def read_tools(tools: Any, choice: Any, parallel: Any) -> Tools:
    """The tools of a request; none when it says so. Raises ToolError.

    A choice that is an object names the function to call; an object of another kind
    means `auto`, as in llama-server.
    """
    if parallel is not None and not isinstance(parallel, bool):
        raise ToolError("'parallel_tool_calls' must be a boolean")
    wanted, named = _choice(choice)
    listed = tuple(_tool(tool) for tool in _list(tools))
    names = tuple(tool["function"]["name"] for tool in listed)
    if named and named not in names:
        raise ToolError(f"Invalid tool_choice: there is no tool {named[:64]!r}")
    if wanted == "none":
        return Tools()
    if wanted == "required" and not listed:
        raise ToolError("tool_choice 'required' needs 'tools'")
    return Tools(
        listed,
        required=wanted == "required",
        allowed=(named,) if named else names,
        parallel=parallel is not False,
    )


def _choice(choice: Any) -> tuple[str, str]:
    """One of `CHOICES`, and the function that was named."""
    if choice is None:
        return "auto", ""
    if isinstance(choice, str):
        if choice not in CHOICES:
            raise ToolError(f"Invalid tool_choice: {choice[:40]}")
        return choice, ""
    if not isinstance(choice, dict):
        raise ToolError("'tool_choice' must be a string or an object")
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    if choice.get("type") != "function" or not isinstance(name, str) or not name:
        return "auto", ""
    return "required", name


def _list(tools: Any) -> list[Any]:
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise ToolError("Failed to parse tools: Expected 'tools' to be an array")
    return tools


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise ToolError("Failed to parse tools: a tool must be an object")
    kind = tool.get("type")
    if kind != "function":
        words = json.dumps(kind)[:40] if "type" in tool else "no 'type'"
        raise ToolError(f"Failed to parse tools: Unsupported tool type: {words}")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise ToolError("Failed to parse tools: Missing 'function' in tool")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ToolError("Failed to parse tools: Missing 'name' in function")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {**_ANY_OBJECT, "properties": {}}
    if not isinstance(parameters, dict):
        raise ToolError("Failed to parse tools: 'parameters' must be an object")
    described = function.get("description")
    if described is not None and not isinstance(described, str):
        raise ToolError("Failed to parse tools: 'description' must be a string")
    whole = {**function, "description": described or "", "parameters": parameters}
    return {**tool, "function": whole}


def call_schema(tools: Tools) -> dict[str, Any]:
    """A JSON schema of one call of an allowed tool, `{"name": ..., "arguments": ...}`.

    References inside of a tool's own schema are made to fit their new place.
    """
    calls: list[dict[str, Any]] = []
    for name, parameters in tools.schemas.items():
        if name not in tools.allowed:
            continue
        place = f"#/anyOf/{len(calls)}/properties/arguments"
        # The arguments are an object even where the tool's schema leaves that open.
        arguments = {**_ANY_OBJECT, **_moved(parameters, place)}
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": name}, "arguments": arguments},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return {"anyOf": calls}


def _moved(schema: Any, place: str) -> Any:
    """A schema with its references to itself prefixed by where it stands now."""
    if isinstance(schema, list):
        return [_moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value, place) for key, value in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = place + reference[1:]
    return moved


def told_in_words(messages: Sequence[Message], tools: Tools) -> list[Message]:
    """The conversation with the tools in its system message.

    For templates without tools, when the answer must be a call: the model has to know
    what it may fill in.
    """
    listed = json.dumps([tool["function"] for tool in tools.listed], ensure_ascii=False)
    words = (
        f"Answer with a call of one of these tools:\n{listed}\n\n"
        'Write nothing but JSON: {"name": "<tool>", "arguments": {...}}'
    )
    turns = list(messages)
    if turns and turns[0]["role"] == "system":
        content = "\n\n".join(filter(None, [turns[0]["content"], words]))
        return [{**turns[0], "content": content}, *turns[1:]]
    return [{"role": "system", "content": words}, *turns]
