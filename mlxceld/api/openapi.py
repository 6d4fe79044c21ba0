"""A document that says what the routes take and give: GET /openapi.json.

It is made for each request from the table of routes, the readers of the fields and
what this server serves, so that bounds and defaults are the true ones. Whatever a
client sends, replies have the shapes that stand here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlxceld import __version__
from mlxceld.api import (
    absent,
    anthropic,
    bodies,
    chat,
    counts,
    native,
    openai,
    ops,
    responses,
    slot_actions,
)
from mlxceld.api.bodies import many, optional
from mlxceld.api.http import Exchange
from mlxceld.api.readers import Limits, Schema
from mlxceld.api.state import State
from mlxceld.settings import Settings

Handler = Callable[[State, Exchange], Awaitable[None]]
Routes = Mapping[str, Mapping[str, Handler]]

PATH = "/openapi.json"

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_FLAG: Schema = {"type": "boolean"}
_OBJECT: Schema = {"type": "object"}


def _has(**fields: Schema) -> Schema:
    """An object that has these fields at least."""
    return {"type": "object", "properties": fields, "required": list(fields)}


_EVENT: Schema = {
    "type": "object",
    "description": "One event of the stream; its data is JSON, or `[DONE]`",
    "properties": {"event": _TEXT, "data": _TEXT},
    "required": ["data"],
}

_USAGE = _has(prompt_tokens=_WHOLE, completion_tokens=_WHOLE, total_tokens=_WHOLE)

_ANSWER = _has(
    content=_TEXT,
    tokens=many(_WHOLE),
    stop=_FLAG,
    stop_type=_TEXT,
    tokens_predicted=_WHOLE,
    tokens_evaluated=_WHOLE,
    truncated=_FLAG,
    generation_settings=_OBJECT,
    timings=_OBJECT,
)

SCHEMAS: Mapping[str, Schema] = {
    "Error": _has(error=_has(code=_WHOLE, message=_TEXT, type=_TEXT)),
    "Health": _has(status={"const": "ok"}),
    "Props": _has(
        default_generation_settings=_has(params=_OBJECT, n_ctx=_WHOLE),
        total_slots=_WHOLE,
        model_path=_TEXT,
        chat_template=_TEXT,
        build_info=_TEXT,
        mode=_TEXT,
        kv_unified=_FLAG,
        n_pool=_WHOLE,
        n_live_tokens=_WHOLE,
    ),
    "Slots": many(_has(id=_WHOLE, n_ctx=_WHOLE, is_processing=_FLAG)),
    "Models": _has(
        object={"const": "list"},
        data=many(_has(id=_TEXT, object={"const": "model"}, meta=_OBJECT)),
    ),
    "Tokens": _has(
        tokens=many(
            {
                "anyOf": [
                    _WHOLE,
                    _has(id=_WHOLE, piece={"anyOf": [_TEXT, many(_WHOLE)]}),
                ]
            }
        )
    ),
    "Content": _has(content=_TEXT),
    "Prompt": _has(prompt=_TEXT),
    # `response_fields` may leave any field out.
    "Answers": {"anyOf": [_ANSWER, _OBJECT, many(_OBJECT)]},
    "TextCompletion": _has(
        id=_TEXT,
        object={"const": "text_completion"},
        created=_WHOLE,
        model=_TEXT,
        choices=many(_has(index=_WHOLE, text=_TEXT, finish_reason=optional(_TEXT))),
        usage=_USAGE,
    ),
    "ChatCompletion": _has(
        id=_TEXT,
        object={"const": "chat.completion"},
        created=_WHOLE,
        model=_TEXT,
        choices=many(
            _has(
                index=_WHOLE,
                message=_has(role={"const": "assistant"}, content=optional(_TEXT)),
                finish_reason=_TEXT,
            )
        ),
        usage=_USAGE,
    ),
    "Response": _has(
        id=_TEXT,
        object={"const": "response"},
        created_at=_WHOLE,
        model=_TEXT,
        status=_TEXT,
        output=many(_has(id=_TEXT, type=_TEXT, status=_TEXT)),
        usage=_has(input_tokens=_WHOLE, output_tokens=_WHOLE),
    ),
    "Message": _has(
        id=_TEXT,
        type={"const": "message"},
        role={"const": "assistant"},
        model=_TEXT,
        content=many(_has(type=_TEXT)),
        stop_reason=_TEXT,
        stop_sequence=optional(_TEXT),
        usage=_has(input_tokens=_WHOLE, output_tokens=_WHOLE),
    ),
    "Count": _has(input_tokens=_WHOLE),
    "Done": _has(success={"const": True}),
    "Adapters": many(_OBJECT),
    "SlotDone": _has(id_slot=_WHOLE),
    "Document": _has(openapi=_TEXT, info=_OBJECT, paths=_OBJECT),
}
"""What replies look like; they may have more fields than stand here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one handler takes and gives."""

    summary: str
    reply: str = ""
    """One of `SCHEMAS`; empty for plain text."""
    body: Callable[[Settings, Limits], Schema] | None = None
    streams: bool = False
    """Whether `stream` makes the reply a stream of events."""
    query: Mapping[str, Schema] | None = None
    served: bool = True


OPERATIONS: Mapping[Handler, Operation] = {
    ops.root: Operation(summary="Who is here"),
    ops.health: Operation(summary="Whether requests are answered", reply="Health"),
    ops.props: Operation(summary="The server's properties", reply="Props"),
    ops.change_props: Operation(
        summary="Changes nothing", reply="Done", body=bodies.nothing
    ),
    ops.slots: Operation(
        summary="The state of each slot", reply="Slots", query={"fail_on_no_slot": {}}
    ),
    ops.show_metrics: Operation(summary="Metrics in Prometheus' format"),
    ops.models: Operation(summary="The one model", reply="Models"),
    ops.tokenize: Operation(
        summary="The tokens of a text", reply="Tokens", body=bodies.tokenize
    ),
    ops.detokenize: Operation(
        summary="The text of tokens", reply="Content", body=bodies.detokenize
    ),
    chat.apply_template: Operation(
        summary="The prompt that a chat would have", reply="Prompt", body=bodies.chat
    ),
    native.completion: Operation(
        summary="Continue prompts, as llama-server does",
        reply="Answers",
        body=bodies.completion,
        streams=True,
    ),
    openai.completions: Operation(
        summary="Continue prompts, in OpenAI's words",
        reply="TextCompletion",
        body=bodies.completion,
        streams=True,
    ),
    openai.chat_completions: Operation(
        summary="Answer a chat, in OpenAI's words",
        reply="ChatCompletion",
        body=bodies.chat,
        streams=True,
    ),
    counts.chat: Operation(
        summary="Count the tokens of a chat", reply="Count", body=bodies.chat
    ),
    responses.respond: Operation(
        summary="OpenAI's Responses, without a memory of earlier ones",
        reply="Response",
        body=bodies.response,
        streams=True,
    ),
    counts.responses: Operation(
        summary="Count the tokens of a response's input",
        reply="Count",
        body=bodies.response,
    ),
    anthropic.messages: Operation(
        summary="Answer a chat, in Anthropic's words",
        reply="Message",
        body=bodies.message,
        streams=True,
    ),
    counts.messages: Operation(
        summary="Count the tokens of a message", reply="Count", body=bodies.message
    ),
    absent.adapters: Operation(summary="There are no adapters", reply="Adapters"),
    absent.set_adapters: Operation(
        summary="Take an empty list of adapters", reply="Done", body=bodies.adapters
    ),
    slot_actions.act: Operation(
        summary="Save, restore or erase a slot",
        reply="SlotDone",
        body=bodies.slot_file,
        query={"action": {"type": "string", "enum": ["save", "restore", "erase"]}},
    ),
}

ABSENT = Operation(summary="Not served", body=bodies.anything, served=False)
"""What every handler is that has no operation of its own."""

ITSELF = Operation(summary="This document", reply="Document")

_ERRORS: Mapping[int, str] = {
    400: "A mistake in the request; the message says where",
    401: "No valid API key",
    403: "The Host header names a foreign host",
    413: "The body is larger than `server.max_body_size`",
    431: "The headers are too large",
    500: "The model failed, or a picture was sent to where llama-server says so",
    501: "Something that this server does not do",
    503: "Loading, draining, or the queue is full",
}


def document(routes: Routes, state: State) -> Schema:
    """The OpenAPI document of a running server. Raises ApiError while there is none."""
    settings, limits = state.settings, state.limits()
    paths: dict[str, Any] = {}
    for path, found in routes.items():
        paths[path] = {
            method.lower(): _operation(method, path, handler, limits)
            for method, handler in found.items()
        }
    requests = {
        _name(known): known.body(settings, limits)
        for known in (*OPERATIONS.values(), ABSENT)
        if known.body is not None
    }
    keys = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "mlxcel-server", "version": __version__},
        "servers": [{"url": settings.server.api_prefix or "/"}],
        "security": [{}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": {**SCHEMAS, **requests},
            "securitySchemes": keys,
        },
    }


def _name(known: Operation) -> str:
    """What the document calls the body of an operation."""
    words = getattr(known.body, "__name__", "").split("_")
    return f"{''.join(word.title() for word in words)}Request"


def _called(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(method: str, path: str, handler: Handler, limits: Limits) -> Schema:
    known = ITSELF if path == PATH else OPERATIONS.get(handler, ABSENT)
    about: Schema = {"summary": known.summary}
    parameters: list[Schema] = [
        {"name": name, "in": "query", "schema": schema}
        for name, schema in (known.query or {}).items()
    ]
    if "{id}" in path:
        place = {**_WHOLE, "minimum": 0, "maximum": limits.slots - 1}
        parameters.append(
            {"name": "id", "in": "path", "required": True, "schema": place}
        )
    if parameters:
        about["parameters"] = parameters
    if known.body is not None:
        about["requestBody"] = {
            "required": known.served,
            "content": {"application/json": {"schema": _called(_name(known))}},
        }
    about["responses"] = _replies(method, known)
    return about


def _replies(method: str, known: Operation) -> Schema:
    error = {"application/json": {"schema": _called("Error")}}
    replies: Schema = {}
    if known.served:
        content: Schema = {"text/plain": {"schema": _TEXT}}
        if known.reply:
            content = {"application/json": {"schema": _called(known.reply)}}
        if known.streams:
            content["text/event-stream"] = {"schema": _EVENT}
        replies["200"] = {"description": "Done", "content": content}
    for status, words in _ERRORS.items():
        if method == "POST" or status not in (400, 413):
            replies[f"{status}"] = {"description": words, "content": error}
    return replies
