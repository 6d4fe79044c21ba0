"""The engine process: messages in, one thread that owns the model, messages out.

A second thread reads the socket and turns prompts into tokens (reader.py). The process
lives as long as its socket: when the front goes, so does it.
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

import msgspec

from mlxceld.engine import messages as m
from mlxceld.engine.engine import Loader
from mlxceld.engine.grammar import Grammars
from mlxceld.engine.link import Link
from mlxceld.engine.phases import Phases
from mlxceld.engine.reader import Order, Reader
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.problems import Refused, Unreachable

SNAPSHOT_SECONDS = 0.05
"""A running engine publishes its state at most this often."""

HEARTBEAT_SECONDS = 1.0
"""An idle one does so at least this often, to show that it lives."""


def serve(sock: socket.socket, load: Loader) -> None:
    """Run the engine over `sock` until the front goes away."""
    link = Link(sock)
    first = link.receive()
    if not first or not isinstance(first[0], m.Load):
        return
    order = first[0]
    phases = Phases(lambda loading: link.send([loading]))
    try:
        engine = load(order, phases)
    except Refused as refused:
        problem = refused.problems[0]
        what = f"{problem.where}: {problem.what}" if problem.where else problem.what
        config = not isinstance(refused, Unreachable)
        link.send([m.LoadFailed(what, problem.hint, config=config)])
        return
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        link.send([m.LoadFailed(what, _LESS if _no_memory(error) else "")])
        return
    inbox: queue.SimpleQueue[Order] = queue.SimpleQueue()
    out: list[m.Up] = []
    scheduler = Scheduler(
        engine.plan,
        engine.vocabulary,
        engine.runner,
        out.append,
        limits=Limits(
            order.prefill_chunk or engine.pacing.chunk,
            order.queue_size,
            order.slot_prompt_similarity,
            order.overflow,
            order.queue_timeout,
            chunk_seconds=order.chunk_seconds,
            n_train=engine.info.n_ctx_train,
            token_gap=order.token_gap,
            pacing=engine.pacing,
        ),
        files=engine.files,
    )
    ready = m.Ready(engine.info, engine.plan, phases.end())
    link.send([ready, scheduler.snapshot()])
    grammars = engine.grammars or Grammars(engine.vocabulary, engine.info.n_vocab)
    reader = Reader(
        link,
        engine.vocabulary,
        engine.info.n_vocab,
        grammars,
        inbox,
        engine.plan.slot_ctx,
    )
    threading.Thread(target=reader.run, name="reader", daemon=True).start()
    heartbeat = min(HEARTBEAT_SECONDS, order.chunk_seconds)
    _loop(link, scheduler, engine.memory, inbox, out, heartbeat)


_LESS = "lower engine.ctx_size or engine.parallel, or use a smaller model"


def _no_memory(error: Exception) -> bool:
    """Whether this is MLX's or Python's way to say that memory ran out."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or "alloc" in words or "memory" in words


def _loop(
    link: Link,
    scheduler: Scheduler,
    memory: Callable[[], m.MemoryUse],
    inbox: queue.SimpleQueue[Order],
    out: list[m.Up],
    heartbeat: float,
) -> None:
    published = 0.0

    def publish(*, always: bool) -> None:
        nonlocal published
        now = time.monotonic()
        if always or now - published >= SNAPSHOT_SECONDS:
            out.append(msgspec.structs.replace(scheduler.snapshot(), memory=memory()))
            published = now
        if out:
            link.send(out)
            out.clear()

    while True:
        changed = False
        if not scheduler.busy:
            publish(always=True)
            try:
                item = inbox.get(timeout=heartbeat)
            except queue.Empty:
                continue
            _take(scheduler, item)
            changed = True
        while True:
            try:
                item = inbox.get_nowait()
            except queue.Empty:
                break
            _take(scheduler, item)
            changed = True
        scheduler.advance()
        # A chunk may take long: what was decided before it is told before it.
        publish(always=changed)
        scheduler.read_chunk()
        if out:
            publish(always=False)


def _take(scheduler: Scheduler, order: Order) -> None:
    match order.message:
        case m.Generate() as message:
            scheduler.submit(message, order.tokens, order.matcher, order.budget)
        case m.Cancel(id=request_id):
            scheduler.cancel(request_id)
        case m.SlotAction() as message:
            scheduler.act(message)
        case m.Load() as message:
            scheduler.limits = scheduler.limits.with_bounds(message)


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
    # What is still read beside a model that cannot be loaded is of no use.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
