"""From resolved settings to a served model, and back down without losing an answer.

Sockets are bound first, then the engine loads behind them: a health check gets its 503
from the first moment. What serves HTTP is imported while it loads. SIGTERM and SIGINT
drain: the daemon goes on listening and says 503 to new requests, running ones get
`server.drain_timeout` seconds, what is left then ends with an error. A second signal
ends at once. SIGHUP reads the configuration again. When the front goes, however it
goes, the engine sees its socket close and goes too.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import ssl
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mlxceld import config, logs
from mlxceld.check import check_folders, estimate
from mlxceld.engine import messages
from mlxceld.engine.care import LoadError, Loss
from mlxceld.engine.client import EngineClient
from mlxceld.exits import Exit
from mlxceld.logs import Event
from mlxceld.problems import Refused
from mlxceld.service import activation, doors, helpers, inherited, starting, startup
from mlxceld.service.inherited import Inherited
from mlxceld.service.manager import Manager
from mlxceld.service.progress import Progress
from mlxceld.service.sockets import Listener, listen
from mlxceld.service.tls import tls_context
from mlxceld.settings import Settings

if TYPE_CHECKING:
    from mlxceld.flips import Announcement
    from mlxceld.service.reload import Read

_log = logs.get("mlxceld.service")

_STEP = 0.05
"""Seconds between two looks at a drain."""

_END = 5.0
"""Seconds that the end of the daemon may take once the drain is over."""

_SERVER = ("mlxceld.service.httpd", "mlxceld.api.app", "mlxceld.service.reload")
"""What takes most of a second to import, and is not needed before the engine starts."""


def run(resolved: config.Resolved) -> int:
    """Serve until told to stop; returns the exit status.

    Problems that are found before the daemon serves are written to stderr in the words
    of the command line, later ones to the log.
    """
    settings = resolved.settings
    # What it asks for has just been done; until `serve` answers it, it would end us.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    doors.widen()
    try:
        logs.set_up(
            settings.logging.level, settings.logging.format, settings.logging.file
        )
        startup.tell(resolved)
        check_folders(settings)
        geometry = estimate(settings)
        said = startup.tell_plan(startup.check_plan(settings, geometry))
        coming = startup.tell_flips(resolved, geometry)
        load = startup.load_message(settings)
        given = inherited.take(os.environ)
    except Refused as refused:
        return startup.refuse(refused, Exit.CONFIG)
    if settings.model.hf_token:
        # The engine inherits it; a command line would show it to everybody.
        os.environ["HF_TOKEN"] = settings.model.hf_token
    return asyncio.run(serve(settings, load, said=said, coming=coming, given=given))


async def serve(
    settings: Settings,
    load: messages.Load,
    command: Sequence[str] | None = None,
    *,
    said: frozenset[str] = frozenset(),
    coming: tuple[Announcement, ...] = (),
    given: Inherited | None = None,
    read: Read | None = None,
) -> int:
    """Listen, load and serve until a signal or a failure; returns the exit status.

    `command` starts another engine process than ours; `said` are lines of the plan
    that the log has already, `coming` what it has warned of. `given` is what the
    process inherited, `read` reads the configuration again; without them both are those
    of this process. Must run on the main thread, where signals arrive.
    """
    asyncio.get_running_loop().set_default_executor(helpers.Helpers())
    try:
        given = given or inherited.take(os.environ)
        tls = tls_context(settings.server)
    except Refused as refused:
        return startup.refuse(refused, Exit.CONFIG)
    scheme = "http" if tls is None else "https"
    server = settings.server
    try:
        listeners = activation.adopt(given.sockets, scheme) or listen(
            server.host, server.port, scheme, server.socket_mode
        )
    except Refused as refused:
        return startup.refuse(refused, Exit.FAILURE)
    if given.sockets:
        activation.tell(settings.server, listeners)
    if given.notifier.watchdog:
        # The heart beats often enough for the manager, too.
        often = min(load.chunk_seconds, given.notifier.watchdog / 4)
        load = msgspec.structs.replace(load, chunk_seconds=often)
    try:
        daemon = Daemon(settings, load, listeners, given, command, said, tls)
        return await daemon.run(coming, read)
    except Refused as refused:
        # A key file or a chat template that cannot be used.
        return startup.refuse(refused, Exit.CONFIG)
    finally:
        given.notifier.close()
        for listener in listeners:
            listener.close()


class Daemon:
    """One life of the daemon: an HTTP server, an engine, and the signals."""

    def __init__(
        self,
        settings: Settings,
        load: messages.Load,
        listeners: Sequence[Listener],
        given: Inherited,
        command: Sequence[str] | None = None,
        said: frozenset[str] = frozenset(),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._given = given
        self._said = said
        self._tls = tls
        self._stopwatch = starting.Stopwatch()
        self._client = EngineClient(
            load,
            command,
            care=startup.care(settings),
            on_change=self._engine_changed,
            on_fault=startup.log_fault,
        )
        self._manager = Manager(given.notifier, self._client)
        self._stop = asyncio.Event()
        self._again = asyncio.Event()
        self._built = False
        self._loaded = False
        self._announced = False
        self._lost: Loss | None = None
        self._progress = Progress()

    async def run(self, coming: tuple[Announcement, ...], read: Read | None) -> int:
        """Serve until a signal or a failure; returns the exit status.

        `coming` are flips that the log has warned of, `read` reads the configuration
        again. Raises `Refused` for a key file or a chat template that is of no use.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._again.set)
        for listener in self._listeners:
            _log.info(
                Event.BOUND,
                message=f"{listener.url} answers 503 until the model is loaded",
                url=listener.url,
            )
        await self._client.start()
        while self._client.pid is None and self._client.state == "loading":
            await asyncio.sleep(0.001)
        # The engine is on its way: it imports and reads while we do.
        managing = asyncio.create_task(self._manager.run(), name="manager")
        try:
            for module in _SERVER:
                await asyncio.to_thread(importlib.import_module, module)
            self._build(coming, read)
        except BaseException:
            managing.cancel()
            await self._client.stop()
            raise
        sockets = [listener.sock for listener in self._listeners]
        serving = asyncio.create_task(self._server.serve(sockets), name="http")
        reloading = asyncio.create_task(self._reload(), name="reload")
        status = Exit.FAILURE
        try:
            status = await self._until_the_end(serving)
        finally:
            await self._drain(serving)
            managing.cancel()
            reloading.cancel()
            await asyncio.gather(managing, reloading, return_exceptions=True)
        _log.info(Event.STOPPED, message="stopped", status=int(status))
        return status

    def _build(self, coming: tuple[Announcement, ...], read: Read | None) -> None:
        """Make the application and the server around it."""
        from mlxceld.api.app import build_app
        from mlxceld.service.httpd import http_server
        from mlxceld.service.reload import Reloader

        given, settings = self._given, self._settings
        hosts = activation.hosts(self._listeners) if given.sockets else None
        self.gate = build_app(settings, self._client, given.environ, hosts)
        self.gate.live.state.watching.flips = coming
        self._reloader = Reloader(
            read or (lambda: config.resolve(sys.argv[1:], given.environ)),
            settings,
            self.gate.live,
            given.environ,
            self._tls,
        )
        self._server = http_server(self.gate, settings.server.timeout, self._tls)
        self._built = True

    async def _until_the_end(self, serving: asyncio.Task[None]) -> Exit:
        """Wait for the first thing that ends the daemon, and say what it was."""
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        loading = asyncio.create_task(self._client.wait_ready(), name="loading")
        lost = asyncio.create_task(self._client.wait_ended(), name="lost")
        ends: set[asyncio.Task[None] | asyncio.Task[bool]] = {serving, stopping, lost}
        first = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait(ends | {loading}, return_when=first)
            if lost.done():
                # A model that cannot be loaded ends both, in no fixed order.
                await asyncio.wait({loading}, timeout=_STEP)
            if loading.done() and not stopping.done():
                if isinstance(error := loading.exception(), LoadError):
                    return startup.load_failed(error)
                while not (self._serves() or any(end.done() for end in ends)):
                    await asyncio.sleep(_STEP)
                if self._serves():
                    self._announce()
                await asyncio.wait(ends, return_when=first)
            if stopping.done():
                return Exit.OK
            if serving.done():
                _log.error(
                    Event.FAILED,
                    message=f"the HTTP server ended by itself: {serving.exception()}",
                )
                return Exit.FAILURE
            return self._gave_up(lost)
        finally:
            for task in (stopping, loading, lost):
                task.cancel()
            await asyncio.gather(stopping, loading, lost, return_exceptions=True)

    def _serves(self) -> bool:
        """Whether requests come in and are answered: it may have crashed by now."""
        state = self._client.state
        return self._server.started and (state == "ready" or self._client.asleep)

    def _announce(self) -> None:
        ready = self._client.ready
        assert ready is not None
        self._said = startup.tell_plan(ready.plan, self._said)
        if not ready.model.batched:
            _log.warning(
                Event.LOADED,
                message="rows are decoded one at a time: " + ready.model.decode_note,
            )
        self._loaded = self._announced = True
        for listener in self._listeners:
            _log.info(
                Event.LISTENING,
                message=f"listening on {listener.url}",
                url=listener.url,
                slots=ready.plan.slots,
                n_ctx=ready.plan.slot_ctx,
            )
        self._manager.serves()
        self._tell_times(ready)
        self._engine_changed()  # It may sleep by now, which is told after this.

    def _tell_times(self, ready: messages.Ready) -> None:
        """Log how long the start took, and keep it for /metrics."""
        self.gate.live.state.metrics.start = took = self._stopwatch.ends(ready.seconds)
        starting.tell(took)

    def _engine_changed(self) -> None:
        """Log what the engine does: phases of loading, a crash, sleep, the way back."""
        client = self._client
        if client.state in ("loading", "waking") and client.loading is None:
            self._stopwatch.engine_starts()
        elif client.state == "ready":
            self._stopwatch.engine_ready()
        if client.lost is not self._lost and client.lost is not None:
            self._lost = client.lost
            self._loaded = False
            _log.error(
                Event.ENGINE_LOST,
                message=f"the engine {client.lost.how}"
                + (", it is started again" if client.state == "loading" else ""),
                status=client.lost.status,
                restarts=client.restarts,
            )
        elif client.state == "sleeping" and self._loaded:
            self._loaded = False
            _log.info(
                Event.SLEEPING,
                message="the engine sleeps until the next request, its memory is free",
            )
        elif client.state == "ready" and self._announced and not self._loaded:
            self._loaded = True
            assert client.ready is not None
            self._said = startup.tell_plan(client.ready.plan, self._said)
            _log.info(Event.LOADED, message="the engine is back")
            self._tell_times(client.ready)
        self._progress.tell(client.loading)

    def _gave_up(self, lost: asyncio.Task[None]) -> Exit:
        """Say why there is no engine any more; `lost` is over."""
        if (error := lost.exception()) is not None:
            _log.error(
                Event.LOAD_FAILED, message=f"the engine cannot be started: {error}"
            )
            return Exit.FAILURE
        failure = self._client.failure
        what = failure.what if failure else "the engine ended"
        _log.error(Event.FAILED, message=f"{what}, giving up")
        return Exit.SOFTWARE

    async def _drain(self, serving: asyncio.Task[None]) -> None:
        """Let running requests finish, then end those that would not."""
        patience = self._close()
        if running := self.gate.inside:
            _log.info(
                Event.DRAINING,
                message=f"waiting up to {patience:g} seconds for {_requests(running)} "
                "to end",
                running=running,
            )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self.gate.inside and not serving.done() and loop.time() < deadline:
            await asyncio.sleep(min(_STEP, patience))
        if left := self.gate.inside:
            _log.warning(
                Event.DRAIN_CUT,
                message=f"{_requests(left)} did not end in time",
                running=left,
            )
        # What still runs gets an error from here, and time to send it.
        # An engine that never started has nothing to stop, and says so again.
        reason = f"it waited {patience:g} seconds for this request to end"
        await asyncio.gather(self._client.stop(reason), return_exceptions=True)
        await self._server.end(serving)

    def _close(self) -> float:
        """Take no more requests; returns how long those inside may take."""
        patience = self._reloader.settings.server.drain_timeout
        self.gate.drain(patience)
        self._manager.stops(patience + _END)
        return patience

    def _told_to_stop(self, number: int) -> None:
        if self._stop.is_set():
            _log.warning(Event.STOPPED, message="told to stop twice: stopping at once")
            for listener in self._listeners:
                listener.close()
            # The engine ends when its socket closes, which the system does for us.
            os._exit(Exit.FAILURE)
        _log.info(
            Event.DRAINING, message=f"{signal.Signals(number).name}: no new requests"
        )
        if self._built:
            self._close()
        self._stop.set()

    async def _reload(self) -> None:
        """Reload whenever SIGHUP has come; several at once are one."""
        while True:
            await self._again.wait()
            self._again.clear()
            if self._stop.is_set():
                continue
            self._manager.reload_begins()
            self._manager.reload_ends(await self._reloader.reload())


def _requests(n: int) -> str:
    return f"{n} request{'s' if n > 1 else ''}"
