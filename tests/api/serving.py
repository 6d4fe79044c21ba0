"""The app on a real uvicorn port, with a scripted engine behind it, for tests."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from mlxceld.api.app import build_app
from mlxceld.api.gate import Gate
from mlxceld.api.http import MAX_HEADER
from mlxceld.engine import messages as m
from mlxceld.engine.care import Care
from mlxceld.engine.client import EngineClient
from mlxceld.plan import Wish
from mlxceld.service.connections import connections
from mlxceld.settings import ModelSettings, ServerSettings, Settings
from tests import fake

ROOT = Path(__file__).parents[2]

SETTINGS = Settings(
    model=ModelSettings(path="/models/toy", alias=("toy",)),
    server=ServerSettings(metrics=True),
)


@dataclass
class Served:
    """A running app: `http` speaks to it, `client` is the engine's front side."""

    url: str
    http: httpx.Client
    client: EngineClient
    loop: asyncio.AbstractEventLoop
    app: Gate

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return self.http.post(path, json=body, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.http.get(path, **more)

    def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """Everything a stream sends: parsed events, and `[DONE]` as it is."""
        reply = self.post(path, {**body, "stream": True})
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"] == "text/event-stream"
        return parse_events(reply.text)

    def slots(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/slots").json()
        return found

    def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """Wait for a condition; a test fails when it does not come."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "did not happen in time"
            time.sleep(0.01)

    def idle(self) -> bool:
        return not any(slot["is_processing"] for slot in self.slots())


def parse_events(text: str) -> list[Any]:
    """The events of a stream; every frame is one `data:` line, comments aside."""
    found: list[Any] = []
    assert text.endswith("\n\n") or not text
    for frame in text.split("\n\n")[:-1]:
        if frame.startswith(":"):
            continue
        assert frame.startswith("data: "), frame
        assert "\n" not in frame, frame
        data = frame.removeprefix("data: ")
        found.append(data if data == "[DONE]" else json.loads(data))
    return found


@contextmanager
def serve(
    script: fake.Script | None = None,
    *,
    wish: Wish | None = None,
    settings: Settings = SETTINGS,
    queue_size: int = 128,
    care: Care | None = None,
    wait: bool = True,
    port: int = 0,
) -> Iterator[Served]:
    """Run engine and server until the block ends. `wait`: not before it is ready."""
    load = m.Load(
        source=m.ModelSource(path="toy"),
        wish=wish or Wish(mode="llama-compat", ctx_size=4096, parallel=4),
        queue_size=queue_size,
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    client = EngineClient(load, fake.command(script), care=care)
    listener = socket.create_server(("127.0.0.1", port))
    # Accepted sockets inherit it. Without it, replies in two writes wait 40 ms for an
    # acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    app = build_app(settings, client)
    config = uvicorn.Config(
        app,
        log_config=None,
        lifespan="on",
        access_log=False,
        http=connections(settings.server.timeout),
        h11_max_incomplete_event_size=MAX_HEADER,
    )
    server = uvicorn.Server(config)
    server.config.load()
    serving = None
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def start() -> asyncio.Task[None]:
        await client.start()
        task = asyncio.create_task(server._serve([listener]))
        while not server.started:
            await asyncio.sleep(0.005)
        return task

    try:
        serving = run(start())
        if wait:
            run(client.wait_ready())
        with httpx.Client(base_url=url, timeout=30) as http:
            yield Served(url, http, client, loop, app)
    finally:
        server.should_exit = True
        server.force_exit = True

        async def finish() -> None:
            if serving is not None:
                await serving
            await client.stop()

        run(finish())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
        listener.close()
