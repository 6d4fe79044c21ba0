"""The front's side of the engine: starts the process, speaks to it, survives it.

Requests are numbered here. Everything runs on the event loop; nothing blocks it: status
questions are answered from the last snapshot that the engine sent. That the thread
which owns MLX lives is seen by its snapshots, which come at least once a second: an
engine that is silent for too long is ended, and started again like one that crashed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import msgspec

from mlxceld.engine import messages as m
from mlxceld.engine.care import (
    RESTART_WINDOW,
    Care,
    LoadError,
    Loss,
    failed_load,
    how_it_ended,
    too_many,
)
from mlxceld.engine.child import Child
from mlxceld.engine.generation import EngineError as EngineError
from mlxceld.engine.generation import Event as Event
from mlxceld.engine.generation import Generation as Generation
from mlxceld.engine.generation import Unavailable as Unavailable

State = Literal["loading", "ready", "sleeping", "waking", "failed", "stopped"]
Reply = m.Tokenized | m.Detokenized | m.SlotDone
SlotWork = Literal["save", "restore", "erase"]

_FIRST_BACKOFF = 0.5
_LONGEST_BACKOFF = 30.0


class EngineClient:
    """Owns the engine process; one instance for the life of the daemon."""

    def __init__(
        self,
        load: m.Load,
        command: Sequence[str] | None = None,
        *,
        care: Care | None = None,
        on_change: Callable[[], None] | None = None,
        on_fault: Callable[[m.Fault], None] | None = None,
    ) -> None:
        """`on_change` hears of every change of state, `on_fault` what to log."""
        self.state: State = "stopped"
        self.loading: m.Loading | None = None
        self.ready: m.Ready | None = None
        self.snapshot: m.Snapshot | None = None
        self.dozed: m.Snapshot | None = None
        """The last snapshot before it was put to sleep; None while it is awake."""
        self.restarts = 0
        self.beats = 0
        """Signs of life of the thread that owns MLX, over all engines."""
        self.failure: LoadError | None = None
        self.lost: Loss | None = None
        """The last crash; told by `on_change` after the state has changed."""
        self.care = care or Care()
        self._load = load
        self._command = command or [sys.executable, "-m", "mlxceld.engine.main"]
        self._on_change = on_change or (lambda: None)
        self._on_fault = on_fault or (lambda _fault: None)
        self._ids = itertools.count(1)
        self._generations: dict[int, Generation] = {}
        self._questions: dict[int, asyncio.Future[Reply]] = {}
        self._child: Child | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._refusal: LoadError | None = None
        """What the engine said when it could not load."""
        self._holds = 0
        self._active = False
        """Whether anything was asked since the last look."""
        self._heard = False
        """Whether the engine gave a sign of life since the last look."""

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

    async def stop(self, reason: str = "") -> None:
        """End the process and every request that still runs.

        `reason` is what those are told, behind the fact that the server stops.
        """
        self._become("stopped")
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervisor
        what = f"the server is shutting down{reason and ': '}{reason}"
        self._fail_everything(what, 503, "unavailable_error")

    @property
    def pid(self) -> int | None:
        """Process id of the running engine."""
        return self._child.pid if self._child is not None else None

    @property
    def running(self) -> int:
        """Requests that have not ended, those included that wait for the engine."""
        return len(self._generations) + (self._holds if self.asleep else 0)

    @property
    def asleep(self) -> bool:
        """Whether the engine was ended for being idle and is not back yet."""
        return self.state in ("sleeping", "waking")

    @contextlib.asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """Keep the engine from sleeping; wakes it, and waits until it is ready.

        Comes back as well when there is no engine to wait for: requests then raise
        `Unavailable`.
        """
        self._holds += 1
        try:
            if self.state == "sleeping":
                self._wake.set()
            while self.asleep:
                await self._changed.wait()
            yield
        finally:
            self._holds -= 1
            self._active = True

    async def _supervise(self) -> None:
        """Run the engine; start it again after a crash, with growing pauses."""
        crashes: list[float] = []
        while True:
            loss = await self._run_once()
            if loss is None:
                await self._wake.wait()
                self._wake.clear()
                self._become("waking")
                continue
            if self.ready is None:
                self._give_up(self._refusal or failed_load(loss))
                return
            now = time.monotonic()
            crashes = [at for at in crashes if now - at < RESTART_WINDOW] + [now]
            if len(crashes) > self.care.max_restarts:
                self.lost = loss
                self._give_up(too_many(loss, len(crashes)))
                return
            self.restarts += 1
            self.lost = loss
            self._on_change()
            pause = _FIRST_BACKOFF * 2 ** (len(crashes) - 1)
            await asyncio.sleep(min(_LONGEST_BACKOFF, pause))

    async def _run_once(self) -> Loss | None:
        """Run one engine to its end; None when it was put to sleep."""
        self._refusal = None
        try:
            child = self._child = await Child.start(self._command)
        except OSError as error:
            self._mourn()
            return Loss(f"cannot be started: {error}", None)
        watch = asyncio.create_task(self._watch(child), name="watch")
        try:
            child.send([self._load])
            while (messages := await child.receive()) is not None:
                if self.state == "sleeping":
                    break
                for message in messages:
                    self._take(message)
            # Whoever waits is told before the process has quite ended.
            self._mourn()
        finally:
            watch.cancel()
            self._child = None
            status = await child.end()
        if self.state == "sleeping":
            return None
        if self._refusal is not None:
            return Loss(f"could not load the model again: {self._refusal}", status)
        return Loss(child.fault or how_it_ended(status), status)

    async def _watch(self, child: Child) -> None:
        """End an engine that is silent for too long, put to sleep one that is idle.

        Time is counted in looks, so that a front that was held up itself does not
        blame the engine for the messages that it has not read.
        """
        tick = self.care.tick
        silent = idle = 0.0
        while tick is not None:
            await asyncio.sleep(tick)
            if self.state != "ready":
                continue
            silent = 0.0 if self._heard else silent + tick
            idle = 0.0 if self._active or self._busy else idle + tick
            self._heard = self._active = False
            if 0 < self.care.watchdog <= silent:
                seconds = f"{self.care.watchdog:g} seconds"
                child.kill(f"gave no sign of life for {seconds} and was ended")
                return
            if 0 < self.care.sleep_after <= idle:
                self.dozed = self.snapshot
                self._become("sleeping")
                self._rest()
                child.hang_up()
                return

    @property
    def _busy(self) -> bool:
        return bool(self._generations or self._questions or self._holds)

    def _mourn(self) -> None:
        """The engine has gone: nobody waits for its answers any more."""
        if self.state in ("ready", "waking"):
            self._become("loading")
        self._fail_everything("the engine stopped unexpectedly", 500, "server_error")

    def _give_up(self, failure: LoadError) -> None:
        self.failure = failure
        self._become("failed")
        self._settled.set()

    def _become(self, state: State) -> None:
        if state != self.state:
            self.state = state
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
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
        self._rest()

    def _rest(self) -> None:
        """Without an engine every slot is idle and empty."""
        if self.snapshot is not None:
            idle = [m.SlotState(slot.id) for slot in self.snapshot.slots]
            self.snapshot = m.Snapshot(idle, 0, 0, 0, self.snapshot.totals)

    # ---- requests ----

    def generate(self, **fields: Any) -> Generation:
        """Send a `messages.Generate`; `fields` are its fields without the id.

        Raises `Unavailable` when the engine is not ready; `awake` makes it so.
        """
        self._require_ready()
        generation = Generation(self.forget, next(self._ids))
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

    async def slot_action(
        self, slot: int, action: SlotWork, folder: str = "", name: str = ""
    ) -> m.SlotDone:
        """Save, restore or erase a slot. Raises `Unavailable` or `EngineError`.

        Whoever stops waiting takes back what has not begun.
        """
        self._require_ready()
        question = m.SlotAction(next(self._ids), slot, action, folder, name)
        try:
            answer = await self._ask(question)
        except asyncio.CancelledError:
            self._send([m.Cancel(question.id)])
            raise
        assert isinstance(answer, m.SlotDone)
        return answer

    def bound(self, **bounds: Any) -> None:
        """Other bounds of the queue, for this engine and those after it: `bounds` are
        fields of `messages.Load`."""
        self._load = msgspec.structs.replace(self._load, **bounds)
        self._send([self._load])

    async def _ask(self, question: m.Tokenize | m.Detokenize | m.SlotAction) -> Reply:
        future = asyncio.get_running_loop().create_future()
        self._questions[question.id] = future
        self._send([question])
        try:
            return await future
        finally:
            self._questions.pop(question.id, None)

    def _require_ready(self) -> None:
        self._active = True
        if self.state in ("loading", "sleeping", "waking"):
            raise Unavailable("Loading model", retry_after=1)
        if self.state != "ready":
            raise Unavailable("the server is shutting down")

    # ---- the wire ----

    def _send(self, messages: list[m.Down]) -> None:
        if self._child is not None:
            self._child.send(messages)

    def _take(self, message: m.Up) -> None:
        match message:
            case m.Delta() | m.Started() | m.Progress():
                if (generation := self._generations.get(message.id)) is not None:
                    generation.put(message)
            case m.Done() | m.Failed():
                if (generation := self._generations.pop(message.id, None)) is not None:
                    generation.put(message)
                elif isinstance(message, m.Failed):
                    future = self._questions.get(message.id)
                    if future is not None and not future.done():
                        future.set_exception(EngineError(message))
            case m.Tokenized() | m.Detokenized() | m.SlotDone():
                future = self._questions.get(message.id)
                if future is not None and not future.done():
                    future.set_result(message)
            case m.Snapshot():
                self.snapshot, self.dozed = message, None
                self._heard = True
                self.beats += 1
            case m.Fault():
                self._on_fault(message)
            case m.Loading():
                self.loading = message
                self._on_change()
            case m.Ready():
                self.ready = message
                self.loading = None
                self._become("ready")
                self._settled.set()
            case m.LoadFailed():
                self._refusal = LoadError(
                    message.what, message.hint, config=message.config
                )
