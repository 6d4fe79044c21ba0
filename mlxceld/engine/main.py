"""The engine process: messages in, one thread that owns the model, messages out.

A second thread reads the socket and turns prompts into tokens, so that a long text
never holds up a decode step and questions about text are answered at once. It touches
no array. The process lives as long as its socket: when the front goes, so does it.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from mlxceld.engine import messages as m
from mlxceld.engine.runner import Runner
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.engine.text import Text
from mlxceld.plan import Plan
from mlxceld.problems import Refused

SNAPSHOT_SECONDS = 0.05
"""A running engine publishes its state at most this often, an idle one once."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded model, ready to run."""

    vocabulary: Text
    runner: Runner
    info: m.ModelInfo
    plan: Plan


Loader = Callable[[m.Load, Callable[[m.Loading], None]], Engine]
"""Loads the model and makes the plan. Raises `Refused` for what a user can mend."""


class Link:
    """The socket to the front: whole frames both ways, sending from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def receive(self) -> list[m.Down] | None:
        """The messages of the next frame; None when the front has gone."""
        header = self._exactly(m.HEADER)
        if header is None:
            return None
        body = self._exactly(int.from_bytes(header, "big"))
        return None if body is None else m.read_down(body)

    def send(self, messages: list[m.Up]) -> None:
        """Send messages as one frame. A front that has gone is not an error here."""
        with self._lock:
            try:
                self._sock.sendall(m.frame(messages))
            except OSError:
                os._exit(0)

    def _exactly(self, n: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < n:
            try:
                part = self._sock.recv(n - len(parts))
            except OSError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)


def serve(sock: socket.socket, load: Loader) -> None:
    """Run the engine over `sock` until the front goes away."""
    link = Link(sock)
    first = link.receive()
    if not first or not isinstance(first[0], m.Load):
        return
    order = first[0]
    try:
        engine = load(order, lambda loading: link.send([loading]))
    except Refused as refused:
        problem = refused.problems[0]
        what = f"{problem.where}: {problem.what}" if problem.where else problem.what
        link.send([m.LoadFailed(what, problem.hint, config=True)])
        return
    except Exception as error:
        link.send([m.LoadFailed(f"{type(error).__name__}: {error}")])
        return
    inbox: queue.SimpleQueue[tuple[m.Down, list[int]]] = queue.SimpleQueue()
    out: list[m.Up] = []
    scheduler = Scheduler(
        engine.plan,
        engine.vocabulary,
        engine.runner,
        out.append,
        limits=Limits(
            order.prefill_chunk, order.queue_size, order.slot_prompt_similarity
        ),
    )
    link.send([m.Ready(engine.info, engine.plan), scheduler.snapshot()])
    reader = threading.Thread(
        target=_read, args=(link, engine, inbox), name="reader", daemon=True
    )
    reader.start()
    _loop(link, scheduler, inbox, out)


def _loop(
    link: Link,
    scheduler: Scheduler,
    inbox: queue.SimpleQueue[tuple[m.Down, list[int]]],
    out: list[m.Up],
) -> None:
    published = 0.0

    def publish(*, always: bool) -> None:
        nonlocal published
        now = time.monotonic()
        if always or now - published >= SNAPSHOT_SECONDS:
            out.append(scheduler.snapshot())
            published = now
        if out:
            link.send(out)
            out.clear()

    while True:
        changed = False
        if not scheduler.busy:
            publish(always=True)
            _take(scheduler, *inbox.get())
            changed = True
        while True:
            try:
                item = inbox.get_nowait()
            except queue.Empty:
                break
            _take(scheduler, *item)
            changed = True
        scheduler.advance()
        # A chunk may take long: what was decided before it is told before it.
        publish(always=changed)
        scheduler.read_chunk()
        if out:
            publish(always=False)


def _take(scheduler: Scheduler, message: m.Down, tokens: list[int]) -> None:
    match message:
        case m.Generate():
            scheduler.submit(message, tokens)
        case m.Cancel(id=request_id):
            scheduler.cancel(request_id)


def _read(
    link: Link, engine: Engine, inbox: queue.SimpleQueue[tuple[m.Down, list[int]]]
) -> None:
    """The reader thread: answers text questions itself, queues the rest."""
    while True:
        try:
            batch = link.receive()
        except msgspec.DecodeError as error:
            print(f"engine: malformed message: {error}", file=sys.stderr)
            os._exit(1)
        if batch is None:
            os._exit(0)
        for message in batch:
            try:
                _sort(link, engine, inbox, message)
            except Exception as error:
                if isinstance(message, m.Generate | m.Tokenize | m.Detokenize):
                    text = f"{type(error).__name__}: {error}"
                    link.send([m.Failed(message.id, 500, "server_error", text)])


def _sort(
    link: Link,
    engine: Engine,
    inbox: queue.SimpleQueue[tuple[m.Down, list[int]]],
    message: m.Down,
) -> None:
    text = engine.vocabulary
    match message:
        case m.Generate():
            tokens = text.encode(message.prompt, add_special=message.add_special)
            if not _valid(tokens, text.n_vocab):
                link.send([_invalid(message.id)])
            else:
                inbox.put((message, tokens))
        case m.Cancel():
            inbox.put((message, []))
        case m.Tokenize():
            tokens = text.encode(
                message.content,
                add_special=message.add_special,
                parse_special=message.parse_special,
            )
            pieces = [text.piece(token, special=True) for token in tokens]
            link.send([m.Tokenized(message.id, tokens, pieces)])
        case m.Detokenize():
            if not _valid(message.tokens, text.n_vocab):
                link.send([_invalid(message.id)])
            else:
                link.send([m.Detokenized(message.id, text.decode(message.tokens))])
        case m.Shutdown():
            os._exit(0)


def _valid(tokens: Sequence[int], n_vocab: int) -> bool:
    return all(0 <= token < n_vocab for token in tokens)


def _invalid(request_id: int) -> m.Failed:
    return m.Failed(
        request_id, 400, "invalid_request_error", "Prompt contains invalid tokens"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: `python -m mlxceld.engine.main --fd N`."""
    parser = argparse.ArgumentParser(prog="mlxceld.engine.main")
    parser.add_argument("--fd", type=int, required=True, help="socket to the front")
    arguments = parser.parse_args(argv)
    # A service manager's SIGTERM reaches every process of the service; the front
    # decides when the engine stops, and it does so by closing the socket.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    from mlxceld.engine.load import load

    serve(socket.socket(fileno=arguments.fd), load)


if __name__ == "__main__":
    main()
