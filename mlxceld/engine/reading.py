"""Prompts on their way into the slots: chunk by chunk, or copied from another slot.

The oldest prompt is read to its end first. So a request that begins like an older one
need not be held back for it: when its own turn comes, that text is there to be copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mlxceld.engine import prefixes
from mlxceld.engine.messages import Progress, Up
from mlxceld.engine.room import Room, decodes
from mlxceld.engine.slot import Request, Slot
from mlxceld.engine.totals import Tally

CHUNK_SECONDS = 0.25
"""Longest pause that a prompt chunk may put between the tokens of running streams."""

_MIN_CHUNK = 16

_FIRST_CHUNK = 64
"""Tokens that tell how fast this machine reads, where a chunk's time is bounded."""

Fail: TypeAlias = Callable[[Slot, Request, Exception], None]


class Reading:
    """Reads the prompts of the slots; `fail` ends a request whose prompt cannot be."""

    def __init__(
        self,
        room: Room,
        emit: Callable[[Up], None],
        tally: Tally,
        fail: Fail,
        clock: Callable[[], float],
        *,
        chunk: int,
        seconds: float = 0.0,
    ) -> None:
        """`chunk` is the most tokens of a prompt that are read at once.

        `seconds` is the longest that this should take even when nobody else runs, 0
        for no bound: whoever watches the engine takes longer silence for a hang.
        """
        self._room = room
        self._slots = room.slots
        self._runner = room.runner
        self._emit = emit
        self._tally = tally
        self._fail = fail
        self._clock = clock
        self._most = chunk
        self._seconds = seconds
        self._rate = 0.0
        """Tokens a second, 0 before the first chunk."""

    def read_chunk(self) -> None:
        """Read one chunk of the oldest prompt that is not yet read, if there is one.

        What another slot has read of it already is copied, which does not count.
        """
        while reading := [slot for slot in self._slots if slot.prefilling]:
            slot = min(reading, key=lambda s: s.request.serial if s.request else -1)
            request = slot.request
            assert request is not None
            self._copy(slot, request)
            if slot.request is request and slot.prefilling:
                self._read(slot, request)
                return

    def found(self, slot: Slot, request: Request, n: int) -> None:
        """`n` more of the tokens that the slot holds did not have to be read."""
        if not request.output:
            request.n_cached += n
            self._tally.cached_tokens += n
            self._tell(slot, request)

    def _copy(self, slot: Slot, request: Request) -> None:
        prefix = prefixes.longest(self._slots, slot, self._runner)
        if prefix is None or not self._room.make(slot, prefix.n):
            return
        # The room may have been made at the cost of what was to be copied.
        prefix = prefixes.longest(self._slots, slot, self._runner)
        if prefix is None:
            return
        source, start = prefix.source.id, self._room.spans.start
        try:
            self._runner.copy(source, slot.id, start(source), start(slot.id), prefix.n)
        except Exception as error:
            self._fail(slot, request, error)
            return
        saved = prefix.n - slot.n_held
        slot.n_held = prefix.n
        self.found(slot, request, saved)

    def _read(self, slot: Slot, request: Request) -> None:
        tokens = request.tokens
        end = min(slot.n_held + self._chunk(), len(tokens) - 1)
        if not self._room.make(slot, end):
            return
        began = self._clock()
        try:
            self._runner.prefill(
                slot.id,
                self._room.spans.start(slot.id),
                slot.n_held,
                tokens[slot.n_held : end],
            )
        except Exception as error:
            self._fail(slot, request, error)
            return
        seconds = self._clock() - began
        self._learn_rate(end - slot.n_held, seconds)
        self._tally.read(end - slot.n_held, seconds)
        slot.n_held = end
        if not slot.prefilling:
            self._runner.mark(slot.id, end)
        if not request.output:
            self._tell(slot, request)

    def _tell(self, slot: Slot, request: Request) -> None:
        n_prompt, n_cached = len(request.prompt), request.n_cached
        self._emit(Progress(request.id, slot.n_held, n_prompt, n_cached))

    def _chunk(self) -> int:
        """Tokens of the next chunk: fewer while streams are running."""
        if not self._rate:
            return min(self._most, _FIRST_CHUNK) if self._seconds else self._most
        streaming = any(map(decodes, self._slots))
        seconds = CHUNK_SECONDS if streaming else self._seconds
        if not seconds:
            return self._most
        return max(_MIN_CHUNK, min(self._most, int(self._rate * seconds)))

    def _learn_rate(self, n: int, seconds: float) -> None:
        if seconds > 0:
            rate = n / seconds
            self._rate = 0.5 * (rate + (self._rate or rate))
