"""OpenAI's Responses API: POST /v1/responses, without a memory of earlier ones.

A request becomes a chat request; the answer is the same one, as a list of items. The
events of a stream come in llama-server's order, with the indices and numbers that
OpenAI's have.
"""

from __future__ import annotations

import time
from typing import Any

from mlxceld.api import shapes
from mlxceld.api.answer import Answer
from mlxceld.api.chat import chat_job, read_chat
from mlxceld.api.errors import invalid, not_supported
from mlxceld.api.fields import Ask
from mlxceld.api.flow import Flow, mid_timings, progress
from mlxceld.api.http import Exchange
from mlxceld.api.speech import Block, Change, Speech
from mlxceld.api.sse import HOLE, EventStream, Mould, event
from mlxceld.api.state import State
from mlxceld.chat.conversation import ConversationError
from mlxceld.chat.responses import chat_request
from mlxceld.engine import messages as m


def read_request(body: dict[str, Any]) -> dict[str, Any]:
    """The chat request for a body. Raises ApiError."""
    try:
        return chat_request(body)
    except ConversationError as error:
        raise (not_supported if error.unsupported else invalid)(str(error)) from None


async def respond(state: State, exchange: Exchange) -> None:
    """POST /v1/responses. Raises ApiError before anything was sent."""
    body, prompt = await read_chat(state, exchange, read_request)
    job = await chat_job(state, body, prompt)
    speech = Speech(prompt.parser())
    response = _Response(shapes.identifier("resp_"), state.model_name)
    with Flow(state, exchange, job) as flow:
        if job.ask.stream:
            await _Stream(exchange, response, job.ask, speech).run(flow)
            return
        (answer,) = await flow.collect()
    speech.hear_all(answer.content)
    await exchange.send_json(response.whole(answer, speech))


class _Response:
    """What a response says of itself."""

    def __init__(self, identity: str, model: str) -> None:
        self._id = identity
        self._model = model
        self._created = int(time.time())

    def begun(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": "in_progress",
            "model": self._model,
            "output": [],
        }

    def whole(self, answer: Answer, speech: Speech) -> dict[str, Any]:
        done = answer.finished()
        response: dict[str, Any] = {
            "completed_at": int(time.time()),
            "created_at": self._created,
            "id": self._id,
            "model": self._model,
            "object": "response",
            "output": [_item(block, finished=True) for block in speech.blocks],
            "status": "completed",
            "usage": {
                "input_tokens": done.n_prompt,
                "output_tokens": done.n_decoded,
                "total_tokens": done.n_prompt + done.n_decoded,
                "input_tokens_details": {"cached_tokens": done.n_cached},
            },
        }
        if done.stop_type == "limit":
            # llama-server calls these completed as well; this tells them apart.
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        return response


class _Stream:
    """The events of one response."""

    def __init__(
        self, exchange: Exchange, response: _Response, ask: Ask, speech: Speech
    ) -> None:
        self._stream = EventStream(exchange)
        self._response = response
        self._ask = ask
        self._speech = speech
        self._n = 0
        self._opened = False
        self._moulds: dict[int, Mould] = {}
        """Of the texts of each block."""

    async def run(self, flow: Flow) -> None:
        while not flow.finished:
            answer, happened = await flow.heard(self._stream)
            match happened:
                case m.Progress() if self._ask.return_progress:
                    await self._progress(answer)
                case m.Delta() | m.Done():
                    await self._open()
                    for change in self._speech.hear(happened):
                        await self._tell(change, answer)
        (answer,) = flow.answers
        last = {
            "type": "response.completed",
            "response": self._response.whole(answer, self._speech),
            "timings": shapes.done_timings(answer.finished()),
        }
        await self._stream.end(event(self._numbered(last), "response.completed"))

    def _numbered(self, payload: dict[str, Any]) -> dict[str, Any]:
        self._n += 1
        return {**payload, "sequence_number": self._n - 1}

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._stream.send(self._numbered({"type": kind, **fields}), kind)

    async def _open(self) -> None:
        if not self._opened:
            self._opened = True
            await self._send("response.created", response=self._response.begun())
            await self._send("response.in_progress", response=self._response.begun())

    async def _progress(self, answer: Answer) -> None:
        """One more `in_progress`, with how much of the prompt has been read."""
        if answer.n_decoded:
            return
        await self._open()
        more: dict[str, Any] = {"prompt_progress": progress(answer)}
        if self._ask.timings_per_token:
            more["timings"] = shapes.timings(*mid_timings(answer))
        await self._send(
            "response.in_progress", response=self._response.begun(), **more
        )

    async def _tell(self, change: Change, answer: Answer) -> None:
        block = change.block
        place = {"item_id": _name(block), "output_index": block.index}
        if change.what == "opens":
            item = _item(block, finished=False)
            await self._send(
                "response.output_item.added", output_index=block.index, item=item
            )
            if block.kind == "text":
                await self._send(
                    "response.content_part.added",
                    **place,
                    content_index=0,
                    part={"type": "output_text", "text": "", "annotations": []},
                )
        elif change.what == "grows" and self._ask.timings_per_token:
            await self._send(
                f"{_EVENTS[block.kind]}.delta",
                **_at(block, place),
                delta=change.text,
                timings=shapes.timings(*mid_timings(answer)),
            )
        elif change.what == "grows":
            mould = self._moulds.get(block.index)
            if mould is None:
                mould = self._moulds[block.index] = _mould(block, place)
            await self._stream.put(mould.numbered(change.text, self._n))
            self._n += 1
        else:
            await self._end(block, place)

    async def _end(self, block: Block, place: dict[str, Any]) -> None:
        if block.kind == "call":
            whole = {"arguments": block.text, "name": block.name}
        else:
            whole = {"text": block.text}
        await self._send(f"{_EVENTS[block.kind]}.done", **_at(block, place), **whole)
        if block.kind == "text":
            await self._send(
                "response.content_part.done",
                **place,
                content_index=0,
                part=_text_part(block),
            )
        await self._send(
            "response.output_item.done",
            output_index=block.index,
            item=_item(block, finished=True),
        )


_EVENTS = {
    "thinking": "response.reasoning_text",
    "text": "response.output_text",
    "call": "response.function_call_arguments",
}

_NAMES = {"thinking": "rs_", "text": "msg_", "call": "fc_"}


def _name(block: Block) -> str:
    return _NAMES[block.kind] + block.id


def _at(block: Block, place: dict[str, Any]) -> dict[str, Any]:
    """Where a text belongs: calls have no parts."""
    if block.kind == "call":
        return place
    more: dict[str, Any] = {"content_index": 0}
    return {**place, **more, "logprobs": []} if block.kind == "text" else place | more


def _mould(block: Block, place: dict[str, Any]) -> Mould:
    """Of the events by which a block grows."""
    kind = f"{_EVENTS[block.kind]}.delta"
    texts = {"delta": HOLE, "sequence_number": HOLE}
    return Mould({"type": kind, **_at(block, place), **texts}, kind)


def _text_part(block: Block) -> dict[str, Any]:
    return {
        "type": "output_text",
        "annotations": [],
        "logprobs": [],
        "text": block.text,
    }


def _item(block: Block, *, finished: bool) -> dict[str, Any]:
    """One item of `output`, before its first text or whole."""
    status = "completed" if finished else "in_progress"
    item: dict[str, Any] = {"id": _name(block), "status": status}
    match block.kind:
        case "thinking":
            text = {"text": block.text, "type": "reasoning_text"}
            return item | {
                "type": "reasoning",
                "summary": [],
                "content": [text] if finished else [],
                "encrypted_content": "",
            }
        case "text":
            return item | {
                "type": "message",
                "role": "assistant",
                "content": [_text_part(block)] if finished else [],
            }
        case "call":
            return item | {
                "type": "function_call",
                "call_id": f"call_{block.call_id}",
                "name": block.name,
                "arguments": block.text if finished else "",
            }
