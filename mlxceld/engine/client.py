"""The front's side of the engine: starts the process, speaks to it, survives it.

Requests are numbered here. Everything runs on the event loop; nothing blocks it: status
questions are answered from the last snapshot that the engine sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import msgspec

from mlxceld.engine import messages as m

State = Literal["loading", "ready", "failed", "stopped"]
Event = m.Started | m.Progress | m.Delta | m.Done | m.Failed

MAX_RESTARTS = 5
RESTART_WINDOW = 600.0
"""Seconds; more than `MAX_RESTARTS` crashes within them and the client gives up."""

_FIRST_BACKOFF = 0.5
_LONGEST_BACKOFF = 30.0


class Unavailable(Exception):
    """The engine cannot take a request now; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LoadError(Exception):
    """The model could not be loaded; `config` says whether settings are at fault."""

    def __init__(self, what: str, hint: str = "", *, config: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.config = config


class EngineError(Exception):
    """The engine refused a question about text; carries the error body's fields."""

    def __init__(self, failed: m.Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class Generation:
    """One running request: iterate over its events; `cancel` when nobody listens."""

    def __init__(self, client: EngineClient, request_id: int) -> None:
        self.id = request_id
        self._client = client
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._ended = False

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Event]:
        while not self._ended:
            event = await self._events.get()
            self._ended = isinstance(event, m.Done | m.Failed)
            yield event

    def put(self, event: Event) -> None:
        """Hand over an event (for the client)."""
        self._events.put_nowait(event)

    def cancel(self) -> None:
        """Stop the engine's work for this request. Synchronous; may be called twice."""
        self._client.forget(self.id)


class EngineClient:
    """Owns the engine process; one instance for the life of the daemon."""

    def __init__(
        self,
        load: m.Load,
        command: Sequence[str] | None = None,
        *,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self.state: State = "stopped"
        self.loading: m.Loading | None = None
        self.ready: m.Ready | None = None
        self.snapshot: m.Snapshot | None = None
        self.restarts = 0
        self.failure: LoadError | None = None
        self._load = load
        self._command = command or [sys.executable, "-m", "mlxceld.engine.main"]
        self._on_change = on_change or (lambda: None)
        self._ids = itertools.count(1)
        self._generations: dict[int, Generation] = {}
        self._questions: dict[int, asyncio.Future[m.Tokenized | m.Detokenized]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()

    # ---- life ----

    async def start(self) -> None:
        """Start the process; returns at once, `wait_ready` waits for the model."""
        self._become("loading")
        self._supervisor = asyncio.create_task(self._supervise(), name="engine")

    async def wait_ready(self) -> m.Ready:
        """Wait until the model is loaded. Raises `LoadError` when it cannot be."""
        await self._settled.wait()
        if self.failure is not None:
            raise self.failure
        assert self.ready is not None
        return self.ready

    async def wait_ended(self) -> None:
        """Wait until the engine is given up; returns at once when it was stopped."""
        if self._supervisor is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._supervisor)

    async def stop(self) -> None:
        """End the process and every request that still runs."""
        self._become("stopped")
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervisor
        self._fail_everything("the server is shutting down", 503, "unavailable_error")

    @property
    def pid(self) -> int | None:
        """Process id of the running engine."""
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> int:
        """Requests that have not ended."""
        return len(self._generations)

    async def _supervise(self) -> None:
        """Run the process; start it again after a crash, with growing pauses."""
        crashes: list[float] = []
        while True:
            try:
                await self._run_once()
            finally:
                await self._reap()
            if self.failure is not None:
                self._become("failed")
                self._settled.set()
                return
            now = time.monotonic()
            crashes = [at for at in crashes if now - at < RESTART_WINDOW] + [now]
            self._fail_everything(
                "the engine stopped unexpectedly", 500, "server_error"
            )
            if len(crashes) > MAX_RESTARTS:
                self.failure = LoadError(f"the engine crashed {len(crashes)} times")
                self._become("failed")
                self._settled.set()
                return
            self.restarts += 1
            self._become("loading")
            pause = _FIRST_BACKOFF * 2 ** (len(crashes) - 1)
            await asyncio.sleep(min(_LONGEST_BACKOFF, pause))

    async def _run_once(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # In a process group of its own: a terminal's Ctrl-C is for the front.
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    "--fd",
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    stdin=asyncio.subprocess.DEVNULL,
                    process_group=0,
                )
            except OSError as error:
                ours.close()
                self.failure = LoadError(f"the engine cannot be started: {error}")
                return
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._send([self._load])
        with contextlib.suppress(
            asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError
        ):
            while True:
                header = await reader.readexactly(m.HEADER)
                body = await reader.readexactly(int.from_bytes(header, "big"))
                for message in m.read_up(body):
                    self._take(message)
        if self.ready is None and self.failure is None:
            process = self._process
            await self._reap()
            code = process.returncode
            self.failure = LoadError(f"the engine ended while loading (status {code})")

    async def _reap(self) -> None:
        """Close the socket, which ends the engine, and make sure that it has ended."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), 2)
        except (TimeoutError, asyncio.CancelledError):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _become(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self._on_change()

    def _fail_everything(self, text: str, code: int, kind: str) -> None:
        generations, self._generations = self._generations, {}
        for request_id, generation in generations.items():
            generation.put(m.Failed(request_id, code, kind, text))
        questions, self._questions = self._questions, {}
        for request_id, future in questions.items():
            if not future.done():
                failed = m.Failed(request_id, code, kind, text)
                future.set_exception(EngineError(failed))
        if self.snapshot is not None:
            idle = [m.SlotState(slot.id) for slot in self.snapshot.slots]
            self.snapshot = m.Snapshot(idle, 0, 0, 0, self.snapshot.totals)

    # ---- requests ----

    def generate(self, **fields: Any) -> Generation:
        """Send a `messages.Generate`; `fields` are its fields without the id.

        Raises `Unavailable` when the engine is not ready.
        """
        self._require_ready()
        generation = Generation(self, next(self._ids))
        self._generations[generation.id] = generation
        self._send([m.Generate(id=generation.id, **fields)])
        return generation

    def forget(self, request_id: int) -> None:
        """Cancel a request; unknown and ended ones are ignored."""
        if self._generations.pop(request_id, None) is not None:
            self._send([m.Cancel(request_id)])

    async def tokenize(
        self,
        content: list[str | int],
        *,
        add_special: bool = False,
        parse_special: bool = True,
    ) -> m.Tokenized:
        """Tokens and their bytes. Raises `Unavailable` or `EngineError`."""
        self._require_ready()
        question = m.Tokenize(
            next(self._ids),
            content,
            add_special=add_special,
            parse_special=parse_special,
        )
        answer = await self._ask(question)
        assert isinstance(answer, m.Tokenized)
        return answer

    async def detokenize(self, tokens: list[int]) -> str:
        """The text of tokens. Raises `Unavailable` or `EngineError`."""
        self._require_ready()
        answer = await self._ask(m.Detokenize(next(self._ids), tokens))
        assert isinstance(answer, m.Detokenized)
        return answer.content

    async def _ask(
        self, question: m.Tokenize | m.Detokenize
    ) -> m.Tokenized | m.Detokenized:
        future = asyncio.get_running_loop().create_future()
        self._questions[question.id] = future
        self._send([question])
        try:
            return await future
        finally:
            self._questions.pop(question.id, None)

    def _require_ready(self) -> None:
        if self.state == "loading":
            raise Unavailable("Loading model", retry_after=1)
        if self.state != "ready":
            raise Unavailable("the server is shutting down")

    # ---- the wire ----

    def _send(self, messages: list[m.Down]) -> None:
        if self._writer is not None:
            self._writer.write(m.frame(messages))

    def _take(self, message: m.Up) -> None:
        match message:
            case m.Started() | m.Progress() | m.Delta():
                if (generation := self._generations.get(message.id)) is not None:
                    generation.put(message)
            case m.Done() | m.Failed():
                if (generation := self._generations.pop(message.id, None)) is not None:
                    generation.put(message)
                elif isinstance(message, m.Failed):
                    future = self._questions.get(message.id)
                    if future is not None and not future.done():
                        future.set_exception(EngineError(message))
            case m.Tokenized() | m.Detokenized():
                future = self._questions.get(message.id)
                if future is not None and not future.done():
                    future.set_result(message)
            case m.Snapshot():
                self.snapshot = message
            case m.Loading():
                self.loading = message
                self._on_change()
            case m.Ready():
                self.ready = message
                self.loading = None
                self._become("ready")
                self._settled.set()
            case m.LoadFailed():
                self.failure = LoadError(
                    message.what, message.hint, config=message.config
                )
