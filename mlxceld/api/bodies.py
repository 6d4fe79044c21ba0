"""What the routes take, as JSON schemas: for the document that describes the API.

Completion fields come from the table that reads them, with the bounds and defaults of
this very server; their descriptions are those of the options. What else a dialect
takes is written down here, beside the names of its readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mlxceld.api.fields import FIELDS, NOT_YET, Field
from mlxceld.api.grammars import FORMATS
from mlxceld.api.readers import INT32, Limits, Schema, schema_of
from mlxceld.chat.reasoning import FORMATS as REASONING_FORMATS
from mlxceld.chat.tools import CHOICES
from mlxceld.options import OPTIONS
from mlxceld.settings import Settings

_SHORT = {
    option.name: option.short
    for option in OPTIONS
    if option.table in ("engine", "sampling", "server")
}

_TEXT: Schema = {"type": "string"}
_OBJECT: Schema = {"type": "object"}
_FLAG: Schema = {"type": "boolean"}
_TOKEN: Schema = {"type": "integer", "minimum": 0, "maximum": INT32}
_COUNT: Schema = {"type": "integer", "minimum": -1, "maximum": INT32}


def optional(schema: Schema) -> Schema:
    """The same or null, which means that a field is absent."""
    kind = schema.get("type")
    if kind is None:
        return {"anyOf": [schema, {"type": "null"}]} if schema else schema
    if "enum" in schema:
        schema = {**schema, "enum": [*schema["enum"], None]}
    kinds = [kind] if isinstance(kind, str) else kind
    return {**schema, "type": [*kinds, "null"]}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def shaped(needed: Mapping[str, Schema], **others: Schema) -> Schema:
    """An object with fields that it needs and fields that may be null or absent."""
    found = {name: optional(schema) for name, schema in others.items()}
    shape: Schema = {"type": "object", "properties": {**needed, **found}}
    return {**shape, "required": list(needed)} if needed else shape


def completion_fields(
    settings: Settings, limits: Limits, without: Iterable[str] = ()
) -> dict[str, Schema]:
    """The fields of `FIELDS` and `NOT_YET` by all their names."""
    found = {}
    for field in FIELDS:
        for name in field.names:
            found[name] = _field(field, name, settings, limits)
    for known in NOT_YET:
        schema = optional(schema_of(known.read, limits))
        found[known.name] = {**schema, "description": "Nothing but empty is served"}
    return {name: schema for name, schema in found.items() if name not in without}


def _field(field: Field, name: str, settings: Settings, limits: Limits) -> Schema:
    schema = optional(schema_of(field.read, limits))
    first = field.names[0]
    if name != first:
        return {**schema, "description": f"Another name of `{first}`"}
    if field.attribute == name:
        schema["default"] = field.default(settings)
    if name in _SHORT:
        schema["description"] = _SHORT[name]
    return schema


_GRAMMARS: dict[str, Schema] = {
    "json_schema": _OBJECT,
    "grammar": {**_TEXT, "description": "GBNF"},
    "regex": _TEXT,
}

_MIXED = {"type": "array", "items": either(_TEXT, _TOKEN), "minItems": 1}
_PROMPT = either(
    _TEXT, _MIXED, shaped({"prompt_string": _TEXT}), {**many(_MIXED), "minItems": 1}
)


def completion(settings: Settings, limits: Limits) -> Schema:
    """/completion and /v1/completions."""
    fields = completion_fields(settings, limits)
    return shaped({"prompt": _PROMPT}, **_GRAMMARS) | {
        "properties": {
            "prompt": _PROMPT,
            **{name: optional(schema) for name, schema in _GRAMMARS.items()},
            **fields,
        }
    }


_PARTS = either(
    _TEXT,
    many(
        shaped({"type": {"enum": ["text", "input_text", "output_text"]}, "text": _TEXT})
    ),
)

_CALL = shaped(
    {"function": shaped({"name": _TEXT}, arguments=either(_TEXT, _OBJECT))},
    id=_TEXT,
    type={"const": "function"},
)

_MESSAGE = shaped(
    {
        "role": {
            **_TEXT,
            "minLength": 1,
            "examples": ["system", "user", "assistant", "tool"],
        },
        "content": optional(_PARTS),
    },
    tool_calls=many(_CALL),
    tool_call_id=_TEXT,
    reasoning_content=_TEXT,
    name=_TEXT,
)

_FUNCTION = shaped(
    {"name": {**_TEXT, "minLength": 1}}, description=_TEXT, parameters=_OBJECT
)

_CHOICE = either(
    {"type": "string", "enum": list(CHOICES)},
    shaped({"type": {"const": "function"}, "function": shaped({"name": _TEXT})}),
)

_FORMAT = shaped(
    {"type": {"type": "string", "enum": list(FORMATS)}},
    schema=_OBJECT,
    json_schema=shaped({"schema": _OBJECT}, name=_TEXT, strict=_FLAG),
)


def chat(settings: Settings, limits: Limits) -> Schema:
    """/v1/chat/completions, its count of tokens, and /apply-template."""
    messages = {"messages": {**many(_MESSAGE), "minItems": 1}}
    body = shaped(
        messages,
        **_GRAMMARS,
        response_format=_FORMAT,
        tools=many(shaped({"type": {"const": "function"}, "function": _FUNCTION})),
        tool_choice=_CHOICE,
        parallel_tool_calls=_FLAG,
        chat_template_kwargs=_OBJECT,
        reasoning_format={"type": "string", "enum": list(REASONING_FORMATS)},
        reasoning_effort=_TEXT,
        reasoning_budget_tokens=_COUNT,
        thinking_budget_tokens=_COUNT,
        reasoning_budget_message=_TEXT,
        add_generation_prompt=_FLAG,
        continue_final_message=_FLAG,
        top_logprobs={"type": "integer", "minimum": 0, "maximum": INT32},
    )
    body["properties"] |= completion_fields(settings, limits)
    return body


_ITEM = either(
    shaped({"role": _TEXT, "content": _PARTS}, type={"const": "message"}),
    shaped(
        {
            "type": {"const": "function_call"},
            "call_id": _TEXT,
            "name": _TEXT,
            "arguments": _TEXT,
        }
    ),
    shaped(
        {"type": {"const": "function_call_output"}, "call_id": _TEXT, "output": _PARTS}
    ),
    shaped(
        {"type": {"const": "reasoning"}},
        content=many(shaped({"text": _TEXT})),
        summary=many(shaped({"text": _TEXT})),
    ),
)

_RESPONSE_FORMAT = shaped(
    {"type": {"type": "string", "enum": list(FORMATS)}}, schema=_OBJECT, name=_TEXT
)


def response(settings: Settings, limits: Limits) -> Schema:
    """/v1/responses and its count of tokens."""
    body = shaped(
        {"input": either(_TEXT, {**many(_ITEM), "minItems": 1})},
        instructions=_TEXT,
        tools=many(
            either(
                shaped(
                    {"type": {"const": "function"}, "name": {**_TEXT, "minLength": 1}},
                    description=_TEXT,
                    parameters=_OBJECT,
                    strict=_FLAG,
                )
            )
        ),
        tool_choice=either(
            {"type": "string", "enum": list(CHOICES)},
            shaped({"type": {"const": "function"}, "name": _TEXT}),
        ),
        parallel_tool_calls=_FLAG,
        reasoning=shaped({}, effort=_TEXT),
        text=shaped({}, format=_RESPONSE_FORMAT),
        max_output_tokens=_COUNT,
    )
    alone = ("n", "n_cmpl", "n_probs", "logprobs")
    body["properties"] |= completion_fields(settings, limits, alone)
    return body


_TEXT_BLOCK = shaped({"type": {"const": "text"}, "text": _TEXT})
_TEXT_BLOCKS = either(_TEXT, many(_TEXT_BLOCK))

_BLOCK = either(
    _TEXT_BLOCK,
    shaped({"type": {"const": "thinking"}, "thinking": _TEXT}, signature=_TEXT),
    shaped({"type": {"const": "redacted_thinking"}}, data=_TEXT),
    shaped({"type": {"const": "tool_use"}, "id": _TEXT, "name": _TEXT}, input=_OBJECT),
    shaped(
        {"type": {"const": "tool_result"}, "tool_use_id": _TEXT}, content=_TEXT_BLOCKS
    ),
    shaped(
        {
            "type": {"const": "document"},
            "source": shaped({"type": {"const": "text"}, "data": _TEXT}),
        }
    ),
)

_PASSED_ON = (
    "temperature",
    "top_p",
    "top_k",
    "stream",
    "seed",
    "id_slot",
    "cache_prompt",
    "sse_ping_interval",
)


def message(settings: Settings, limits: Limits) -> Schema:
    """/v1/messages and its count of tokens."""
    turn = shaped(
        {
            "role": {"type": "string", "enum": ["user", "assistant"]},
            "content": either(_TEXT, many(_BLOCK)),
        }
    )
    body = shaped(
        {"messages": many(turn)},
        system=_TEXT_BLOCKS,
        max_tokens=_COUNT,
        stop_sequences=many(_TEXT),
        tools=many(
            shaped(
                {"name": {**_TEXT, "minLength": 1}},
                description=_TEXT,
                input_schema=_OBJECT,
                type={"const": "custom"},
            )
        ),
        tool_choice=shaped(
            {"type": {"type": "string", "enum": ["auto", "any", "tool", "none"]}},
            name=_TEXT,
            disable_parallel_tool_use=_FLAG,
        ),
        thinking=shaped(
            {"type": {"type": "string", "enum": ["enabled", "disabled", "adaptive"]}},
            budget_tokens=_COUNT,
        ),
        output_config=shaped(
            {}, format=shaped({"type": {"const": "json_schema"}, "schema": _OBJECT})
        ),
        chat_template_kwargs=_OBJECT,
    )
    fields = completion_fields(settings, limits)
    body["properties"] |= {name: fields[name] for name in _PASSED_ON}
    return body


def tokenize(settings: Settings, limits: Limits) -> Schema:
    token = {**_TOKEN, "maximum": limits.n_vocab - 1}
    return shaped(
        {},
        content=either(_TEXT, many(either(_TEXT, token))),
        add_special=_FLAG,
        parse_special=_FLAG,
        with_pieces=_FLAG,
    )


def detokenize(settings: Settings, limits: Limits) -> Schema:
    return shaped({}, tokens=many({**_TOKEN, "maximum": limits.n_vocab - 1}))


def slot_file(settings: Settings, limits: Limits) -> Schema:
    """/slots/{id}; nothing is needed to erase."""
    return shaped({}, filename={**_TEXT, "minLength": 1, "maxLength": 255})


def nothing(settings: Settings, limits: Limits) -> Schema:
    """A body whose fields are not looked at."""
    return _OBJECT


def adapters(settings: Settings, limits: Limits) -> Schema:
    """/lora-adapters: nothing but an empty list can be met."""
    scale = shaped({"id": {"type": "integer"}, "scale": {"type": "number"}})
    return many(scale)


def anything(_settings: Any, _limits: Any) -> Schema:
    """What a route that is not served is sent."""
    return {}
