"""OpenAI's dialect: POST /v1/completions and /v1/chat/completions.

Both run the same way; `_Dialect` holds what differs, the shape of an answer and of a
chunk. Key order is llama-server's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from mlxceld.api import native, shapes
from mlxceld.api.answer import Answer, too_many
from mlxceld.api.chat import ChatPrompt, chat_job, read_chat
from mlxceld.api.flow import (
    Flow,
    Job,
    make_job,
    mid_timings,
    progress,
    prompt_texts,
)
from mlxceld.api.http import Exchange
from mlxceld.api.prompt import read_request
from mlxceld.api.sse import DONE, HOLE, EventStream, Mould, event
from mlxceld.api.state import State
from mlxceld.chat.pieces import (
    CallArguments,
    CallBegins,
    Content,
    Parser,
    Piece,
    Reasoning,
)
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

    def pieces(self, answer: Answer, event: m.Delta | m.Done) -> list[Piece]:
        """What an event adds to an answer: each is a chunk."""

    def part(self, answer: Answer, piece: Piece) -> dict[str, Any]:
        """The chunk of a piece."""

    def ending(
        self, answer: Answer, timings: dict[str, Any], usage_follows: bool
    ) -> dict[str, Any]:
        """The chunk with the finish reason."""

    def usage(self, answers: Sequence[m.Done], n: int) -> dict[str, Any] | None:
        """The chunk after all answers, `n` to each prompt, with the usage, or None."""


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

    def pieces(self, answer: Answer, event: m.Delta | m.Done) -> list[Piece]:
        return [Content(event.text)] if event.text else []

    def part(self, answer: Answer, piece: Piece) -> dict[str, Any]:
        assert isinstance(piece, Content)
        choices = [self._choice(answer, piece.text, None)]
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

    def usage(self, answers: Sequence[m.Done], n: int) -> dict[str, Any] | None:
        return None


class _Chat:
    """/v1/chat/completions. Usage is in a chunk of its own, and only when asked for."""

    def __init__(self, head: dict[str, Any], identity: str, prompt: ChatPrompt) -> None:
        self.head = {**head, "object": "chat.completion"}
        self._chunk_head = {
            "created": head["created"],
            "id": identity,
            "model": head["model"],
            "system_fingerprint": head["system_fingerprint"],
            "object": "chat.completion.chunk",
        }
        self.id = identity
        self._prompt = prompt
        self._parsers: dict[int, Parser] = {}
        self._calling: set[int] = set()
        """Answers that have called a tool in their streams."""

    def choice(self, answer: Answer) -> dict[str, Any]:
        # llama-server repeats the beginning that it was given to continue.
        found = self._prompt.whole(answer.content)
        message: dict[str, Any] = {"role": "assistant", "content": found.content}
        if found.reasoning:
            message["reasoning_content"] = found.reasoning
        if found.calls:
            message["tool_calls"] = [
                {
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                    "id": call.id,
                }
                for call in found.calls
            ]
        reason = shapes.finish_reason(answer.finished(), calls=bool(found.calls))
        return {"finish_reason": reason, "index": answer.index, "message": message}

    def _chunk(
        self, answer: Answer, delta: dict[str, Any], reason: str | None
    ) -> dict[str, Any]:
        choice = {"finish_reason": reason, "index": answer.index, "delta": delta}
        return {"choices": [choice], **self._chunk_head}

    def opening(self, answer: Answer) -> dict[str, Any] | None:
        return self._chunk(answer, {"role": "assistant", "content": None}, None)

    def pieces(self, answer: Answer, event: m.Delta | m.Done) -> list[Piece]:
        parser = self._parsers.get(answer.index)
        if parser is None:
            parser = self._parsers[answer.index] = self._prompt.parser()
        pieces = parser.feed(event.text)
        if isinstance(event, m.Done):
            pieces = pieces + parser.finish()
        for piece in pieces:
            if isinstance(piece, CallBegins):
                self._calling.add(answer.index)
        return pieces

    def part(self, answer: Answer, piece: Piece) -> dict[str, Any]:
        return self._chunk(answer, _delta(piece), None)

    def ending(
        self, answer: Answer, timings: dict[str, Any], usage_follows: bool
    ) -> dict[str, Any]:
        calls = answer.index in self._calling
        reason = shapes.finish_reason(answer.finished(), calls=calls)
        chunk = self._chunk(answer, {}, reason)
        return chunk if usage_follows else {**chunk, "timings": timings}

    def usage(self, answers: Sequence[m.Done], n: int) -> dict[str, Any] | None:
        return {
            "choices": [],
            **self._chunk_head,
            "usage": shapes.usage(answers, n),
            "timings": shapes.done_timings(answers[-1]),
        }


def _delta(piece: Piece) -> dict[str, Any]:
    """What a piece adds to a message; a call's id and name come once."""
    match piece:
        case Content():
            return {"content": piece.text}
        case Reasoning():
            return {"reasoning_content": piece.text}
        case CallBegins():
            function = {"name": piece.name, "arguments": ""}
            call = {"id": piece.id, "type": "function", "function": function}
            return {"tool_calls": [{"index": piece.index, **call}]}
        case CallArguments():
            more = {"arguments": piece.text}
            return {"tool_calls": [{"index": piece.index, "function": more}]}


def _head(state: State) -> dict[str, Any]:
    return {
        "created": int(time.time()),
        "model": state.model_name,
        "system_fingerprint": shapes.BUILD,
    }


async def completions(state: State, exchange: Exchange) -> None:
    """POST /v1/completions. Raises ApiError before anything was sent."""
    body, prompts = await read_request(state, exchange)
    job = await make_job(state, body, prompts)
    dialect = _Completions(_head(state), shapes.completion_id())
    await _run(state, exchange, job, dialect)


async def chat_completions(state: State, exchange: Exchange) -> None:
    """POST /v1/chat/completions. Raises ApiError before anything was sent."""
    body, prompt = await read_chat(state, exchange)
    job = await chat_job(state, body, prompt)
    dialect = _Chat(_head(state), shapes.completion_id(), prompt)
    await _run(state, exchange, job, dialect)


async def _run(state: State, exchange: Exchange, job: Job, dialect: _Dialect) -> None:
    texts = await prompt_texts(state, job.prompts) if job.ask.verbose else []
    with Flow(state, exchange, job) as flow:
        if job.ask.stream:
            await _stream(exchange, flow, job, dialect)
            return
        answers = await flow.collect()
    done = [answer.finished() for answer in answers]
    choices = []
    for answer in answers:
        choice = dialect.choice(answer)
        if answer.probabilities:
            choice["logprobs"] = _logprobs(job, answer.probabilities)
        choices.append(choice)
    reply = {
        "choices": choices,
        **dialect.head,
        "usage": shapes.usage(done, job.ask.n),
        "id": dialect.id,
    }
    if job.ask.verbose:
        reply["__verbose"] = native.final(
            state, job, answers[0], texts[0], streamed=False
        )
    reply["timings"] = shapes.done_timings(done[-1])
    await exchange.send_json(reply)


def _logprobs(job: Job, tokens: Sequence[m.TokenProbability]) -> dict[str, Any]:
    post = job.ask.post_sampling_probs
    return {"content": shapes.probabilities(tokens, post_sampling=post)}


class _Chunks:
    """The chunks of one stream, as they are sent."""

    def __init__(
        self, stream: EventStream, job: Job, dialect: _Dialect, most_untold: int
    ) -> None:
        """`most_untold` are tokens whose probabilities may wait for their text."""
        self._stream = stream
        self._job = job
        self._dialect = dialect
        self._opened: set[int] = set()
        self._untold: dict[int, list[m.TokenProbability]] = {}
        """Probabilities of tokens whose text has not gone out yet, by answer."""
        self._most_untold = most_untold
        self._moulds: dict[tuple[int, type[Piece]], Mould] = {}
        """Of the texts of each answer, by what kind of text it is."""

    async def progress(self, answer: Answer) -> None:
        """Tell how much of a prompt has been read."""
        dialect = self._dialect
        chunk = dialect.opening(answer) or dialect.part(answer, Content(""))
        if self._job.ask.timings_per_token:
            chunk["timings"] = shapes.timings(*mid_timings(answer))
        await self._stream.send({**chunk, "prompt_progress": progress(answer)})

    async def add(self, answer: Answer, happened: m.Delta | m.Done) -> None:
        """Tell what an event of the engine adds to an answer."""
        index = answer.index
        if index not in self._opened:
            self._opened.add(index)
            chunk = self._dialect.opening(answer)
            if chunk is not None:
                await self._stream.send(chunk)
        if happened.probabilities:
            self._untold.setdefault(index, []).extend(happened.probabilities)
            if sum(map(len, self._untold.values())) > self._most_untold:
                raise too_many(whole=False)
        pieces = self._dialect.pieces(answer, happened)
        if self._job.ask.timings_per_token or index in self._untold:
            await self._add_with_more(answer, pieces)
        else:
            for piece in pieces:
                await self._stream.put(self._encoded(answer, piece))
        if isinstance(happened, m.Done):
            times = shapes.done_timings(happened)
            usage_follows = self._job.ask.include_usage
            last = self._dialect.ending(answer, times, usage_follows)
            self._tell(answer, last)
            await self._stream.send(last)

    async def _add_with_more(self, answer: Answer, pieces: Sequence[Piece]) -> None:
        """Pieces with timings, and with the probabilities of their tokens."""
        chunks = [self._dialect.part(answer, piece) for piece in pieces]
        if chunks:
            self._tell(answer, chunks[-1])
        for chunk in chunks:
            if self._job.ask.timings_per_token:
                chunk["timings"] = shapes.timings(*mid_timings(answer))
            await self._stream.send(chunk)

    def _tell(self, answer: Answer, chunk: dict[str, Any]) -> None:
        found = self._untold.pop(answer.index, None)
        if found:
            chunk["choices"][0]["logprobs"] = _logprobs(self._job, found)

    def _encoded(self, answer: Answer, piece: Piece) -> bytes:
        """The event of a piece; most are texts, and differ in nothing else."""
        if not isinstance(piece, Content | Reasoning):
            return event(self._dialect.part(answer, piece))
        kind = type(piece)
        mould = self._moulds.get((answer.index, kind))
        if mould is None:
            chunk = self._dialect.part(answer, kind(HOLE))
            mould = self._moulds[answer.index, kind] = Mould(chunk)
        return mould.filled(piece.text)


async def _stream(exchange: Exchange, flow: Flow, job: Job, dialect: _Dialect) -> None:
    """Chunks as they come: an opening, texts, an ending for each answer, `[DONE]`."""
    stream = EventStream(exchange)
    chunks = _Chunks(stream, job, dialect, flow.most_held)
    while not flow.finished:
        answer, happened = await flow.heard(stream)
        match happened:
            case m.Delta() | m.Done():
                await chunks.add(answer, happened)
            case m.Progress() if job.ask.return_progress and not answer.n_decoded:
                await chunks.progress(answer)
    if job.ask.include_usage:
        done = [answer.finished() for answer in flow.answers]
        usage = dialect.usage(done, job.ask.n)
        if usage is not None:
            await stream.send(usage)
    await stream.end(DONE)
