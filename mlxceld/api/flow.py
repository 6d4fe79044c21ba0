"""Running generations for one HTTP request, and stopping them when nobody listens.

A request may have several prompts; their events arrive here in one queue, together
with the news that the client has gone. Leaving the `with` block of a `Flow` cancels
whatever still runs, without an `await`: it works in a task that is being cancelled,
during prefill, decode and while queued.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from mlxceld.api.answer import Answer, most_held, too_many
from mlxceld.api.errors import (
    ClientGone,
    from_engine,
    invalid,
    too_slow,
    unavailable,
)
from mlxceld.api.fields import Ask, read_ask
from mlxceld.api.grammars import with_default
from mlxceld.api.http import Exchange
from mlxceld.api.prompt import Pieces
from mlxceld.api.record import Watcher
from mlxceld.api.shapes import finish_reason, public_settings
from mlxceld.api.sse import EventStream
from mlxceld.api.state import State
from mlxceld.engine import messages as m
from mlxceld.engine.client import EngineError, Event, Generation, Unavailable

MAX_UNREAD = 16384
"""Events that wait for one client, about as many tokens. A client that reads so slowly
loses its answer: what it has not read would fill the memory of everybody."""


@dataclass(frozen=True, slots=True)
class Job:
    """A validated request: what to generate, from which prompts."""

    ask: Ask
    prompts: list[Pieces]
    biases: tuple[tuple[int, float], ...]
    preserved: tuple[str, ...] = ()
    """Texts of special tokens that the answers show."""
    budget: m.ThinkingBudget | None = None
    """What bounds the reasoning of each answer."""


async def resolve_bias(
    state: State, wanted: Sequence[tuple[int | str, float]]
) -> tuple[tuple[int, float], ...]:
    """Pairs of token and bias; a text stands for each of its tokens."""
    found: list[tuple[int, float]] = []
    for token, amount in wanted:
        if isinstance(token, int):
            found.append((token, amount))
            continue
        answer = await ask_engine(state.client.tokenize([token], parse_special=False))
        found.extend((piece, amount) for piece in answer.tokens)
    return tuple(found)


async def ask_engine(question: Any) -> Any:
    """Await a question to the engine about text. Raises ApiError when it cannot."""
    try:
        return await question
    except Unavailable as error:
        raise unavailable(str(error), error.retry_after) from None
    except EngineError as error:
        raise from_engine(error.failed) from None


async def make_job(state: State, body: dict[str, Any], prompts: list[Pieces]) -> Job:
    """Read the completion fields of a body. Raises ApiError."""
    body = with_default(body, state.constraint)
    ask = read_ask(body, state.settings, state.limits())
    most = state.ready().plan.slots + state.settings.server.queue_size
    if len(prompts) * ask.n > most:
        # Some of them would never find room, and the others would run for nothing.
        raise invalid(
            f"a request may ask for at most {most} answers, the slots and the queue "
            f"together, but this one asks for {len(prompts) * ask.n}"
        )
    # Each of `n` answers is a request of its own; they share what was read of the
    # prompt in the engine.
    every = [prompt for prompt in prompts for _ in range(ask.n)]
    biases = await resolve_bias(state, ask.logit_bias)
    if ask.ignore_eos:
        # As in llama-server, they are told with the others.
        biases += tuple((token, -math.inf) for token in state.ready().model.eos_ids)
    return Job(ask, every, biases)


class Flow:
    """The generations of one job, as one stream of events."""

    def __init__(self, state: State, exchange: Exchange, job: Job) -> None:
        self._state = state
        self._exchange = exchange
        self._job = job
        self._inbox: deque[tuple[Answer, Event, float] | Exception] = deque()
        self._generations: list[Generation] = []
        self._watching: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[bool] | None = None
        """Whoever waits for news; gets whether there are any."""
        self._since = 0.0
        """When the waiting began, a time of the loop's clock."""
        self._alarm: asyncio.TimerHandle | None = None
        self._patience = job.ask.sse_ping_interval
        self.answers = [
            Answer(index, told=job.ask.stream) for index in range(len(job.prompts))
        ]
        self._running = len(self.answers)
        self._whole = False
        """Whether answers are wanted whole."""
        self._held = 0
        """Tokens with probabilities that have come and are not told yet."""
        most = most_held(job.ask.n_probs, state.limits().n_vocab)
        self.most_held = max(most, len(job.prompts))
        """How many tokens may wait so; those of one step come together."""

    def __enter__(self) -> Flow:
        """Send every prompt to the engine. Raises ApiError when it takes none."""
        try:
            for index, prompt in enumerate(self._job.prompts):
                self._begin(index, prompt)
        except Unavailable as error:
            self.close()
            raise unavailable(str(error), error.retry_after) from None
        self._watching = asyncio.create_task(self._watch())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self, index: int, prompt: Pieces) -> None:
        ask = self._job.ask.for_answer(index)
        shifts = self._state.settings.engine.context_shift
        generation = self._state.client.generate(
            prompt=prompt,
            sampling=ask.sampling(self._job.biases),
            # A list of nothing but tokens is used as it is.
            add_special=not prompt or isinstance(prompt[0], str),
            n_predict=ask.n_predict,
            stop=list(ask.stop),
            t_max_predict_ms=ask.t_max_predict_ms,
            n_indent=ask.n_indent,
            grammar=ask.grammar,
            id_slot=ask.id_slot,
            cache_prompt=ask.cache_prompt,
            preserved=list(self._job.preserved),
            shift=m.Shift(ask.n_keep, ask.n_discard) if shifts else None,
            budget=self._job.budget,
        )
        self._generations.append(generation)
        self._state.running.add(generation.id, public_settings(ask))
        timings = self._state.metrics.timings
        watcher = Watcher(self._exchange.record, timings, time.monotonic())
        answer = self.answers[index]
        generation.listen(partial(self._hear, answer, generation, watcher))

    @property
    def reading(self) -> bool:
        """Whether a slot works for this request; in the queue nothing is promised."""
        return any(answer.started for answer in self.answers)

    def close(self) -> None:
        """Cancel everything that still runs. Synchronous; may be called twice."""
        for generation in self._generations:
            generation.cancel()
            self._state.running.remove(generation.id)
        if self._watching is not None:
            self._watching.cancel()
        if self._alarm is not None:
            self._alarm.cancel()

    async def next(self) -> tuple[Answer, Event] | None:
        """The next event and the answer it belongs to, which has taken it already.

        None when nothing came for the request's ping interval. Raises ApiError for a
        failure of the engine and ClientGone.
        """
        if not self._inbox and not await self._news():
            return None
        return self._taken()

    async def heard(self, stream: EventStream) -> tuple[Answer, Event]:
        """As `next`, for a stream: what it holds back is written before anybody waits.

        Pings while a slot works and nothing comes.
        """
        while not self._inbox:
            await stream.flush()
            if not self._inbox and not await self._news() and self.reading:
                await stream.ping()
        return self._taken()

    def _taken(self) -> tuple[Answer, Event]:
        item = self._inbox.popleft()
        if isinstance(item, Exception):
            raise item
        answer, event, now = item
        answer.take(event, now)
        if isinstance(event, m.Delta | m.Done) and not self._whole:
            self._held -= len(event.probabilities)
        if isinstance(event, m.Done):
            self._running -= 1
            self._exchange.record.finish_reason = finish_reason(event)
        return answer, event

    async def _news(self) -> bool:
        """Wait until something is there; False after the ping interval."""
        self._waiter = waiter = self._loop.create_future()
        self._since = self._loop.time()
        if self._alarm is None and self._patience > 0:
            self._alarm = self._loop.call_later(self._patience, self._look)
        try:
            return await waiter
        finally:
            self._waiter = None

    def _look(self) -> None:
        """End a waiting that takes too long. One alarm serves many that do not."""
        self._alarm = None
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        left = self._since + self._patience - self._loop.time()
        if left > 0:
            self._alarm = self._loop.call_later(left, self._look)
        else:
            waiter.set_result(False)

    @property
    def finished(self) -> bool:
        return not self._running

    async def collect(self) -> list[Answer]:
        """Wait for all answers. Raises ApiError for the first failure, ClientGone."""
        self._whole = True
        while not self.finished:
            await self.next()
        return self.answers

    def _hear(
        self, answer: Answer, generation: Generation, watcher: Watcher, event: Event
    ) -> None:
        """Take an event as it comes from the engine, before a slow client delays it.

        This runs where the messages of all requests are read: a fault of ours must end
        this request alone.
        """
        try:
            now = time.monotonic()
            watcher.take(event, now)
            ended = False
            if isinstance(event, m.Delta | m.Done):
                self._held += len(event.probabilities)
            full = self._held > self.most_held
            match event:
                case m.Delta() if self._whole and not (full or self._inbox):
                    # Nobody has to wake up for a token where the whole is wanted.
                    answer.take(event, now)
                    return
                case m.Started():
                    self._state.running.seat(generation.id, event.slot)
                case m.Done() | m.Failed():
                    ended = True
                    self._state.running.remove(generation.id)
            self._tell((answer, event, now))
            if (full or len(self._inbox) > MAX_UNREAD) and not ended:
                generation.cancel()
                self._state.running.remove(generation.id)
                self._tell(too_many(whole=True) if self._whole else too_slow())
        except Exception as error:
            generation.cancel()
            self._tell(error)

    def _tell(self, news: tuple[Answer, Event, float] | Exception) -> None:
        self._inbox.append(news)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def _watch(self) -> None:
        await self._exchange.gone()
        self._tell(ClientGone())


async def prompt_texts(state: State, prompts: Sequence[Pieces]) -> list[str]:
    """The prompts as text: what was text stays, tokens are written out.

    The model's BOS stands before a text that it will be put before.
    """
    model = state.ready().model
    bos = model.bos_token if model.add_bos else ""
    texts = []
    for pieces in prompts:
        first = pieces[0]
        adds = isinstance(first, str) and not first.startswith(bos)
        words: list[str] = [bos] if adds else []
        tokens: list[int] = []
        for piece in [*pieces, ""]:
            if isinstance(piece, int):
                tokens.append(piece)
                continue
            if tokens:
                words.append(await ask_engine(state.client.detokenize(tokens)))
                tokens = []
            words.append(piece)
        texts.append("".join(words))
    return texts


def mid_timings(answer: Answer) -> tuple[int, int, int, float, float]:
    """Arguments of `shapes.timings` for an answer that is still running."""
    read = answer.n_prompt if answer.first_token else answer.n_read
    return (
        max(read, answer.n_cached),
        answer.n_cached,
        answer.n_decoded,
        answer.prompt_ms if read > answer.n_cached else 0.0,
        answer.predicted_ms,
    )


def progress(answer: Answer) -> dict[str, int]:
    """How much of the prompt has been read, in tokens and milliseconds."""
    return {
        "total": answer.n_prompt,
        "cache": answer.n_cached,
        "processed": answer.n_read,
        "time_ms": round((answer.now - answer.started) * 1e3),
    }
