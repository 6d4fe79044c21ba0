"""The log: one stream of events, for people on a terminal and as JSON lines elsewhere.

Every event has a constant name, listed here, and may carry a `message`, the sentence a
person reads. JSON lines hold name, message and fields; on a terminal the message stands
alone where there is one, since it says what the fields say.

What a user sends (prompts, answers, headers, keys) is never logged. Two rules keep
libraries to that: their loggers stay at warning whatever the level is, because HTTP
clients log headers at debug, and tracebacks are written without local variables.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from mlxceld import journal
from mlxceld.logfile import LogFile, LogStream
from mlxceld.problems import Problem, Refused


class Event(StrEnum):
    """Names of events, with what each tells; scripts may rely on the names."""

    about: str

    def __new__(cls, name: str, about: str = "") -> Event:
        event = str.__new__(cls, name)
        event._value_ = name
        event.about = about
        return event

    STARTING = "starting", "The version, and the configuration files that were read"
    CONFIG_NOTE = "config_note", "An override, or options that mean nothing here"
    CONFIG_WARNING = "config_warning", "Something odd in the configuration"
    PLAN = "plan", "A line of the plan: slots, windows, pool, memory"
    DEFAULT_FLIP = "default_flip", "A default that will change what this set-up gets"
    BOUND = "bound", "An address is taken; it answers 503 until the model is loaded"
    LOADING = "loading", "What the engine is busy with before it is ready"
    LOADED = "loaded", "The engine is back, or a remark about the loaded model"
    LOAD_FAILED = "load_failed", "The model could not be loaded; the daemon ends"
    LISTENING = "listening", "The model is loaded and this address serves it"
    STARTED = "started", "How long a start took, by phase, in seconds"
    ENGINE_LOST = "engine_lost", "The engine crashed or hung; running requests failed"
    ENGINE_FAULT = "engine_fault", "A fault in the engine that ended single requests"
    SLEEPING = "sleeping", "The idle engine was ended and its memory is free"
    FULL = "full", "Connections were closed: too many files were open; once a minute"
    REQUEST = "request", "One HTTP request is over: what it was and how it went"
    REQUEST_FAILED = "request_failed", "A fault of the front; the request got a 500"
    RELOAD = "reload", "What a reload found, changed, refused or left for a restart"
    DRAINING = "draining", "The daemon was told to stop and waits for what runs"
    DRAIN_CUT = "drain_cut", "Requests that were ended because the time was up"
    STOPPED = "stopped", "The daemon ends; `status` is its exit status"
    FAILED = "failed", "Why the daemon ends by itself"


REQUEST_FIELDS: dict[str, str] = {
    "request_id": "The client's `X-Request-Id`, or one made here; the reply carries it",
    "method": "The HTTP method",
    "route": "The route; a path that no route has is shown cut and as plain ASCII",
    "status": "The HTTP status; 499 when the client left before an answer began",
    "slot": "The slot that worked for it, a list for several answers",
    "prompt_tokens": "Tokens of the prompt, of all answers together",
    "cached_tokens": "How many of them were not read again",
    "completion_tokens": "Tokens that were generated",
    "queue_ms": "How long it waited for its slot",
    "ttft_ms": "From its arrival to its first token",
    "finish_reason": "`stop`, `length`, or `cancelled` when the client left",
    "error": "The type of the error that was sent",
    "total_ms": "From its arrival to the end of its reply",
}
"""What the event `request` carries; a field that has no meaning is left out."""

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_OWN = "mlxceld"

_MARK = "_mlxceld_handler"
"""Set on the handlers made here, so that a second set-up replaces just those."""


def get(name: str = _OWN) -> structlog.stdlib.BoundLogger:
    """The logger called `name`, which should start with `mlxceld`."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def set_up(
    level: str = "info",
    style: str = "auto",
    file: str | None = None,
    *,
    stream: TextIO | None = None,
) -> None:
    """Send all logging of this process to `stream` (stderr), and to `file` as well.

    `level` is debug, info, warning or error. `style` is console, json, or auto:
    console where the stream is a terminal; a file gets JSON lines unless the style is
    console. May be called again; the last call counts.

    Raises `Refused` when the file cannot be written.
    """
    # There is none where somebody has closed it.
    stream = stream or sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    terminal = stream.isatty()
    people = _for_people(style, terminal)
    shared = people and terminal
    handlers: list[logging.Handler] = [(Terminal if shared else LogStream)(stream)]
    lines = _console(colors=terminal) if people else _json()
    if journal.connected(stream, os.environ):
        lines = journal.WithPriority(lines)
    handlers[0].setFormatter(lines)
    if file:
        handlers.append(_file_handler(file))
        people = _for_people(style, terminal=False)
        handlers[1].setFormatter(_console(colors=False) if people else _json())

    root = logging.getLogger()
    for old in [h for h in root.handlers if hasattr(h, _MARK)]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        setattr(handler, _MARK, True)
        root.addHandler(handler)
    set_level(level)
    logging.getLogger("uvicorn.access").disabled = True
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def set_level(level: str) -> None:
    """Log from debug, info, warning or error on; libraries never below warning."""
    wanted = _LEVELS[level]
    logging.getLogger().setLevel(max(wanted, logging.WARNING))
    logging.getLogger(_OWN).setLevel(wanted)
    # Our own lines say what uvicorn's do; it logs one line for each request otherwise.
    logging.getLogger("uvicorn").setLevel(max(wanted, logging.WARNING))


class Terminal(LogStream):
    """A log for people on a terminal, with at most one line below it that changes."""

    _shown = 0
    """Characters of the line below."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record; it goes where the line below was."""
        text = super().format(record)
        return self._wiped() + text

    def below(self, line: str) -> None:
        """Put `line`, of printable ASCII, in the place of the one below, or nothing.

        It must fit into a row of the terminal: what is wrapped cannot be wiped.
        """
        self.acquire()
        try:
            text = self._wiped() + line
            self._shown = len(line)
            # As with records, there is no other place to say that a terminal is gone.
            with contextlib.suppress(OSError, ValueError):
                if text:
                    self.stream.write(text)
                    self.stream.flush()
        finally:
            self.release()

    def _wiped(self) -> str:
        """What wipes the line below; blanks, which the simplest terminal knows."""
        shown, self._shown = self._shown, 0
        return f"\r{'':{shown}}\r" if shown else ""


def terminal() -> Terminal | None:
    """Where people read the log as it is written; None where nobody does."""
    handlers = logging.getLogger().handlers
    return next((one for one in handlers if isinstance(one, Terminal)), None)


def _for_people(style: str, terminal: bool) -> bool:
    return terminal if style == "auto" else style == "console"


def _file_handler(file: str) -> logging.Handler:
    """A handler that notices when the file is moved away, as logrotate does."""
    try:
        return LogFile(file)
    except OSError as error:
        raise Refused(
            [
                Problem(
                    f"the log file `{file}` cannot be written: {error.strerror}",
                    where="logging.file",
                    hint="name a file in a folder that exists and is writable",
                )
            ]
        ) from error


def _shared() -> list[Processor]:
    """What is added to every event, ours or a library's."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _formatter(*last: Processor) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_shared(), _from_a_library],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )


def _json() -> logging.Formatter:
    return _formatter(
        structlog.processors.format_exc_info,
        _in_order,
        structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
    )


def _console(*, colors: bool) -> logging.Formatter:
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        pad_event_to=0,
        exception_formatter=structlog.dev.plain_traceback,
    )
    return _formatter(_short_time, _message_alone, renderer)


def _from_a_library(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Give a library's sentence the shape of ours: a name, and a message."""
    record: logging.LogRecord = event["_record"]
    event["message"] = str(event["event"])
    event["event"] = record.name
    return event


_FIRST = ("timestamp", "level", "event", "message")


def _in_order(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Put first what every line has, so that columns line up for the eye."""
    head = {key: event[key] for key in _FIRST if key in event}
    return {**head, **event}


def _message_alone(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    message = event.get("message")
    if message is None:
        return event
    kept = {k: v for k, v in event.items() if k in _BESIDE_A_MESSAGE}
    return {**kept, "event": message}


_BESIDE_A_MESSAGE = frozenset({"timestamp", "level", "exc_info", "stack_info"})


def _short_time(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Leave the time of day, in UTC: a terminal shows one session."""
    stamp = event.get("timestamp")
    if isinstance(stamp, str) and "T" in stamp:
        event["timestamp"] = stamp.split("T", 1)[1][:8]
    return event
