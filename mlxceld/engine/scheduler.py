"""Who runs next: the queue, the slots, one prompt chunk and one decode step at a time.

The loop is `advance` (admit; queue one decode step for every decoding row; read the
tokens of the step before) and `read_chunk` (at most one prompt chunk), over and over. A
prompt's last token is never part of a chunk: it is what the slot's first row reads, so
that every token is sampled in one place. The scheduler knows no MLX; tests drive it
with a scripted runner and a clock of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mlxceld.engine import ledger, shift
from mlxceld.engine.admission import Limits as Limits
from mlxceld.engine.admission import choose, objection, overdue
from mlxceld.engine.answer import Answers
from mlxceld.engine.budget import Budget
from mlxceld.engine.faults import fault
from mlxceld.engine.keeper import Keeper
from mlxceld.engine.messages import (
    Failed,
    Generate,
    SlotAction,
    Snapshot,
    Started,
    Up,
)
from mlxceld.engine.reading import Chunk, Reading
from mlxceld.engine.room import Room, decodes
from mlxceld.engine.runner import Pending, Row, Runner, TextFiles
from mlxceld.engine.slot import Matcher, Request, Seat, Slot, serial
from mlxceld.engine.slotactions import SlotActions
from mlxceld.engine.text import Text
from mlxceld.engine.totals import Tally
from mlxceld.engine.waiting import Waiting
from mlxceld.plan import Plan

EXCEEDED = "Context size has been exceeded."
"""What llama-server says when a shared pool is too small for all who run."""


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
        files: TextFiles | None = None,
    ) -> None:
        """`files` are for slot actions, which fail without."""
        self.plan = plan
        self.slots = [Slot(index) for index in range(plan.slots)]
        self.waiting = Waiting()
        self.tally = Tally()
        self._vocabulary = vocabulary
        self._runner = runner
        self._emit = emit
        self.limits = limits or Limits()
        self._clock = clock
        self._keeper = Keeper(plan, runner)
        self._room = Room(plan, self.slots, runner, self._overflow, self._keeper.keep)
        self._answers = Answers(vocabulary, emit, self.tally)
        self._reading = Reading(
            self._room,
            emit,
            self.tally,
            self._fail,
            clock,
            lambda: self.limits,
        )
        self._actions = SlotActions(
            self._room, self._keeper, files, vocabulary.n_vocab, emit, self._touch
        )
        self._in_flight: tuple[Pending, list[Seat]] | None = None
        self._serial = 0
        self._tick = 0

    # ---- what the front asks for ----

    def submit(
        self,
        message: Generate,
        prompt: list[int],
        matcher: Matcher | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Queue a request whose prompt has become `prompt`, or refuse it at once.

        `matcher` and `budget` are at the beginning of what the answer has to match,
        and of what bounds its reasoning.
        """
        self.tally.requests += 1
        free = sum(slot.request is None for slot in self.slots)
        room = self.limits.queue_size + free - len(self.waiting)
        refusal = objection(message, prompt, self.plan, room)
        if refusal is not None:
            self.tally.failed += 1
            self._emit(refusal)
            return
        self._serial += 1
        request = Request.create(
            message,
            prompt,
            self.plan.slot_ctx,
            self._vocabulary,
            arrived=self._clock(),
            serial=self._serial,
            n_train=self.limits.n_train,
        )
        request.matcher, request.budget = matcher, budget
        self.waiting.add(request)

    def cancel(self, request_id: int) -> None:
        """Forget a request wherever it is; nothing more is emitted for it."""
        if self.waiting.take(request_id) is not None:
            self.tally.cancelled += 1
            return
        for slot in self.slots:
            if slot.request is not None and slot.request.id == request_id:
                self._release(slot)
                self.tally.cancelled += 1
                return
        self._actions.cancel(request_id)

    def act(self, action: SlotAction) -> None:
        """Save, restore or erase a slot as soon as it is idle."""
        self._actions.add(action)

    # ---- the loop ----

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(
            self.waiting
            or self._in_flight
            or self._actions
            or any(slot.request is not None for slot in self.slots)
        )

    def advance(self) -> None:
        """Admit, queue the next decode step, then read the tokens of the one before.

        In this order the device works while the host turns tokens into text. A runner
        that is not pipelined has its step read at once.
        """
        self._actions.run()
        self._admit()
        self._drop_overdue()
        before, self._in_flight = self._in_flight, self._launch()
        if before is not None:
            self._collect(*before)
        if self._in_flight is not None and not self._runner.pipelined:
            now, self._in_flight = self._in_flight, None
            self._collect(*now)

    def read_chunk(self) -> None:
        """Read one chunk of the oldest prompt that is not yet read, if there is one."""
        self._reading.read_chunk()

    def snapshot(self) -> Snapshot:
        """The state of all slots, for the status routes."""
        return Snapshot(
            slots=[self._answers.slot_state(slot) for slot in self.slots],
            waiting=len(self.waiting),
            n_live=ledger.live(self.slots),
            kv_bytes=self._runner.kv_bytes,
            totals=self.tally.totals(self._room.evicted),
            saved_bytes=self._keeper.store.nbytes,
            saved_prompts=len(self._keeper.store),
        )

    # ---- admission ----

    def _admit(self) -> None:
        """Seat waiting requests in their order of arrival.

        One that waits for a particular busy slot lets others pass; one that waits for
        room does not, or a stream of small requests would starve it.
        """
        while self.waiting and (
            free := [slot for slot in self.slots if slot.request is None]
        ):
            request = self.waiting.first(slot.id for slot in free)
            if request is None:
                return
            if self.plan.shared and not ledger.fits(
                request.n_tokens, self.slots, self.plan.pool
            ):
                return
            self.waiting.take(request.id)
            wanted = request.message.id_slot
            if wanted >= 0:
                slot = self.slots[wanted]
            else:
                least = self.limits.slot_prompt_similarity
                slot = choose(request, free, least, self._reusable)
            self._seat(request, slot)

    def _drop_overdue(self) -> None:
        now = self._clock()
        # One deadline for all: whoever has waited longest is the first to miss it.
        while (request := self.waiting.longest) is not None:
            refusal = overdue(request, now, self.limits.queue_timeout)
            if refusal is None:
                return
            self.waiting.take(request.id)
            self.tally.failed += 1
            self._emit(refusal)

    def _seat(self, request: Request, slot: Slot) -> None:
        remembered = request.message.cache_prompt
        kept = self._reusable(slot, request) if remembered else 0
        wanted = request.tokens if remembered else []
        kept = self._keeper.recall(slot, wanted, kept, self.slots, self._room)
        slot.request = slot.last = request
        slot.n_held = kept
        slot.tokens = []
        self._touch(slot)
        request.issued = len(request.output)
        if request.started is None:
            request.started = self._clock()
            self._emit(Started(request.id, slot.id, len(request.prompt), kept))
        if not request.output:
            # One that was put back while its prompt was read begins anew.
            request.n_cached = 0
            self._reading.found(slot, request, kept)

    def _reusable(self, slot: Slot, request: Request) -> int:
        """Tokens of the request that an idle slot need not read again.

        The last one is always read: its logits are what is sampled.
        """
        tokens = request.tokens
        common = min(slot.common_prefix(tokens), len(tokens) - 1)
        return self._runner.reusable(slot.id, common) if common else 0

    # ---- one decode step ----

    def _launch(self) -> tuple[Pending, list[Seat]] | None:
        """Queue the next token of every decoding slot."""
        add_bos = self._vocabulary.add_bos
        for slot in filter(shift.full, self.slots):
            shift.make_room(slot, self._runner, self._room, add_bos=add_bos)
        for slot in sorted(self._running(), key=serial):
            if decodes(slot):
                self._room.make(slot, slot.n_held + 1)
        chunk = self._reading.along() if any(map(decodes, self.slots)) else None
        seats: list[Seat] = []
        rows: list[Row] = []
        for slot in self.slots:
            request = slot.request
            if request is None or not decodes(slot):
                continue
            try:
                rows.append(self._row(slot, request))
            except Exception as error:  # A grammar's mask: it concerns this row alone.
                self._fail(slot, request, error)
            else:
                seats.append(Seat(slot, request, request.issued))
        if not seats:
            return None
        try:
            pending = self._step(rows, chunk)
        except Exception as error:
            self._fail_all(seats, error)
            return None
        for seat in seats:
            seat.slot.n_held += 1
            seat.request.issued += 1
        self.tally.step(len(seats), max(seat.slot.n_held for seat in seats))
        return pending, seats

    def _step(self, rows: list[Row], chunk: Chunk | None) -> Pending:
        """Queue the rows; with a chunk the step is done when this returns."""
        if chunk is None:
            return self._runner.step(rows)
        began = self._clock()
        try:
            pending = self._runner.step(rows, self._reading.part(chunk))
            pending.read()
        except Exception as error:
            # Whose fault it is shows when each is run alone.
            self._emit(fault("reading a prompt beside a step", error))
            return self._runner.step(rows)
        self._reading.rode(chunk, self._clock() - began)
        return pending

    def _row(self, slot: Slot, request: Request) -> Row:
        known = request.issued == len(request.output)
        if not known:
            token = None
        else:
            token = request.output[-1] if request.output else request.prompt[-1]
        return Row(
            slot=slot.id,
            start=self._room.spans.start(slot.id, slot.n_held + 1),
            position=slot.n_held,
            token=token,
            uniform=request.uniform(request.issued),
            request=request,
            allowed=request.matcher.mask() if request.matcher is not None else None,
        )

    def _collect(self, pending: Pending, seats: list[Seat]) -> None:
        """Read a step's tokens and hand each to its request, if that is still there."""
        try:
            tokens = pending.read()
            told = pending.probabilities() if any(map(_curious, seats)) else {}
        except Exception as error:
            self._fail_all(seats, error)
            return
        now = self._clock()
        for row, (seat, token) in enumerate(zip(seats, tokens, strict=True)):
            slot, request = seat.slot, seat.request
            # A request that was put back keeps its slot empty; one that came back
            # since then samples this token again, from the same random number, and
            # must not be given both.
            if slot.request is not request:
                continue
            if not len(request.output) == seat.index < request.issued:
                continue
            try:
                ended = self._answers.take(slot, request, token, now, told.get(row))
            except Exception as error:
                self._fail(slot, request, error)
                continue
            if ended:
                self._release(slot)

    # ---- ends ----

    def _release(self, slot: Slot) -> None:
        """The request is over; the slot remembers what it read."""
        request = slot.request
        assert request is not None
        slot.request = None
        self._touch(slot)
        slot.n_held = min(slot.n_held, request.n_tokens - 1)
        slot.tokens = request.tokens[: slot.n_held]

    def _overflow(self) -> None:
        """The pool is short for those who run: one gives way, or none survives."""
        if self.limits.overflow == "preempt":
            self._put_back(ledger.to_preempt(self.slots))
            return
        for slot in self._running():
            assert slot.request is not None
            self._fail(slot, slot.request, EXCEEDED)

    def _put_back(self, slot: Slot) -> None:
        """Preempt: back to the head of the queue, with its tokens but no cells."""
        request = slot.request
        assert request is not None
        slot.request = None
        self._room.forget(slot)
        request.issued = len(request.output)
        self.waiting.put_back(request)
        self.tally.preempted += 1

    def _fail(self, slot: Slot, request: Request, error: Exception | str) -> None:
        """End one request with an error; what its slot holds is trusted no more."""
        slot.request = None
        self._room.forget(slot)
        self.tally.failed += 1
        if isinstance(error, Exception):
            self._emit(fault(f"serving slot {slot.id}", error))
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


def _curious(seat: Seat) -> bool:
    return seat.request.message.sampling.n_probs > 0
