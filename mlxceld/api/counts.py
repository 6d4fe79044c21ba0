"""How many tokens a request would have: the same prompt as for an answer, counted."""

from __future__ import annotations

from typing import Any

from mlxceld.api.anthropic import read_request as read_messages
from mlxceld.api.chat import chat_prompt
from mlxceld.api.flow import ask_engine
from mlxceld.api.http import Exchange
from mlxceld.api.responses import read_request as read_response
from mlxceld.api.state import State


async def chat(state: State, exchange: Exchange) -> None:
    """POST /v1/chat/completions/input_tokens."""
    n = await _count(state, await exchange.json_object())
    await exchange.send_json({"input_tokens": n, "object": "response.input_tokens"})


async def responses(state: State, exchange: Exchange) -> None:
    """POST /v1/responses/input_tokens."""
    n = await _count(state, read_response(await exchange.json_object()))
    await exchange.send_json({"input_tokens": n, "object": "response.input_tokens"})


async def messages(state: State, exchange: Exchange) -> None:
    """POST /v1/messages/count_tokens."""
    n = await _count(state, read_messages(await exchange.json_object()))
    await exchange.send_json({"input_tokens": n})


async def _count(state: State, chat_body: dict[str, Any]) -> int:
    """Tokens of the prompt of a chat request. Raises ApiError."""
    prompt = chat_prompt(state, chat_body)
    found = await ask_engine(
        state.client.tokenize([prompt.text], add_special=True, parse_special=True)
    )
    return len(found.tokens)
