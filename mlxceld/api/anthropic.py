"""Anthropic's dialect: POST /v1/messages.

A request becomes a chat request; the answer is the same one in other shapes. Errors
keep the shape of all routes, as llama-server's do. A stream opens with the first text,
so that a failure before it has its status; one after it is an `error` event.
"""

from __future__ import annotations

from typing import Any

from mlxceld.api import shapes
from mlxceld.api.answer import Answer
from mlxceld.api.chat import chat_job, read_chat
from mlxceld.api.errors import ApiError, invalid
from mlxceld.api.flow import Flow
from mlxceld.api.http import Exchange
from mlxceld.api.speech import Block, Change, Speech
from mlxceld.api.sse import HOLE, EventStream, Mould, event
from mlxceld.api.state import State
from mlxceld.chat.anthropic import chat_request
from mlxceld.chat.conversation import ConversationError
from mlxceld.engine import messages as m


def read_request(body: dict[str, Any]) -> dict[str, Any]:
    """The chat request for a body. Raises ApiError."""
    try:
        return chat_request(body)
    except ConversationError as error:
        if error.unsupported:
            # The status that llama-server gives to what its model cannot see.
            raise ApiError(500, "server_error", str(error)) from None
        raise invalid(str(error)) from None


async def messages(state: State, exchange: Exchange) -> None:
    """POST /v1/messages. Raises ApiError before anything was sent."""
    exchange.error_event = _error_event
    body, prompt = await read_chat(state, exchange, read_request)
    job = await chat_job(state, body, prompt)
    speech = Speech(prompt.parser())
    head = {
        "id": shapes.identifier("msg_"),
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": state.model_name,
    }
    with Flow(state, exchange, job) as flow:
        if job.ask.stream:
            await _stream(exchange, flow, head, speech)
            return
        (answer,) = await flow.collect()
    speech.hear_all(answer.content)
    await exchange.send_json(
        {
            **head,
            "content": [_finished(block) for block in speech.blocks],
            **_ending(answer.finished(), speech),
            "usage": _usage(answer, answer.n_decoded),
        }
    )


async def _stream(
    exchange: Exchange, flow: Flow, head: dict[str, Any], speech: Speech
) -> None:
    """A message that starts, its blocks one after the other, and why it ended."""
    stream = EventStream(exchange)
    opened = False
    moulds: dict[int, Mould] = {}
    """Of the texts of each block."""

    async def send(payload: dict[str, Any]) -> None:
        await stream.send(payload, payload["type"])

    while not flow.finished:
        answer, happened = await flow.heard(stream)
        if not isinstance(happened, m.Delta | m.Done):
            continue
        if not opened:
            opened = True
            start = {**head, "stop_reason": None, "stop_sequence": None}
            start["usage"] = _usage(answer, 0)
            await send({"type": "message_start", "message": start})
        for change in speech.hear(happened):
            if change.what == "grows":
                mould = moulds.get(change.block.index)
                if mould is None:
                    grown = _grown(change.block, _delta(change.block, HOLE))
                    mould = moulds[change.block.index] = Mould(grown, grown["type"])
                await stream.put(mould.filled(change.text))
                continue
            for payload in _events(change):
                await send(payload)
        if isinstance(happened, m.Done):
            await send(
                {
                    "type": "message_delta",
                    "delta": _ending(happened, speech),
                    "usage": {"output_tokens": happened.n_decoded},
                }
            )
    await stream.end(event({"type": "message_stop"}, "message_stop"))


def _events(change: Change) -> list[dict[str, Any]]:
    """The events for the beginning or the end of a block."""
    block = change.block
    if change.what == "opens":
        begun = {"content_block": _begun(block)}
        return [{"type": "content_block_start", "index": block.index, **begun}]
    end = {"type": "content_block_stop", "index": block.index}
    if block.kind != "thinking":
        return [end]
    # Clients wait for the signature before they take a thought for complete.
    return [_grown(block, {"type": "signature_delta", "signature": ""}), end]


def _grown(block: Block, delta: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": block.index, "delta": delta}


def _delta(block: Block, text: str) -> dict[str, Any]:
    """What a block grows by."""
    match block.kind:
        case "thinking":
            return {"type": "thinking_delta", "thinking": text}
        case "text":
            return {"type": "text_delta", "text": text}
        case "call":
            return {"type": "input_json_delta", "partial_json": text}


def _begun(block: Block) -> dict[str, Any]:
    """A block before its first text."""
    match block.kind:
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "text":
            return {"type": "text", "text": ""}
        case "call":
            return _call(block, {})


def _finished(block: Block) -> dict[str, Any]:
    match block.kind:
        case "thinking":
            return {"type": "thinking", "thinking": block.text, "signature": ""}
        case "text":
            return {"type": "text", "text": block.text}
        case "call":
            return _call(block, block.arguments())


def _call(block: Block, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": block.call_id,
        "name": block.name,
        "input": arguments,
    }


def _ending(done: m.Done, speech: Speech) -> dict[str, Any]:
    """Why the answer ended; a call of a tool is a reason of its own."""
    reason, word = "end_turn", None
    if done.stop_type == "limit":
        reason = "max_tokens"
    elif speech.calls:
        reason = "tool_use"
    elif done.stop_type == "word":
        reason, word = "stop_sequence", done.stopping_word
    return {"stop_reason": reason, "stop_sequence": word}


def _usage(answer: Answer, n_decoded: int) -> dict[str, int]:
    """Tokens; what was read from a cache is not counted as input."""
    return {
        "cache_read_input_tokens": answer.n_cached,
        "input_tokens": answer.n_prompt - answer.n_cached,
        "output_tokens": n_decoded,
    }


def _error_event(error: ApiError) -> bytes:
    """llama-server's form: the error object itself, without an envelope."""
    return event(error.body()["error"], "error")
