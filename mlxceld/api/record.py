"""What is known of one HTTP request, for its line in the log and for the histograms.

A `Record` is made where the request comes in and travels in the ASGI scope; whoever
learns something writes it down. It holds numbers, names of ours and the request's id,
never a word that a client wrote, so that all of it may be logged.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from mlxceld.api.histograms import Timings
from mlxceld.engine import messages as m

HEADER = "x-request-id"
"""The header that names a request, in both directions."""

GONE = 499
"""Status in log and metrics of a request whose client left before an answer began."""

_KEY = "mlxceld.record"
_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_LONGEST_PATH = 80


@dataclass(slots=True)
class Record:
    """One HTTP request. Tokens and slots are those of all its answers together."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.monotonic)
    """Seconds of the monotonic clock."""
    route: str = ""
    """The route as this program calls it; empty where none was found."""
    slots: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    queue_ms: float | None = None
    """The longest that one of the prompts waited for its slot."""
    ttft_ms: float | None = None
    """From the request's arrival to its first token."""
    finish_reason: str = ""
    error: str = ""
    """The type of the error that was sent, the word `type` of its body."""

    def fields(self, status: int) -> dict[str, Any]:
        """The fields of the log line, without those that mean nothing here."""
        found: dict[str, Any] = {"status": status}
        if self.slots:
            found["slot"] = self.slots[0] if len(self.slots) == 1 else self.slots
            found["prompt_tokens"] = self.prompt_tokens
            found["cached_tokens"] = self.cached_tokens
            found["completion_tokens"] = self.completion_tokens
        if self.queue_ms is not None:
            found["queue_ms"] = round(self.queue_ms, 1)
        if self.ttft_ms is not None:
            found["ttft_ms"] = round(self.ttft_ms, 1)
        if self.finish_reason:
            found["finish_reason"] = self.finish_reason
        if self.error:
            found["error"] = self.error
        found["total_ms"] = round((time.monotonic() - self.began) * 1e3, 1)
        return found


def begin(scope: Any, headers: Iterable[tuple[bytes, bytes]]) -> Record:
    """Make the record of a request and put it into its scope.

    The client's own id is used when it is 1 to 128 letters, digits and `._:/+=@-`;
    anything else would let a client write what it likes into the log.
    """
    wanted = next((value for name, value in headers if name == b"x-request-id"), b"")
    valid = _ID.fullmatch(wanted) is not None
    record = Record(id=wanted.decode("ascii")) if valid else Record()
    scope[_KEY] = record
    return record


def of(scope: MutableMapping[str, Any]) -> Record:
    """The record of a request; a new one where nobody has begun one."""
    found = scope.get(_KEY)
    return found if isinstance(found, Record) else Record()


def printable(path: str) -> str:
    """A path that no route has, for the log: plain ASCII, cut to 80 characters."""
    text = "".join(c if "!" <= c <= "~" else "?" for c in path[: _LONGEST_PATH + 1])
    return text if len(text) <= _LONGEST_PATH else f"{text[:_LONGEST_PATH]}..."


class Watcher:
    """Follows one generation's events into the record and the histograms.

    Events are seen as they come from the engine, before a client that reads slowly
    delays them.
    """

    def __init__(self, record: Record, timings: Timings, now: float) -> None:
        """`now` is when the prompt is sent to the engine, as all times in seconds."""
        self._record = record
        self._timings = timings
        self._sent = now
        self._started = False
        self._last: float | None = None
        self._prompt = self._cached = self._decoded = 0

    def take(self, event: object, now: float) -> None:
        """Account for an event that came at `now`."""
        record = self._record
        match event:
            case m.Delta():
                self._decode(event.n_decoded, now)
            case m.Started():
                if self._started:
                    return  # It was put back and has begun again.
                self._started = True
                waited = now - self._sent
                self._timings.queue.observe(waited)
                record.queue_ms = max(record.queue_ms or 0.0, waited * 1e3)
                record.slots.append(event.slot)
                self._count(event.n_prompt, event.n_cached)
            case m.Done():
                self._decode(event.n_decoded, now)
                self._count(event.n_prompt, event.n_cached)

    def _count(self, prompt: int, cached: int) -> None:
        self._record.prompt_tokens += prompt - self._prompt
        self._record.cached_tokens += cached - self._cached
        self._prompt, self._cached = prompt, cached

    def _decode(self, decoded: int, now: float) -> None:
        new = decoded - self._decoded
        if new <= 0:
            return
        record = self._record
        if record.ttft_ms is None:
            first = now - record.began
            record.ttft_ms = first * 1e3
            self._timings.first_token.observe(first)
        if self._last is not None:
            self._timings.between.observe((now - self._last) / new, new)
        self._last = now
        record.completion_tokens += new
        self._decoded = decoded
