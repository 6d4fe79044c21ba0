"""The ASGI application: the table of routes, and what happens when one fails.

To add a route: one line in `ROUTES`. A handler gets the shared `State` and the
`Exchange`, sends its reply or raises `ApiError`.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from litestar import Litestar, Response, asgi
from litestar.exceptions import HTTPException
from litestar.handlers import ASGIRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from mlxceld import logs
from mlxceld.api import (
    absent,
    anthropic,
    chat,
    counts,
    monitor,
    native,
    openai,
    openapi,
    ops,
    responses,
    slot_actions,
)
from mlxceld.api.errors import ApiError, ClientGone, internal, not_found
from mlxceld.api.gate import Gate
from mlxceld.api.http import JSON_TYPE, Exchange
from mlxceld.api.live import Live
from mlxceld.api.record import printable
from mlxceld.api.state import State
from mlxceld.engine.client import EngineClient
from mlxceld.settings import Settings

Handler = Callable[[State, Exchange], Awaitable[None]]


async def describe(state: State, exchange: Exchange) -> None:
    """GET /openapi.json: what the routes take and give."""
    routes = {**ROUTES, "/slots/{id}": SLOT}
    await exchange.send_json(openapi.document(routes, state))


ROUTES: Mapping[str, Mapping[str, Handler]] = {
    "/": {"GET": ops.root},
    "/health": {"GET": ops.health},
    "/v1/health": {"GET": ops.health},
    "/props": {"GET": ops.props, "POST": ops.change_props},
    "/slots": {"GET": ops.slots},
    "/metrics": {"GET": ops.show_metrics},
    "/models": {"GET": ops.models},
    "/v1/models": {"GET": ops.models},
    "/tokenize": {"POST": ops.tokenize},
    "/detokenize": {"POST": ops.detokenize},
    "/apply-template": {"POST": chat.apply_template},
    "/completion": {"POST": native.completion},
    "/completions": {"POST": native.completion},
    "/v1/completions": {"POST": openai.completions},
    "/chat/completions": {"POST": openai.chat_completions},
    "/v1/chat/completions": {"POST": openai.chat_completions},
    "/chat/completions/input_tokens": {"POST": counts.chat},
    "/v1/chat/completions/input_tokens": {"POST": counts.chat},
    "/responses": {"POST": responses.respond},
    "/v1/responses": {"POST": responses.respond},
    "/responses/input_tokens": {"POST": counts.responses},
    "/v1/responses/input_tokens": {"POST": counts.responses},
    "/v1/messages": {"POST": anthropic.messages},
    "/v1/messages/count_tokens": {"POST": counts.messages},
    **absent.ROUTES,
    openapi.PATH: {"GET": describe},
}

ASLEEP: frozenset[Handler] = frozenset({ops.change_props, chat.apply_template})
"""What is posted and needs no engine, so that a model that sleeps goes on sleeping."""

SLOT: Mapping[str, Handler] = {"POST": slot_actions.act}
"""The methods of `/slots/` and the number of a slot, a path that is not fixed."""

log = logs.get("mlxceld.api")


def build_app(
    settings: Settings,
    client: EngineClient,
    environ: Mapping[str, str] = MappingProxyType({}),
    hosts: Sequence[str] | None = None,
) -> Gate:
    """The application for uvicorn; its `live` is what a reload swaps.

    `environ` may name a folder of credentials, `hosts` are the addresses listened on
    where they are not those of the settings. Every route is also there under
    `server.api_prefix`. Raises `Refused` when a key file or a chat template of the
    settings cannot be used.
    """
    live = Live(State(settings, client), environ, hosts)
    prefix = settings.server.api_prefix
    paths = {**ROUTES, **monitor.ROUTES}
    if prefix:
        paths |= {(prefix + path).rstrip("/"): found for path, found in paths.items()}
    app = Litestar(
        route_handlers=[_route(path, found, live) for path, found in paths.items()],
        exception_handlers={HTTPException: _unknown, Exception: _broken},
        openapi_config=None,
        logging_config=None,
    )
    slots = tuple(f"{where}/slots/" for where in {"", prefix})
    slot = _handler(SLOT, live, "/slots/{id}")

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        # Litestar finds no plain ASGI handler behind a path with a parameter.
        of_slot = "method" in scope and _one_below(scope["path"], slots)
        await (slot if of_slot else app)(scope, receive, send)  # type: ignore[arg-type]

    return Gate(route, live, prefix)


def _one_below(path: str, folders: tuple[str, ...]) -> bool:
    head, slash, last = path.rstrip("/").rpartition("/")
    return head + slash in folders and bool(last)


def _route(path: str, found: Mapping[str, Handler], live: Live) -> ASGIRouteHandler:
    return asgi(path, copy_scope=False)(_handler(found, live, path))


def _handler(found: Mapping[str, Handler], live: Live, route: str) -> ASGIApp:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        state = live.state
        exchange = Exchange(scope, receive, send, state.settings.server.max_body_size)
        exchange.record.route = route
        try:
            handler = found.get(exchange.method)
            if handler is None:
                raise not_found()
            if exchange.method == "POST" and handler not in ASLEEP:
                async with state.client.awake():
                    await handler(state, exchange)
            else:
                await handler(state, exchange)
        except ClientGone:
            exchange.record.finish_reason = "cancelled"
        except ApiError as error:
            await _fail(exchange, error)
        except Exception as error:
            _report(route, error)
            await _fail(exchange, internal())
        finally:
            exchange.release()

    return handle


async def _fail(exchange: Exchange, error: ApiError) -> None:
    """A real status, or the last event of a stream that has begun."""
    if not exchange.started:
        await exchange.send_error(error)
        return
    exchange.record.error = error.kind
    if exchange.streams:
        await exchange.write(exchange.error_event(error), more=False)


def _report(route: str, error: Exception) -> None:
    """Log a fault of ours: type and place; its words may quote what a user wrote."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    log.error(
        logs.Event.REQUEST_FAILED,
        route=route,
        error=type(error).__name__,
        trace=[f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    )


def _reply(error: ApiError) -> Response[Any]:
    return Response(
        error.body(),
        status_code=error.code,
        media_type=JSON_TYPE,
        headers=dict(error.headers()),
    )


def _unknown(_request: Any, error: HTTPException) -> Response[Any]:
    """What the framework itself refuses: unknown paths above all."""
    if error.status_code in (404, 405):
        return _reply(not_found())
    return _reply(
        ApiError(error.status_code, "invalid_request_error", "the request is malformed")
    )


def _broken(request: Any, error: Exception) -> Response[Any]:
    _report(printable(request.url.path), error)
    return _reply(internal())
