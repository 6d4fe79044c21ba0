"""How many tokens a request would have: the same prompt as for an answer, counted."""

from __future__ import annotations

from collections.abc import Callable

from mlxceld.api.anthropic import read_request as read_messages
from mlxceld.api.chat import Body, read_chat
from mlxceld.api.flow import ask_engine
from mlxceld.api.http import Exchange
from mlxceld.api.responses import read_request as read_response
from mlxceld.api.state import State


async def chat(state: State, exchange: Exchange) -> None:
    """POST /v1/chat/completions/input_tokens."""
    n = await _count(state, exchange)
    await exchange.send_json({"input_tokens": n, "object": "response.input_tokens"})


async def responses(state: State, exchange: Exchange) -> None:
    """POST /v1/responses/input_tokens."""
    n = await _count(state, exchange, read_response)
    await exchange.send_json({"input_tokens": n, "object": "response.input_tokens"})


async def messages(state: State, exchange: Exchange) -> None:
    """POST /v1/messages/count_tokens."""
    n = await _count(state, exchange, read_messages)
    await exchange.send_json({"input_tokens": n})


async def _count(
    state: State, exchange: Exchange, read: Callable[[Body], Body] = lambda body: body
) -> int:
    """Tokens of the prompt of a chat request. Raises ApiError."""
    _, prompt = await read_chat(state, exchange, read)
    found = await ask_engine(
        state.client.tokenize([prompt.text], add_special=True, parse_special=True)
    )
    return len(found.tokens)
