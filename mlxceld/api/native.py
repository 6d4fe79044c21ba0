"""llama-server's own dialect: POST /completion and /completions.

Its streams end without `[DONE]`; several prompts give a list of answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mlxceld.api import shapes
from mlxceld.api.answer import Answer
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
from mlxceld.api.sse import EventStream
from mlxceld.api.state import State
from mlxceld.engine import messages as m


async def completion(state: State, exchange: Exchange) -> None:
    """Continue one prompt or several. Raises ApiError before anything was sent."""
    body, prompts = await read_request(state, exchange)
    job = await make_job(state, body, prompts)
    texts = await prompt_texts(state, job.prompts)
    with Flow(state, exchange, job) as flow:
        if job.ask.stream:
            await _stream(state, exchange, flow, job, texts)
            return
        answers = await flow.collect()
    found = [
        pick(
            final(state, job, answer, texts[answer.index], streamed=False),
            job.ask.response_fields,
        )
        for answer in answers
    ]
    await exchange.send_json(found[0] if len(found) == 1 else found)


async def _stream(
    state: State, exchange: Exchange, flow: Flow, job: Job, texts: Sequence[str]
) -> None:
    stream = EventStream(exchange)
    wanted = job.ask.response_fields
    while not flow.finished:
        answer, event = await flow.heard(stream)
        match event:
            case m.Delta():
                await stream.send(_part(job, answer, event))
            case m.Progress() if job.ask.return_progress and not answer.n_decoded:
                await stream.send(_progress(job, answer))
            case m.Done():
                if event.text or event.tokens:
                    await stream.send(_part(job, answer, event))
                last = final(state, job, answer, texts[answer.index], streamed=True)
                await stream.send(pick(last, wanted))
    await stream.end()


def final(
    state: State, job: Job, answer: Answer, prompt: str, *, streamed: bool
) -> dict[str, Any]:
    """The whole answer; in a stream its text and tokens have been sent already."""
    done = answer.finished()
    content = answer.content
    tokens = answer.tokens if job.ask.return_tokens and not streamed else []
    reply = {
        "index": answer.index,
        "content": "" if streamed else content,
        "tokens": tokens,
        "id_slot": done.slot,
        "stop": True,
        "model": state.model_name,
        "tokens_predicted": done.n_decoded,
        "tokens_evaluated": done.n_prompt,
        "generation_settings": shapes.generation_settings(
            job.ask.for_answer(answer.index), job.biases
        ),
        "prompt": prompt,
        "has_new_line": "\n" in content,
        "truncated": done.truncated,
        "stop_type": done.stop_type,
        "stopping_word": done.stopping_word,
        "tokens_cached": done.n_held,
        "timings": shapes.done_timings(done),
    }
    if answer.probabilities and not streamed:
        reply["completion_probabilities"] = shapes.probabilities(
            answer.probabilities, post_sampling=job.ask.post_sampling_probs
        )
    return reply


def pick(answer: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """Only the wanted fields; a path like `timings/prompt_n` becomes a literal key."""
    if not wanted:
        return answer
    found: dict[str, Any] = {}
    for path in wanted:
        value: Any = answer
        for key in path.split("/"):
            if not isinstance(value, dict) or key not in value:
                break
            value = value[key]
        else:
            found[path] = value
    return found


class _Part(msgspec.Struct, frozen=True):
    """What every event with new text says; keys and their order are llama-server's."""

    index: int
    content: str
    tokens: Sequence[int]
    stop: bool
    id_slot: int
    tokens_predicted: int
    tokens_evaluated: int


def _event(answer: Answer, content: str, tokens: Sequence[int]) -> _Part:
    n_decoded, n_prompt = answer.n_decoded, answer.n_prompt
    return _Part(answer.index, content, tokens, False, -1, n_decoded, n_prompt)


def _part(job: Job, answer: Answer, event: m.Delta | m.Done) -> _Part | dict[str, Any]:
    part = _event(answer, event.text, event.tokens)
    if not (job.ask.timings_per_token or event.probabilities):
        return part
    more = _with_timings(job, answer, part)
    if event.probabilities:
        more["completion_probabilities"] = shapes.probabilities(
            event.probabilities, post_sampling=job.ask.post_sampling_probs
        )
    return more


def _progress(job: Job, answer: Answer) -> dict[str, Any]:
    # The single token 0 is what llama-server sends in these events.
    event = _with_timings(job, answer, _event(answer, "", [0]))
    event["prompt_progress"] = progress(answer)
    return event


def _with_timings(job: Job, answer: Answer, part: _Part) -> dict[str, Any]:
    """A part to which something is added: its timings, if they are wanted."""
    event = msgspec.structs.asdict(part)
    if job.ask.timings_per_token:
        event["timings"] = shapes.timings(*mid_timings(answer))
    return event
