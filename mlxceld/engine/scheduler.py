"""Who runs next: the queue, the slots, one prompt chunk and one decode step at a time.

The loop is `advance` (admit; queue one decode step for every decoding row; read the
tokens of the step before) and `read_chunk` (at most one prompt chunk), over and over. A
prompt's last token is never part of a chunk: it is what the slot's first row reads, so
that every token is sampled in one place. The scheduler knows no MLX; tests drive it
with a scripted runner and a clock of their own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from mlxceld.engine import ledger
from mlxceld.engine.admission import objection
from mlxceld.engine.answer import Answers
from mlxceld.engine.messages import Failed, Generate, Progress, Snapshot, Started, Up
from mlxceld.engine.runner import Pending, Row, Runner
from mlxceld.engine.slot import Request, Seat, Slot
from mlxceld.engine.spans import Spans
from mlxceld.engine.text import Text
from mlxceld.engine.totals import Tally
from mlxceld.plan import Plan

CHUNK_SECONDS = 0.25
"""Longest pause that a prompt chunk may put between the tokens of running streams."""

_MIN_CHUNK = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens of a chunk, waiting requests, share of a prompt that picks a slot."""

    prefill_chunk: int = 512
    queue_size: int = 128
    slot_prompt_similarity: float = 0.1


class Scheduler:
    """Owns queue and slots; `emit` takes the messages for the front."""

    def __init__(
        self,
        plan: Plan,
        vocabulary: Text,
        runner: Runner,
        emit: Callable[[Up], None],
        *,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.slots = [Slot(index) for index in range(plan.slots)]
        self.waiting: deque[Request] = deque()
        self.tally = Tally()
        self._vocabulary = vocabulary
        self._runner = runner
        self._emit = emit
        self._limits = limits or Limits()
        self._clock = clock
        self._spans = Spans(plan.slots, plan.slot_ctx, plan.pool, shared=plan.shared)
        self._answers = Answers(vocabulary, emit, self.tally)
        self._in_flight: tuple[Pending, list[Seat]] | None = None
        self._serial = 0
        self._tick = 0
        self._prefill_rate = 0.0

    # ---- what the front asks for ----

    def submit(self, message: Generate, prompt: list[int]) -> None:
        """Queue a request whose prompt has become `prompt`, or refuse it at once."""
        self.tally.requests += 1
        free = sum(slot.request is None for slot in self.slots)
        room = self._limits.queue_size + free - len(self.waiting)
        refusal = objection(message, prompt, self.plan, room)
        if refusal is not None:
            self.tally.failed += 1
            self._emit(refusal)
            return
        self._serial += 1
        self.waiting.append(
            Request.create(
                message,
                prompt,
                self.plan.slot_ctx,
                self._vocabulary,
                arrived=self._clock(),
                serial=self._serial,
            )
        )

    def cancel(self, request_id: int) -> None:
        """Forget a request wherever it is; nothing more is emitted for it."""
        for request in self.waiting:
            if request.id == request_id:
                self.waiting.remove(request)
                self.tally.cancelled += 1
                return
        for slot in self.slots:
            if slot.request is not None and slot.request.id == request_id:
                self._release(slot)
                self.tally.cancelled += 1
                return

    # ---- the loop ----

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(
            self.waiting
            or self._in_flight
            or any(slot.request is not None for slot in self.slots)
        )

    def advance(self) -> None:
        """Admit, queue the next decode step, then read the tokens of the one before.

        In this order the device works while the host turns tokens into text. A runner
        that is not pipelined has its step read at once.
        """
        self._admit()
        before, self._in_flight = self._in_flight, self._launch()
        if before is not None:
            self._collect(*before)
        if self._in_flight is not None and not self._runner.pipelined:
            now, self._in_flight = self._in_flight, None
            self._collect(*now)

    def snapshot(self) -> Snapshot:
        """The state of all slots, for the status routes."""
        return Snapshot(
            slots=[self._answers.slot_state(slot) for slot in self.slots],
            waiting=len(self.waiting),
            n_live=ledger.live(self.slots),
            kv_bytes=self._runner.kv_bytes,
            totals=self.tally.totals(),
        )

    # ---- admission ----

    def _admit(self) -> None:
        """Seat waiting requests in their order of arrival.

        One that waits for a particular busy slot lets others pass; one that waits for
        room does not, or a stream of small requests would starve it.
        """
        for request in list(self.waiting):
            free = [slot for slot in self.slots if slot.request is None]
            if not free:
                return
            wanted = request.message.id_slot
            if wanted >= 0 and self.slots[wanted].request is not None:
                continue
            if self.plan.shared and not ledger.fits(
                request.n_tokens, self.slots, self.plan.pool
            ):
                return
            self.waiting.remove(request)
            slot = self.slots[wanted] if wanted >= 0 else self._choose(request, free)
            self._seat(request, slot)

    def _choose(self, request: Request, free: list[Slot]) -> Slot:
        """The slot that remembers most of the prompt, else the least recently used.

        A remembered prefix counts when it is more than `slot_prompt_similarity` of the
        prompt, as in llama-server.
        """
        threshold = self._limits.slot_prompt_similarity
        if self._runner.trimmable and request.message.cache_prompt and threshold > 0:
            tokens = request.tokens
            best = max(free, key=lambda slot: slot.common_prefix(tokens))
            if best.common_prefix(tokens) > threshold * len(tokens):
                return best
        return min(free, key=lambda slot: slot.used)

    def _seat(self, request: Request, slot: Slot) -> None:
        tokens = request.tokens
        kept = 0
        if self._runner.trimmable and request.message.cache_prompt:
            # The last token is always read again: its logits are what is sampled.
            kept = min(slot.common_prefix(tokens), len(tokens) - 1)
        if kept == 0:
            self._spans.release(slot.id)
        slot.request = slot.last = request
        slot.n_held = kept
        slot.tokens = []
        self._touch(slot)
        request.issued = len(request.output)
        if request.started is None:
            request.started = self._clock()
            request.n_cached = kept
            self.tally.cached_tokens += kept
            n_prompt = len(request.prompt)
            self._emit(Started(request.id, slot.id, n_prompt, kept))
            self._emit(Progress(request.id, kept, n_prompt, kept))

    # ---- one decode step ----

    def _launch(self) -> tuple[Pending, list[Seat]] | None:
        """Queue the next token of every decoding slot."""
        for slot in sorted(self._running(), key=_serial):
            if self._decodes(slot):
                self._make_room(slot, slot.n_held + 1)
        seats = [
            Seat(slot, slot.request, slot.request.issued)
            for slot in self.slots
            if slot.request is not None and self._decodes(slot)
        ]
        if not seats:
            return None
        try:
            pending = self._runner.step(
                [self._row(seat.slot, seat.request) for seat in seats]
            )
        except Exception as error:
            self._fail_all(seats, error)
            return None
        for seat in seats:
            seat.slot.n_held += 1
            seat.request.issued += 1
        self.tally.step(len(seats), max(seat.slot.n_held for seat in seats))
        return pending, seats

    def _decodes(self, slot: Slot) -> bool:
        request = slot.request
        return (
            request is not None
            and not slot.prefilling
            and request.issued < request.limit
        )

    def _row(self, slot: Slot, request: Request) -> Row:
        known = request.issued == len(request.output)
        if not known:
            token = None
        else:
            token = request.output[-1] if request.output else request.prompt[-1]
        return Row(
            slot=slot.id,
            start=self._spans.start(slot.id),
            position=slot.n_held,
            token=token,
            uniform=request.uniform(request.issued),
            request=request,
        )

    def _collect(self, pending: Pending, seats: list[Seat]) -> None:
        """Read a step's tokens and hand each to its request, if that is still there."""
        try:
            tokens = pending.read()
        except Exception as error:
            self._fail_all(seats, error)
            return
        now = self._clock()
        for seat, token in zip(seats, tokens, strict=True):
            slot, request = seat.slot, seat.request
            # A request that was put back keeps its slot empty; one that came back
            # since then samples this token again, from the same random number, and
            # must not be given both.
            if slot.request is not request:
                continue
            if not len(request.output) == seat.index < request.issued:
                continue
            try:
                ended = self._answers.take(slot, request, token, now)
            except Exception as error:
                self._fail(slot, request, error)
                continue
            if ended:
                self._release(slot)

    # ---- one prompt chunk ----

    def read_chunk(self) -> None:
        """Read one chunk of the oldest prompt that is not yet read, if there is one."""
        reading = [slot for slot in self._running() if slot.prefilling]
        if not reading:
            return
        slot = min(reading, key=_serial)
        request = slot.request
        assert request is not None
        tokens = request.tokens
        end = min(slot.n_held + self._chunk(), len(tokens) - 1)
        if not self._make_room(slot, end):
            return
        began = self._clock()
        try:
            self._runner.prefill(
                slot.id,
                self._spans.start(slot.id),
                slot.n_held,
                tokens[slot.n_held : end],
            )
        except Exception as error:
            self._fail(slot, request, error)
            return
        self._learn_rate(end - slot.n_held, self._clock() - began)
        self.tally.read(end - slot.n_held, self._clock() - began)
        slot.n_held = end
        if not request.output:
            n_prompt = len(request.prompt)
            self._emit(Progress(request.id, end, n_prompt, request.n_cached))

    def _chunk(self) -> int:
        """Tokens of the next chunk: fewer while streams are running."""
        most = self._limits.prefill_chunk
        if not self._prefill_rate or not any(map(self._decodes, self.slots)):
            return most
        return max(_MIN_CHUNK, min(most, int(self._prefill_rate * CHUNK_SECONDS)))

    def _learn_rate(self, n: int, seconds: float) -> None:
        if seconds > 0:
            rate = n / seconds
            old = self._prefill_rate or rate
            self._prefill_rate = 0.5 * (old + rate)

    # ---- room ----

    def _make_room(self, slot: Slot, n: int) -> bool:
        """Let the slot's span hold `n` cells; False when its own request had to go.

        Order: what idle slots remember, then the youngest running request.
        """
        while slot.request is not None:
            if self.plan.shared:
                evict = ledger.to_evict(
                    self.slots, self._claims(), slot, n, self.plan.pool
                )
                if evict is None:
                    self._put_back(ledger.to_preempt(self.slots))
                    continue
                for idle in evict:
                    self._forget(idle)
            held = [other.n_held for other in self.slots]
            moves = self._spans.reserve(slot.id, n, held, self._claims())
            if moves is None:
                raise RuntimeError(f"no room for {n} cells in slot {slot.id}")
            if moves:
                self._runner.move(moves)
            return True
        return False

    def _claims(self) -> list[int]:
        """Cells that each slot has to keep: a decoding row needs one more at once."""
        return [slot.n_held + self._decodes(slot) for slot in self.slots]

    def _put_back(self, slot: Slot) -> None:
        """Preempt: back to the head of the queue, with its tokens but no cells."""
        request = slot.request
        assert request is not None
        slot.request = None
        self._forget(slot)
        request.issued = len(request.output)
        self.waiting.appendleft(request)
        self.tally.preempted += 1

    # ---- ends ----

    def _release(self, slot: Slot) -> None:
        """The request is over; the slot remembers what it read."""
        request = slot.request
        assert request is not None
        slot.request = None
        self._touch(slot)
        if self._runner.trimmable:
            slot.n_held = min(slot.n_held, request.n_tokens - 1)
            slot.tokens = request.tokens[: slot.n_held]
        else:
            self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        slot.n_held = 0
        slot.tokens = []
        self._spans.release(slot.id)

    def _fail(self, slot: Slot, request: Request, error: Exception) -> None:
        """End one request with an error; what its slot holds is trusted no more."""
        slot.request = None
        self._forget(slot)
        self.tally.failed += 1
        self._emit(Failed(request.id, 500, "server_error", f"{error}"))

    def _fail_all(self, seats: list[Seat], error: Exception) -> None:
        for seat in seats:
            if seat.slot.request is seat.request:
                self._fail(seat.slot, seat.request, error)

    def _running(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.request is not None]

    def _touch(self, slot: Slot) -> None:
        self._tick += 1
        slot.used = self._tick


def _serial(slot: Slot) -> int:
    return slot.request.serial if slot.request is not None else -1
