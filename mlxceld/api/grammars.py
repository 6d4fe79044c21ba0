"""What an answer has to match: `grammar`, `json_schema`, `regex`, `response_format`.

Only the shape of these fields is checked here. The engine compiles what is in them,
and a mistake in there is a 400 that says where, before anything is sent.
"""

from __future__ import annotations

import json
from typing import Any

from mlxceld.api.errors import bad_field, invalid
from mlxceld.api.readers import Limits, json_object, text
from mlxceld.engine.messages import GrammarSpec

_FIELDS = ("json_schema", "grammar", "regex")
FORMATS = ("text", "json_object", "json_schema")


def read_grammar(body: dict[str, Any], limits: Limits) -> GrammarSpec | None:
    """What a body asks for, None for any text. Raises ApiError 400.

    As in llama-server, an empty `grammar` asks for nothing and an empty `json_schema`
    for any object. `regex` is ours.
    """
    asked = [name for name in _FIELDS if _is_asked(name, body.get(name))]
    if len(asked) > 1:
        raise invalid(f"Cannot use both {asked[0]} and {asked[1]}")
    if not asked:
        for name in _FIELDS[1:]:
            if body.get(name) is not None:
                text(name, body[name], limits)
        return None
    (name,) = asked
    if name == "json_schema":
        return _schema(json_object(name, body[name], limits))
    words = text(name, body[name], limits)
    return GrammarSpec("gbnf" if name == "grammar" else "regex", words)


def with_format(body: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """A chat body with its `response_format` as `json_schema`. Raises ApiError 400."""
    wanted = body.get("response_format")
    if wanted is None:
        return body
    name = "response_format"
    kind = json_object(name, wanted, limits).get("type")
    if kind is None or kind == "text":
        return body
    if kind not in FORMATS:
        known = " or ".join(f'"{known}"' for known in FORMATS)
        raise bad_field(name, f"type must be {known}")
    for other in _FIELDS:
        if _is_asked(other, body.get(other)):
            raise invalid(f"Cannot use both {name} and {other}")
    schema = wanted.get("schema")
    if kind == "json_schema" and wanted.get("json_schema") is not None:
        inner = json_object(f"{name}.json_schema", wanted["json_schema"], limits)
        schema = inner.get("schema")
        name = f"{name}.json_schema"
    if schema is None:
        if kind == "json_schema":
            raise bad_field(name, "the schema is missing")
        schema = {}
    return {**body, "json_schema": json_object(f"{name}.schema", schema, limits)}


def with_default(body: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    """A body with the constraint of the options, where it says nothing of its own.

    An answer that may call tools stays free.
    """
    if not default or body.get("tools"):
        return body
    if any(body.get(name) is not None for name in (*_FIELDS, "response_format")):
        return body
    return {**body, **default}


def constrains(body: dict[str, Any]) -> bool:
    """Whether a chat body asks for an answer that matches something.

    Broken fields count as well; reading them says what is wrong.
    """
    wanted = body.get("response_format")
    if isinstance(wanted, dict) and wanted.get("type") not in (None, "text"):
        return True
    return any(_is_asked(name, body.get(name)) for name in _FIELDS)


def _is_asked(name: str, value: Any) -> bool:
    if name == "json_schema":
        return value is not None
    return bool(value)


def _schema(schema: dict[str, Any]) -> GrammarSpec:
    if not schema:
        return GrammarSpec("json_object")
    try:
        words = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError):
        # Integers of thousands of digits cannot be written.
        raise bad_field("json_schema", "too deep, or a number is too long") from None
    return GrammarSpec("json_schema", words)
