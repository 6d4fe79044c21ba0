"""Prompts on their way into the slots: chunk by chunk, or copied from another slot.

The oldest prompt is read to its end first. So a request that begins like an older one
need not be held back for it: when its own turn comes, that text is there to be copied.
Where a chunk has room beside the end of a prompt, the next ones are read with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mlxceld.engine import prefixes, prompts
from mlxceld.engine.admission import Limits
from mlxceld.engine.faults import fault
from mlxceld.engine.messages import Progress, Up
from mlxceld.engine.room import Room, decodes
from mlxceld.engine.runner import Part
from mlxceld.engine.slot import Request, Slot, serial
from mlxceld.engine.speed import FIRST, Speed
from mlxceld.engine.totals import Tally

Fail: TypeAlias = Callable[[Slot, Request, Exception], None]

Chunk: TypeAlias = tuple[Slot, Request, int]
"""A slot whose request is read up to that many tokens."""


class Reading:
    """Reads the prompts of the slots; `fail` ends a request whose prompt cannot be."""

    def __init__(
        self,
        room: Room,
        emit: Callable[[Up], None],
        tally: Tally,
        fail: Fail,
        clock: Callable[[], float],
        limits: Callable[[], Limits],
    ) -> None:
        """`limits` tells the bounds of the next chunk; they may change."""
        self._room = room
        self._slots = room.slots
        self._runner = room.runner
        self._emit = emit
        self._tally = tally
        self._fail = fail
        self._clock = clock
        self._limits = limits
        self._speed = Speed()
        self._left = clock()
        """When the last turn was done reading: what came since is a decode step."""
        self._pause = 0.0
        """Seconds that streams have waited already when this turn's chunk begins."""
        self._rode = False
        """Whether this turn's step has taken a chunk along."""

    def read_chunk(self) -> None:
        """Read one chunk of the oldest prompt that is not yet read, if there is one.

        What another slot has read of it already is copied, which does not count.
        """
        if self._rode:
            self._rode = False
            self._left = self._clock()
            return
        self._pause = self._clock() - self._left
        while (oldest := self._oldest()) is not None:
            slot, request = oldest
            self._copy(slot, request, self._room.make)
            if slot.request is request and slot.prefilling:
                self._read_next(slot, request)
                break
        self._left = self._clock()

    # ---- along with a step, where the runner can ----

    def along(self) -> Chunk | None:
        """The chunk of the oldest prompt that the coming step may take along.

        Before the step's rows are made: making room for it may move their spans.
        """
        oldest = self._oldest() if self._runner.takes_along else None
        if oldest is None:
            return None
        slot, request = oldest
        self._copy(slot, request, self._room.hold)
        if slot.request is not request or not slot.prefilling:
            return None
        take = min(_unread(slot), self._most(slot.n_held))
        end = self._end(slot, take)
        return (slot, request, end) if self._room.hold(slot, end) else None

    def part(self, chunk: Chunk) -> Part:
        """What the runner is told of a chunk."""
        slot, request, end = chunk
        start, held = self._room.spans.start(slot.id, end), slot.n_held
        return Part(slot.id, start, held, request.tokens[held:end])

    def rode(self, chunk: Chunk, seconds: float) -> None:
        """A step has read the chunk; both together took `seconds`."""
        slot, request, end = chunk
        held = slot.n_held
        # What the step alone takes is known from the turns without a chunk.
        seconds = max(0.0, seconds - self._pause)
        self._speed.learn(held, end - held, seconds, end - held)
        self._tally.read(end - held, seconds)
        self._advance(slot, request, end)
        self._rode = True

    def found(self, slot: Slot, request: Request, n: int) -> None:
        """`n` more of the tokens that the slot holds did not have to be read."""
        if not request.output:
            request.n_cached += n
            self._tally.cached_tokens += n
            self._tell(slot, request)

    def _oldest(self) -> tuple[Slot, Request] | None:
        """The slot whose prompt is read next, and that request."""
        reading = [slot for slot in self._slots if slot.prefilling]
        slot = min(reading, key=serial, default=None)
        if slot is None or slot.request is None:
            return None
        return slot, slot.request

    def _copy(
        self, slot: Slot, request: Request, make: Callable[[Slot, int], bool]
    ) -> None:
        """Copy what another slot has read already; `make` makes room for it.

        And for the token behind it: where that is the prompt's last, the coming step
        has a row of it.
        """
        prefix = prefixes.longest(self._slots, slot, self._runner)
        if prefix is None or not make(slot, prefix.n + 1):
            return
        # The room may have been made at the cost of what was to be copied.
        prefix = prefixes.longest(self._slots, slot, self._runner)
        if prefix is None:
            return
        source, n, start = prefix.source.id, prefix.n, self._room.spans.start
        try:
            self._runner.copy(source, slot.id, start(source), start(slot.id, n), n)
        except Exception as error:
            self._fail(slot, request, error)
            return
        saved = n - slot.n_held
        slot.n_held = n
        self.found(slot, request, saved)

    # ---- what is read next ----

    def _read_next(self, slot: Slot, request: Request) -> None:
        """Read a chunk of this prompt, the oldest, and of others if they fit in."""
        most = self._most(slot.n_held)
        chunks = [(slot, request, _unread(slot))]
        pacing = self._limits().pacing
        bound = min(most, pacing.together)
        if self._joins(slot) and 2 * _unread(slot) <= bound:
            most = bound
            chunks += self._beside(slot, most)
        takes = prompts.fill([unread for *_, unread in chunks], most, pacing.grain)
        chosen = [
            (slot, request, self._end(slot, take))
            for (slot, request, _), take in zip(chunks, takes, strict=True)
            if take
        ]
        chosen = self._with_room(chosen)
        if len(chosen) > 1:
            self._read_together(chosen, most)
        elif chosen:
            self._read(*chosen[0], most)

    def _joins(self, slot: Slot) -> bool:
        """Whether the slot's prompt may be read with others.

        Where chunks have a grain, attention over texts that begin at several places
        would be prepared for each of them.
        """
        begins = slot.n_held == 0 or self._limits().pacing.grain == 1
        return begins and self._runner.reads_together

    def _beside(self, oldest: Slot, most: int) -> list[Chunk]:
        """Prompts that could be read with the oldest, and how much of each is unread.

        In order of arrival, and not those that will copy what an older one reads, nor
        those that hold so much that `most` tokens would take too long.
        """
        found: list[Chunk] = []
        older = [oldest]
        waiting = [s for s in self._slots if s.prefilling and s is not oldest]
        for slot in sorted(waiting, key=serial)[: prompts.MOST_ROWS - 1]:
            request = slot.request
            assert request is not None
            if self._most(slot.n_held) >= most and not _waits(slot, older):
                self._copy(slot, request, self._room.hold)
                if slot.prefilling and self._joins(slot):
                    found.append((slot, request, _unread(slot)))
            older.append(slot)
        return found

    def _with_room(self, chosen: list[Chunk]) -> list[Chunk]:
        """The chunks whose spans can hold them; none when the oldest one's cannot.

        Nobody but idle slots gives way to those that are read beside it.
        """
        slot, _, end = chosen[0]
        if not self._room.make(slot, end):
            return []
        found, ends = [chosen[0]], {slot.id: end}
        for other, request, its_end in chosen[1:]:
            if other.request is request and self._room.hold(other, its_end, ends):
                found.append((other, request, its_end))
                ends[other.id] = its_end
        return found

    def _end(self, slot: Slot, take: int) -> int:
        """Where a chunk of `take` tokens ends: at a multiple of the grain, if it can.

        One that would not get so far goes on to the next: it would be filled up to it.
        """
        held, last, limits = slot.n_held, slot.n_held + _unread(slot), self._limits()
        end, grain = held + take, limits.pacing.grain
        aligned = end - end % grain
        if aligned <= held and limits.prefill_chunk >= grain:
            aligned += grain
        return min(aligned, last) if held < aligned and end < last else end

    def _most(self, held: int) -> int:
        """Tokens of the next chunk after `held` ones: fewer while streams are running.

        `chunk_seconds` bounds it even when nobody else runs: whoever watches the
        engine takes longer silence for a hang.
        """
        limits = self._limits()
        most, seconds = limits.prefill_chunk, limits.chunk_seconds
        if limits.gap and any(map(decodes, self._slots)):
            left = max(0.0, limits.gap - self._pause)
            seconds = min(left, seconds) if seconds else left
        elif not seconds:
            return most
        n = self._speed.tokens(held, seconds)
        if n is None:
            return min(most, FIRST)
        return min(most, max(limits.pacing.least, n))

    # ---- reading it ----

    def _read(self, slot: Slot, request: Request, end: int, most: int) -> None:
        held = slot.n_held
        began = self._clock()
        try:
            start = self._room.spans.start(slot.id, end)
            self._runner.prefill(slot.id, start, held, request.tokens[held:end])
        except Exception as error:
            self._fail(slot, request, error)
            return
        seconds = self._clock() - began
        self._speed.learn(held, end - held, seconds, most)
        self._tally.read(end - held, seconds)
        self._advance(slot, request, end)

    def _read_together(self, chunks: list[Chunk], most: int) -> None:
        """Read the chunks as one; when that fails each alone, to fail by itself."""
        began = self._clock()
        try:
            parts = [self.part(chunk) for chunk in chunks]
            self._runner.prefill_together(parts)
        except Exception as error:
            self._emit(fault("reading prompts together", error))
            for slot, request, end in chunks:
                self._read(slot, request, end, most)
            return
        seconds = self._clock() - began
        lengths = [len(part.tokens) for part in parts]
        size = len(parts) * prompts.width(lengths, self._limits().pacing.grain)
        self._speed.learn(max(part.position for part in parts), size, seconds, most)
        self._tally.read(sum(lengths), seconds)
        for chunk in chunks:
            self._advance(*chunk)

    def _advance(self, slot: Slot, request: Request, end: int) -> None:
        slot.n_held = end
        if not slot.prefilling:
            self._runner.mark(slot.id, end)
        if not request.output:
            self._tell(slot, request)

    def _tell(self, slot: Slot, request: Request) -> None:
        n_prompt, n_cached = len(request.prompt), request.n_cached
        self._emit(Progress(request.id, slot.n_held, n_prompt, n_cached))


def _unread(slot: Slot) -> int:
    """Tokens of the slot's prompt that are to be read in chunks, all but the last."""
    return slot.request.n_tokens - 1 - slot.n_held if slot.request is not None else 0


def _waits(slot: Slot, older: list[Slot]) -> bool:
    """Whether the slot's prompt begins like one that is still to be read."""
    request = slot.request
    if request is None or not request.message.cache_prompt:
        return False
    for other in older:
        first = other.request
        if first is None or not first.message.cache_prompt:
            continue
        if prompts.shares(_text(request), slot.n_held, _text(first)):
            return True
    return False


def _text(request: Request) -> list[int]:
    """What the request's slot has to hold, without a copy where that is its prompt."""
    return request.tokens if request.output or request.skipped else request.prompt
