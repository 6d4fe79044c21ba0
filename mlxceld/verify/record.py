"""What was seen and measured at a server, as plain values.

A verdict needs nothing but a record, so that recorded answers can be judged as well as
fresh ones. Times are seconds since the moment the streams were sent, sizes are tokens
or bytes. None stands for what the server did not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

JITTER = 0.02
"""Seconds that an event may be late."""


class Status(IntEnum):
    """Exit status of `mlxcel-verify`."""

    GOOD = 0
    """Nothing is wrong; what cannot be seen is `unknown`, and no failure."""
    WRONG = 1
    """At least one verdict is `WRONG`."""
    USAGE = 2
    """The command line is wrong."""
    UNMEASURED = 3
    """The server cannot be reached, is not ready, or answers no stream."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the status routes said before anything was sent."""

    slots: int | None = None
    """`total_slots` of /props."""
    listed: int | None = None
    """Entries of /slots."""
    props_ctx: int | None = None
    slots_ctx: tuple[int, ...] = ()
    """`n_ctx` of every entry of /slots that has one."""
    models_ctx: int | None = None
    busy: int = 0
    """Slots that were at work already, for others."""
    build: str = ""
    model: str = ""
    mode: str = ""
    pool: int | None = None
    """The most tokens of all slots, which mlxcel-server tells and llama-server not."""

    @property
    def window(self) -> int | None:
        """The most tokens of one request, from the first route that tells."""
        listed = self.slots_ctx[0] if self.slots_ctx else None
        told = (self.props_ctx, listed, self.models_ctx)
        return next((n for n in told if n is not None), None)

    @property
    def seats(self) -> int | None:
        """How many requests may run at the same time."""
        return self.slots if self.slots is not None else self.listed


@dataclass(frozen=True, slots=True)
class Stream:
    """One of the streams that were sent together."""

    number: int
    sent: float
    ticks: tuple[float, ...] = ()
    """When each piece of the answer came."""
    end: float | None = None
    """When the answer was complete."""
    tokens: int | None = None
    """Tokens of the answer, by the server's count."""
    slot: int | None = None
    error: str = ""

    @property
    def first(self) -> float | None:
        """When the first token came."""
        return self.ticks[0] if self.ticks else None

    @property
    def span(self) -> tuple[float, float] | None:
        """From the first token to the end; None where either did not come."""
        if self.error or not self.ticks or self.end is None:
            return None
        return self.ticks[0], self.end

    @property
    def core(self) -> tuple[float, float] | None:
        """The span without its last tenth, or `JITTER` where that is more.

        An end that comes late over the network must not make two streams meet that
        ran one after the other. At least half of the span is left.
        """
        if self.span is None:
            return None
        first, end = self.span
        length = end - first
        return first, end - min(length / 2, max(length / 10, JITTER))


@dataclass(frozen=True, slots=True)
class Poll:
    """One look at /slots while the streams ran."""

    began: float
    ended: float
    busy: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Keys and values at one moment, where the server tells."""

    kv_bytes: int
    plan: int
    """The most bytes there may be."""
    live: int | None = None
    """Tokens held for running requests."""


@dataclass(frozen=True, slots=True)
class Long:
    """A long request, and what became of it."""

    prompt: int
    """Tokens that were sent."""
    asked: int
    """Tokens of answer that were asked for."""
    status: int
    """HTTP status; 0 when the connection was lost."""
    evaluated: int | None = None
    """Tokens of the prompt that the server has read, by its own count."""
    predicted: int | None = None
    truncated: bool = False
    stop_type: str = ""
    slot: int | None = None
    error: str = ""
    """Message of an error, in the reply or inside the stream."""
    kind: str = ""
    """`type` of the error."""
    n_ctx: int | None = None
    """`n_ctx` of the error."""
    n_prompt: int | None = None
    """`n_prompt_tokens` of the error."""


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that one run has seen."""

    url: str
    seen: Seen
    streams: tuple[Stream, ...]
    polls: tuple[Poll, ...] = ()
    memory: tuple[Memory, ...] = ()
    """Before the streams, while they ran, and after each long request."""
    fills: tuple[Long, ...] = ()
    """Prompts that leave a few tokens of the window, with more asked for than fit."""
    at_once: bool = False
    """Whether the fills were sent together, and not one after another."""
    over: Long | None = None
    """A prompt of one token more than the window."""
    skipped: str = ""
    """Why there are no long requests."""
