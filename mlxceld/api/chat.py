"""From a chat request to the text of a prompt: fields, messages, template.

What the answer will look like (reasoning, calls of tools) is decided here as well,
since the fields of the request and the template say it together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from mlxceld.api.errors import ApiError, invalid, not_supported
from mlxceld.api.flow import Job, make_job
from mlxceld.api.grammars import constrains, with_default, with_format
from mlxceld.api.http import Exchange, parse_object
from mlxceld.api.readers import INT32, flag, integer
from mlxceld.api.state import State
from mlxceld.api.thinking import budget_of, close, format_of, variables_of
from mlxceld.chat import harmony
from mlxceld.chat.conversation import ConversationError, read_conversation
from mlxceld.chat.forms import form_of
from mlxceld.chat.parse import Calling
from mlxceld.chat.pieces import Parser, Whole, whole
from mlxceld.chat.style import Style, style_of
from mlxceld.chat.template import (
    ChatTemplate,
    Message,
    TemplateBroken,
    TemplateRefused,
)
from mlxceld.chat.tools import ToolError, Tools, call_schema, read_tools, told_in_words
from mlxceld.engine import messages as m


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """What the model reads, and how its answer is to be understood."""

    text: str
    prefill: str
    """The part of the answer that was given already; `text` ends with it."""
    style: Style
    schema: dict[str, Any] | None = None
    """A JSON schema that the answer has to match, for a call that must be made."""
    budget: m.ThinkingBudget | None = None
    """A bound on the reasoning of the answer."""
    shown: tuple[tuple[str, Any], ...] = ()
    """What `generation_settings` says of the format."""

    def parser(self) -> Parser:
        """A parser for what the model adds to the prefill."""
        parser = self.style.parser()
        parser.feed(self.prefill)
        return parser

    def whole(self, answer: str) -> Whole:
        """The answer in parts, with the beginning that was given."""
        return whole(self.style.parser(), self.prefill + answer)


Body: TypeAlias = dict[str, Any]


async def read_chat(
    state: State, exchange: Exchange, read: Callable[[Body], Body] = lambda body: body
) -> tuple[Body, ChatPrompt]:
    """The chat request of an exchange and its prompt; `read` translates a dialect.

    Raises ApiError as `chat_prompt` and `read` do.
    """

    def work(data: bytes) -> tuple[Body, ChatPrompt]:
        body = read(parse_object(data))
        return body, chat_prompt(state, body)

    return await exchange.digest(work)


def chat_prompt(state: State, body: dict[str, Any]) -> ChatPrompt:
    """Render the conversation of a request.

    Raises ApiError: 400 for a mistake of the client, which includes what the template
    itself refuses, 501 for fields that ask for what is not served.
    """
    limits, options = state.limits(), state.settings.model
    _refuse(body)
    body = with_default(body, state.constraint)
    tools = _tools(state, body)
    continues = flag(body, "continue_final_message", False, limits)
    opens = flag(body, "add_generation_prompt", True, limits)
    if continues and body.get("add_generation_prompt"):
        raise invalid(
            "add_generation_prompt and continue_final_message cannot both be true"
        )
    try:
        talk = read_conversation(
            body.get("messages"),
            must_continue=continues,
            continues=continues or options.prefill_assistant,
        )
    except ConversationError as error:
        words = str(error)
        raise (not_supported if error.unsupported else invalid)(words) from None
    variables, thinks = variables_of(state, body)
    bound = tools.required or constrains(body)
    if bound:
        # The answer is a call, or what was asked for, from its first token on.
        thinks, variables["enable_thinking"] = False, False
    messages: Sequence[Message] = talk.messages
    if not options.reasoning_preserve:
        messages = [_without_thoughts(message) for message in messages]
    trailing = len(talk.messages) < len(body["messages"])
    opens = opens or trailing
    template = state.template()
    if tools.required and not template.caps["supports_tools"]:
        messages = told_in_words(messages, tools)
    words = _render(state, template, messages, opens, tools, variables)
    if not words and not talk.prefill:
        raise invalid("Field 'messages': the chat template makes no prompt of them")
    prefill = talk.prefill
    speaks = harmony.speaks_harmony(template.text)
    if not speaks:
        words = close(words, template.text, prefill, thinks)
    elif (prefill or bound) and "<|channel|>" not in prefill:
        words += harmony.FINAL
    told = format_of(state, body)
    style = style_of(template.text, words, told, _calling(template, tools))
    if speaks and (prefill or bound):
        style = replace(style, harmony=False, markers=None)
    if options.skip_chat_parsing:
        style = Style(shown=style.shown)
    budget = None if bound else budget_of(state, body, template.text, words, prefill)
    begun = ""
    if opens and flag(body, "verbose", state.settings.logging.level == "debug", limits):
        bare = _render(state, template, messages, False, tools, variables)
        begun = words.removeprefix(bare) if words.startswith(bare) else ""
    return ChatPrompt(
        words + prefill,
        prefill,
        style,
        call_schema(tools) if tools.required else None,
        budget,
        (
            ("chat_format", style.name),
            ("reasoning_format", told),
            ("reasoning_in_content", style.keep),
            ("generation_prompt", begun),
        ),
    )


async def chat_job(state: State, body: dict[str, Any], prompt: ChatPrompt) -> Job:
    """The generations for a chat request. Raises ApiError."""
    body = with_format(with_default(body, state.constraint), state.limits())
    if prompt.schema is not None:
        if constrains(body):
            raise invalid("Cannot use custom grammar constraints with tools.")
        body = {**body, "json_schema": prompt.schema}
    job = await make_job(state, _with_candidates(body, state), [[prompt.text]])
    return replace(
        job,
        ask=replace(job.ask, chat=dict(prompt.shown)),
        preserved=prompt.style.shown,
        budget=prompt.budget,
    )


def _without_thoughts(message: Message) -> Message:
    return {k: v for k, v in message.items() if k != "reasoning_content"}


def _with_candidates(body: dict[str, Any], state: State) -> dict[str, Any]:
    """With `n_probs` as `logprobs` means it: 20, unless `top_logprobs` says.

    0 still tells of the token itself, which the engine does beside one candidate.
    """
    top = body.get("top_logprobs")
    if top is not None:
        n_probs = max(1, integer(0, INT32)("top_logprobs", top, state.limits()))
    elif body.get("logprobs") is True:
        n_probs = 20
    else:
        return body
    return {**body, "n_probs": n_probs}


def _render(
    state: State,
    template: ChatTemplate,
    messages: Sequence[Message],
    opens: bool,
    tools: Tools,
    variables: dict[str, Any],
) -> str:
    model = state.ready().model
    try:
        return template.render(
            messages,
            bos_token=model.bos_token,
            eos_token=model.eos_token,
            add_generation_prompt=opens,
            tools=tools.listed,
            variables=variables,
        )
    except TemplateRefused as error:
        raise invalid(f"the chat template refuses the messages: {error}") from None
    except TemplateBroken as error:
        raise ApiError(
            500, "server_error", f"the model's chat template is broken: {error}"
        ) from None


def _tools(state: State, body: dict[str, Any]) -> Tools:
    """The tools of a request. Raises ApiError."""
    try:
        tools = read_tools(
            body.get("tools"), body.get("tool_choice"), body.get("parallel_tool_calls")
        )
    except ToolError as error:
        raise invalid(str(error)) from None
    if not tools:
        return tools
    if not state.settings.model.jinja:
        raise invalid("tools param requires --jinja flag")
    if body.get("grammar"):
        raise invalid("Cannot use custom grammar constraints with tools.")
    if body.get("logprobs") and body.get("stream"):
        raise invalid("logprobs is not supported with tools + stream")
    return tools


def _calling(template: ChatTemplate, tools: Tools) -> Calling | None:
    if not tools:
        return None
    form = form_of(template.text)
    return Calling(form, tools.schemas, tools.parallel, forced=tools.required)


def _refuse(body: dict[str, Any]) -> None:
    """400 for fields that do not go together."""
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise invalid("top_logprobs requires logprobs to be set to true")


async def apply_template(state: State, exchange: Exchange) -> None:
    """POST /apply-template: the prompt that a chat would have."""
    _, prompt = await read_chat(state, exchange)
    await exchange.send_json({"prompt": prompt.text})
