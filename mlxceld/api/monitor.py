"""The monitor page: its files, and the stream of what it shows.

The page is plain HTML, CSS and JavaScript in `mlxceld/web`. It is served from the first
moment to the last, so that one can watch a model load and the server drain; only the
stream needs a key, where there are any. It shows numbers and names of ours, never a
word of anybody's prompt or answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from mlxceld import __version__
from mlxceld.api import ops
from mlxceld.api.errors import not_found
from mlxceld.api.http import Exchange
from mlxceld.api.sse import EventStream
from mlxceld.api.state import State
from mlxceld.engine.messages import Loading, SlotState, Snapshot
from mlxceld.flips import Announcement
from mlxceld.plan import Plan

Handler = Callable[[State, Exchange], Awaitable[None]]

WEB = Path(__file__).parent.parent / "web"

EVENTS = "/monitor/events"

FILES: Mapping[str, str] = {
    "monitor.css": "text/css; charset=utf-8",
    "monitor.js": "text/javascript; charset=utf-8",
    "draw.js": "text/javascript; charset=utf-8",
    "stream.js": "text/javascript; charset=utf-8",
    "try.js": "text/javascript; charset=utf-8",
    "words.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""What lies under `/monitor/`, and its type."""

PUBLIC = frozenset(f"/monitor/{name}" for name in FILES)
"""Paths that need no key: what is in every copy of this program."""

SAFE = (
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; object-src 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)
"""Headers of everything that the page consists of. Nothing runs that is not a file of
ours, and nobody may put the page into a frame."""


def wants_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether somebody who asks for `/` wants the page: what browsers say.

    Programs that look at `/` get one line of text, as before there was a page.
    """
    accepts = dict(headers).get(b"accept", b"")
    return b"text/html" in accepts.lower()


async def root(state: State, exchange: Exchange) -> None:
    """GET /: the page for browsers, a line of text for programs."""
    if not state.settings.server.ui or not wants_page(exchange.headers):
        await ops.root(state, exchange)
        return
    if not exchange.raw_path.endswith(b"/"):
        # The names in the page are relative to its folder.
        where = exchange.path.rpartition("/")[2] + "/"
        await exchange.send_bytes(b"", "text/plain", 308, [("location", where)])
        return
    await _send(exchange, _file("index.html"), [("vary", "accept")])


def _static(name: str) -> Handler:
    async def send(state: State, exchange: Exchange) -> None:
        if not state.settings.server.ui:
            raise not_found()
        await _send(exchange, _file(name))

    return send


async def events(state: State, exchange: Exchange) -> None:
    """GET /monitor/events: one event for each change, at most four a second.

    The stream ends when the server stops.
    """
    if not state.settings.server.ui:
        raise not_found()
    await exchange.body()
    stream = EventStream(exchange)
    gone = asyncio.create_task(exchange.gone())
    sending = asyncio.create_task(_stream(state, stream))
    try:
        await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (gone, sending):
            task.cancel()
        await asyncio.gather(gone, sending, return_exceptions=True)


async def _stream(state: State, stream: EventStream) -> None:
    updates = state.watching.follow(lambda: present(state))
    try:
        async for update in updates:
            await stream.send(msgspec.Raw(update))
            await stream.flush()
        await stream.end()
    finally:
        await updates.aclose()


ROUTES: Mapping[str, Mapping[str, Handler]] = {
    "/": {"GET": root},
    EVENTS: {"GET": events},
    **{f"/monitor/{name}": {"GET": _static(name)} for name in FILES},
}
"""The page's routes; they are no part of the API."""


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    kind: str
    tag: str


@cache
def _file(name: str) -> _File:
    data = (WEB / name).read_bytes()
    kind = FILES.get(name, "text/html; charset=utf-8")
    return _File(data, kind, f'"{hashlib.sha256(data).hexdigest()[:20]}"')


async def _send(
    exchange: Exchange, file: _File, more: Iterable[tuple[str, str]] = ()
) -> None:
    headers = [("etag", file.tag), ("cache-control", "no-cache"), *SAFE, *more]
    known = dict(exchange.headers).get(b"if-none-match", b"").decode("latin-1")
    if file.tag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        await exchange.start(304, headers)
        await exchange.write(b"", more=False)
        return
    await exchange.send_bytes(file.data, file.kind, headers=headers)


def present(state: State) -> bytes | None:
    """What the page shows now, as JSON; None once the server has stopped."""
    client, watching = state.client, state.watching
    if client.state == "stopped":
        return None
    ready, snapshot, loading = client.ready, client.snapshot, client.loading
    first_tokens, first_seconds = state.metrics.timings.first_token.seen
    lost, failure = client.lost, client.failure
    shown: dict[str, Any] = {
        "version": __version__,
        "model": state.model_name,
        "state": _word(state),
        "loading": None if loading is None else _loading(loading),
        "restarts": client.restarts,
        "lost": lost.how if lost is not None else "",
        "failure": failure.what if failure is not None else "",
        "plan": None if ready is None else _plan(ready.plan),
        "ttft": [first_tokens, round(first_seconds * 1e3, 1)],
        "flips": [_flip(one) for one in watching.flips],
        "errors": list(watching.troubles),
    }
    if ready is not None and snapshot is not None:
        shown |= _state(snapshot)
    return msgspec.json.encode(shown)


def _word(state: State) -> str:
    """The engine's state in one word; the page has a sentence for each."""
    client = state.client
    if state.watching.draining:
        return "draining"
    if client.state == "loading" and client.ready is not None:
        return "restarting"
    return client.state


def _loading(loading: Loading) -> dict[str, Any]:
    """Bytes of weights, 0 where they are not known."""
    return {"doing": loading.doing, "done": loading.done, "total": loading.total}


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "mode": plan.mode,
        "slots": plan.slots,
        "slot_ctx": plan.slot_ctx,
        "pool": plan.pool,
        "shared": plan.shared,
        "kv_bytes": plan.kv_bytes,
        "weight_bytes": plan.weight_bytes,
        "work_bytes": plan.work_bytes,
        "total_bytes": plan.total_bytes,
        "memory_limit": plan.memory_limit,
        "cache_ram_bytes": plan.cache_ram_bytes,
        "notes": plan.notes,
    }


def _state(snapshot: Snapshot) -> dict[str, Any]:
    totals = snapshot.totals
    return {
        "slots": [_slot(slot) for slot in snapshot.slots],
        "waiting": snapshot.waiting,
        "live": snapshot.n_live,
        "kv_bytes": snapshot.kv_bytes,
        "saved_bytes": snapshot.saved_bytes,
        "saved_prompts": snapshot.saved_prompts,
        "memory": snapshot.memory,
        "totals": {
            "prompt": totals.prompt_tokens,
            "predicted": totals.predicted_tokens,
            "requests": totals.requests,
            "failed": totals.failed,
            "preempted": totals.preempted,
            "evicted": totals.evicted,
        },
    }


def _slot(slot: SlotState) -> dict[str, Any]:
    """Tokens of one slot: those of the prompt that were there, read, and still to be
    read, and those of the answer. An idle slot only holds what it remembers."""
    read = slot.n_cached + slot.n_processed
    return {
        "id": slot.id,
        "busy": slot.processing,
        "cached": slot.n_cached,
        "read": slot.n_processed,
        "unread": max(0, slot.n_prompt - read) if slot.processing else 0,
        "generated": slot.n_decoded,
        "held": slot.n_held,
    }


def _flip(announcement: Announcement) -> dict[str, Any]:
    flip, coming = announcement.flip, announcement.coming
    return {
        "option": flip.option,
        "old": flip.old,
        "new": flip.new,
        "version": flip.version,
        "plan": None if coming is None else _plan(coming),
        "then": announcement.then,
    }
