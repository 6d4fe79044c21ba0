"""OpenAI's dialect: POST /v1/completions and /v1/chat/completions.

Both run the same way; `_Dialect` holds what differs, the shape of an answer and of a
chunk. Key order is llama-server's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from mlxceld.api import native, shapes
from mlxceld.api.chat import chat_prompt
from mlxceld.api.flow import (
    Answer,
    Flow,
    Job,
    make_job,
    mid_timings,
    progress,
    prompt_texts,
)
from mlxceld.api.http import Exchange
from mlxceld.api.prompt import read_prompts
from mlxceld.api.sse import DONE, EventStream
from mlxceld.api.state import State
from mlxceld.engine import messages as m


class _Dialect(Protocol):
    """What differs between the two routes."""

    head: dict[str, Any]
    """What every reply and, in completions, every chunk says of itself."""
    id: str

    def choice(self, answer: Answer) -> dict[str, Any]:
        """One finished answer within `choices`."""

    def opening(self, answer: Answer) -> dict[str, Any] | None:
        """The chunk before an answer's first text, or None."""

    def part(self, answer: Answer, text: str) -> dict[str, Any]:
        """A chunk with text."""

    def ending(
        self, answer: Answer, timings: dict[str, Any], usage_follows: bool
    ) -> dict[str, Any]:
        """The chunk with the finish reason."""

    def usage(self, answers: Sequence[m.Done]) -> dict[str, Any] | None:
        """The chunk after all answers that tells the usage, or None."""


class _Completions:
    """/v1/completions. Usage is always in the last chunk of its streams."""

    def __init__(self, head: dict[str, Any], identity: str) -> None:
        self.head = {**head, "object": "text_completion"}
        self.id = identity

    def _choice(self, answer: Answer, text: str, reason: str | None) -> dict[str, Any]:
        return {
            "text": text,
            "index": answer.index,
            "logprobs": None,
            "finish_reason": reason,
        }

    def choice(self, answer: Answer) -> dict[str, Any]:
        reason = shapes.finish_reason(answer.finished())
        return self._choice(answer, answer.content, reason)

    def opening(self, answer: Answer) -> dict[str, Any] | None:
        return None

    def part(self, answer: Answer, text: str) -> dict[str, Any]:
        choices = [self._choice(answer, text, None)]
        return {"choices": choices, **self.head, "id": self.id}

    def ending(
        self, answer: Answer, timings: dict[str, Any], usage_follows: bool
    ) -> dict[str, Any]:
        done = answer.finished()
        return {
            "choices": [self._choice(answer, "", shapes.finish_reason(done))],
            **self.head,
            "usage": shapes.usage([done]),
            "id": self.id,
            "timings": timings,
        }

    def usage(self, answers: Sequence[m.Done]) -> dict[str, Any] | None:
        return None


class _Chat:
    """/v1/chat/completions. Usage is in a chunk of its own, and only when asked for."""

    def __init__(self, head: dict[str, Any], identity: str, prefill: str) -> None:
        self.head = {**head, "object": "chat.completion"}
        self._chunk_head = {
            "created": head["created"],
            "id": identity,
            "model": head["model"],
            "system_fingerprint": head["system_fingerprint"],
            "object": "chat.completion.chunk",
        }
        self.id = identity
        self._prefill = prefill

    def choice(self, answer: Answer) -> dict[str, Any]:
        return {
            "finish_reason": shapes.finish_reason(answer.finished()),
            "index": answer.index,
            "message": {
                "role": "assistant",
                # llama-server repeats the beginning that it was given to continue.
                "content": self._prefill + answer.content,
            },
        }

    def _chunk(
        self, answer: Answer, delta: dict[str, Any], reason: str | None
    ) -> dict[str, Any]:
        choice = {"finish_reason": reason, "index": answer.index, "delta": delta}
        return {"choices": [choice], **self._chunk_head}

    def opening(self, answer: Answer) -> dict[str, Any] | None:
        return self._chunk(answer, {"role": "assistant", "content": None}, None)

    def part(self, answer: Answer, text: str) -> dict[str, Any]:
        return self._chunk(answer, {"content": text}, None)

    def ending(
        self, answer: Answer, timings: dict[str, Any], usage_follows: bool
    ) -> dict[str, Any]:
        chunk = self._chunk(answer, {}, shapes.finish_reason(answer.finished()))
        return chunk if usage_follows else {**chunk, "timings": timings}

    def usage(self, answers: Sequence[m.Done]) -> dict[str, Any] | None:
        return {
            "choices": [],
            **self._chunk_head,
            "usage": shapes.usage(answers),
            "timings": shapes.done_timings(answers[-1]),
        }


def _head(state: State) -> dict[str, Any]:
    return {
        "created": int(time.time()),
        "model": state.model_name,
        "system_fingerprint": shapes.BUILD,
    }


async def completions(state: State, exchange: Exchange) -> None:
    """POST /v1/completions. Raises ApiError before anything was sent."""
    body = await exchange.json_object()
    model = state.ready().model
    prompts = read_prompts(body, model.n_vocab, model.add_bos)
    job = await make_job(state, body, prompts)
    dialect = _Completions(_head(state), shapes.completion_id())
    await _run(state, exchange, job, dialect)


async def chat_completions(state: State, exchange: Exchange) -> None:
    """POST /v1/chat/completions. Raises ApiError before anything was sent."""
    body = await exchange.json_object()
    prompt = chat_prompt(state, body)
    job = await make_job(state, body, [[prompt.text]])
    dialect = _Chat(_head(state), shapes.completion_id(), prompt.prefill)
    await _run(state, exchange, job, dialect)


async def _run(state: State, exchange: Exchange, job: Job, dialect: _Dialect) -> None:
    texts = await prompt_texts(state, job.prompts) if job.ask.verbose else []
    with Flow(state, exchange, job) as flow:
        if job.ask.stream:
            await _stream(exchange, flow, job, dialect)
            return
        answers = await flow.collect()
    done = [answer.finished() for answer in answers]
    reply = {
        "choices": [dialect.choice(answer) for answer in answers],
        **dialect.head,
        "usage": shapes.usage(done),
        "id": dialect.id,
    }
    if job.ask.verbose:
        reply["__verbose"] = native.final(
            state, job, answers[0], texts[0], streamed=False
        )
    reply["timings"] = shapes.done_timings(done[-1])
    await exchange.send_json(reply)


async def _stream(exchange: Exchange, flow: Flow, job: Job, dialect: _Dialect) -> None:
    """Chunks as they come: an opening, texts, an ending for each answer, `[DONE]`."""
    stream = EventStream(exchange)
    ask = job.ask
    opened: set[int] = set()

    async def send(answer: Answer, chunk: dict[str, Any]) -> None:
        if ask.timings_per_token:
            chunk = {**chunk, "timings": shapes.timings(*mid_timings(answer))}
        await stream.send(chunk)

    async def open_(answer: Answer) -> None:
        if answer.index not in opened:
            opened.add(answer.index)
            chunk = dialect.opening(answer)
            if chunk is not None:
                await stream.send(chunk)

    while not flow.finished:
        item = await flow.next()
        if item is None:
            if flow.reading:
                await stream.ping()
            continue
        answer, event = item
        match event:
            case m.Progress() if ask.return_progress and not answer.n_decoded:
                chunk = dialect.opening(answer) or dialect.part(answer, "")
                if ask.timings_per_token:
                    chunk["timings"] = shapes.timings(*mid_timings(answer))
                await stream.send({**chunk, "prompt_progress": progress(answer)})
            case m.Delta() | m.Done():
                await open_(answer)
                if event.text:
                    await send(answer, dialect.part(answer, event.text))
                if isinstance(event, m.Done):
                    times = shapes.done_timings(event)
                    last = dialect.ending(answer, times, ask.include_usage)
                    await stream.send(last)
    if ask.include_usage:
        usage = dialect.usage([answer.finished() for answer in flow.answers])
        if usage is not None:
            await stream.send(usage)
    await stream.end(DONE)
