"""The chat template: Jinja text of the model (or of an option) made into a prompt.

A template is somebody else's program. It runs in Jinja's immutable sandbox, with the
environment that Hugging Face's tokenizers give it, because templates are written
against that: trimmed blocks, loop controls, `raise_exception`, `strftime_now`,
`tojson` without HTML escapes, and the `generation` tag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = dict[str, Any]

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""What a model without a template gets, as in llama-server."""


class TemplateBroken(ValueError):
    """The text is not a Jinja template; says the line and why."""


class TemplateRefused(ValueError):
    """The template cannot render this conversation; in the template's own words."""


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here it is air."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    # A model is told the user's date, which is the local one.
    return datetime.now().astimezone().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a model to read: Jinja's own filter escapes it for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """A compiled template. Raises `TemplateBroken` when the text does not compile."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._template = _environment().from_string(text)
        except TemplateSyntaxError as error:
            raise TemplateBroken(f"line {error.lineno}: {error.message}") from None
        except RecursionError:
            raise TemplateBroken("nested too deeply") from None

    def render(
        self,
        messages: Sequence[Message],
        *,
        bos_token: str = "",
        eos_token: str = "",
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt of a conversation whose contents are strings.

        `tools` are OpenAI's objects; without any the template's `tools` is none.
        `variables` are seen by the template but cannot replace what is passed here.
        Raises `TemplateRefused` with the template's own words.
        """
        caps = self.caps
        turns = [dict(message) for message in messages]
        if not caps["supports_system_role"]:
            turns = _system_into_user(turns)
        if caps["supports_typed_content"] and not caps["supports_string_content"]:
            turns = [_typed(turn) for turn in turns]
        if not caps["supports_object_arguments"]:
            turns = [_arguments_as_text(turn) for turn in turns]
        return self._render(
            turns,
            {
                **self._today(tools),
                **(variables or {}),
                "bos_token": bos_token,
                "eos_token": eos_token,
                "add_generation_prompt": add_generation_prompt,
                "tools": [dict(tool) for tool in tools] or None,
                # Templates ask for it as for tools.
                "documents": (variables or {}).get("documents"),
            },
        )

    def _today(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Variables that llama-server sets, as its users' templates expect.

        Templates of the Llama 3 family fall back to a date of their training without
        one; FireFunction's has no other way to learn of the tools.
        """
        found = {"date_string": _strftime_now("%d %b %Y")}
        if " functools[" in self.text:
            functions = [dict(tool) for tool in tools]
            found["functions"] = _tojson(functions, indent=2) if functions else ""
            found["datetime"] = _strftime_now("%b %d %Y GMT")
        return found

    def _render(self, messages: list[Message], variables: Mapping[str, Any]) -> str:
        try:
            return self._template.render({**variables, "messages": messages})
        except TemplateError as error:
            words = error.message or type(error).__name__
        except RecursionError:
            words = "nested too deeply"
        except Exception as error:
            # Operations on undefined or unfit values: the template's Python errors.
            words = f"{type(error).__name__}: {error}"
        raise TemplateRefused(words)

    @cached_property
    def caps(self) -> dict[str, bool]:
        """What the template can express, found by rendering small conversations.

        Keys and order are those of llama-server's `chat_template_caps`.
        """
        needle = "needle-7f3a"
        user: Message = {"role": "user", "content": "hello"}
        call = {
            "id": "call00000",
            "type": "function",
            "function": {"name": "lookup", "arguments": {"key": needle}},
        }
        calling: Message = {"role": "assistant", "content": "", "tool_calls": [call]}
        other: dict[str, Any] = {
            **call,
            "id": "call00001",
            "function": {"name": "second-2c9d", "arguments": {"key": "other"}},
        }
        both: Message = {**calling, "tool_calls": [call, other]}
        tool = {
            "type": "function",
            "function": {
                "name": needle,
                "description": "looks up",
                "parameters": {"type": "object", "properties": {}},
            },
        }
        thought: Message = {
            "role": "assistant",
            "content": "answer",
            "reasoning_content": needle,
        }
        typed = [{"type": "text", "text": needle}]

        def shows(
            messages: list[Message], words: str = needle, **variables: Any
        ) -> bool:
            given = {"bos_token": "", "eos_token": "", "add_generation_prompt": True}
            try:
                return words in self._render(messages, {**given, **variables})
            except TemplateRefused:
                return False

        whole = "{{" in self.text and "arguments" in self.text
        as_object = whole and shows([user, calling, user])
        return {
            "supports_object_arguments": as_object,
            "supports_parallel_tool_calls": shows([user, both, user], "second-2c9d"),
            "supports_preserve_reasoning": shows([user, thought, user]),
            "supports_reasoning_effort": "reasoning_effort" in self.text,
            "supports_string_content": shows([{"role": "user", "content": needle}]),
            "supports_system_role": shows(
                [{"role": "system", "content": needle}, user]
            ),
            "supports_tool_calls": as_object or shows([user, calling, user], "lookup"),
            "supports_tools": shows([user], tools=[tool]),
            # A template that joins strings prints the list itself: that is no support.
            "supports_typed_content": shows([{"role": "user", "content": typed}])
            and not shows([{"role": "user", "content": typed}], str(typed)),
        }


def _system_into_user(messages: list[Message]) -> list[Message]:
    """Put system texts before the next user's words, for templates without the role."""
    turns: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "system":
            waiting.append(message["content"])
            continue
        if waiting and message["role"] == "user":
            content = "\n\n".join([*waiting, message["content"]])
            message = {**message, "content": content}
            waiting = []
        turns.append(message)
    if waiting:
        turns.append({"role": "user", "content": "\n\n".join(waiting)})
    return turns


def _typed(message: Message) -> Message:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _arguments_as_text(message: Message) -> Message:
    """Arguments of tool calls as JSON text, for templates that join strings."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    written = []
    for call in calls:
        function = dict(call["function"])
        if not isinstance(function.get("arguments"), str):
            function["arguments"] = _tojson(function.get("arguments"))
        written.append({**call, "function": function})
    return {**message, "tool_calls": written}
