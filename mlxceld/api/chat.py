"""From a chat request to the text of a prompt: fields, messages, template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlxceld.api.errors import ApiError, bad_field, invalid, not_supported
from mlxceld.api.http import Exchange
from mlxceld.api.readers import array, flag, json_object, text
from mlxceld.api.state import State
from mlxceld.chat.conversation import ConversationError, read_conversation
from mlxceld.chat.template import TemplateBroken, TemplateRefused

_TOOL_CHOICES = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """What the model reads, and the part of the answer that was given already."""

    text: str
    prefill: str


def chat_prompt(state: State, body: dict[str, Any]) -> ChatPrompt:
    """Render the conversation of a request.

    Raises ApiError: 400 for a mistake of the client, which includes what the template
    itself refuses, 501 for fields that ask for what is not served yet.
    """
    limits = state.limits()
    refuse_what_is_missing(body, state)
    continues = flag(body, "continue_final_message", False, limits)
    opens = flag(body, "add_generation_prompt", True, limits)
    if continues and body.get("add_generation_prompt"):
        raise invalid(
            "add_generation_prompt and continue_final_message cannot both be true"
        )
    try:
        talk = read_conversation(body.get("messages"), must_continue=continues)
    except ConversationError as error:
        words = str(error)
        raise (not_supported if error.unsupported else invalid)(words) from None
    variables = dict(state.template_kwargs)
    if body.get("reasoning_effort") is not None:
        variables["reasoning_effort"] = text(
            "reasoning_effort", body["reasoning_effort"], limits
        )
    if body.get("chat_template_kwargs") is not None:
        variables |= json_object(
            "chat_template_kwargs", body["chat_template_kwargs"], limits
        )
    model = state.ready().model
    trailing = len(talk.messages) < len(body["messages"])
    try:
        words = state.template().render(
            talk.messages,
            bos_token=model.bos_token,
            eos_token=model.eos_token,
            add_generation_prompt=opens or trailing,
            variables=variables,
        )
    except TemplateRefused as error:
        raise invalid(f"the chat template refuses the messages: {error}") from None
    except TemplateBroken as error:
        raise ApiError(
            500, "server_error", f"the model's chat template is broken: {error}"
        ) from None
    if not words and not talk.prefill:
        raise invalid("Field 'messages': the chat template makes no prompt of them")
    return ChatPrompt(words + talk.prefill, talk.prefill)


def refuse_what_is_missing(body: dict[str, Any], state: State) -> None:
    """501 for chat fields that ask for tools or a format, 400 for broken ones."""
    limits = state.limits()
    choice = body.get("tool_choice")
    if isinstance(choice, str):
        if choice not in _TOOL_CHOICES:
            raise invalid(f"Invalid tool_choice: {choice[:40]}")
    elif choice is not None:
        json_object("tool_choice", choice, limits)
    if body.get("tools") is not None and array("tools", body["tools"], limits):
        raise not_supported("Field 'tools': not supported by this server")
    wanted = body.get("response_format")
    if wanted is not None:
        kind = json_object("response_format", wanted, limits).get("type")
        if kind in ("json_object", "json_schema"):
            raise not_supported(
                f"Field 'response_format': type {kind} is not supported by this server"
            )
        if kind is not None and kind != "text":
            raise bad_field("response_format", 'type must be "text"')
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise invalid("top_logprobs requires logprobs to be set to true")


async def apply_template(state: State, exchange: Exchange) -> None:
    """POST /apply-template: the prompt that a chat would have."""
    body = await exchange.json_object()
    await exchange.send_json({"prompt": chat_prompt(state, body).text})
