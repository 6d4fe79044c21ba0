"""Readers of single JSON values: what a field may hold, and what it says otherwise.

A reader gets the field's name, the value and the limits of the running engine; it
returns the value as it will be used or raises `ApiError` 400 that names the field. It
carries a JSON schema of what it takes, for the document that describes the API.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from mlxceld.api.errors import bad_field


@dataclass(frozen=True, slots=True)
class Limits:
    """What the loaded model and the plan allow."""

    n_vocab: int
    slots: int


Reader: TypeAlias = Callable[[str, Any, Limits], Any]
Schema: TypeAlias = dict[str, Any]

_R = TypeVar("_R", bound=Reader)
_SCHEMA = "schema"

INT32 = 2**31 - 1
FLOAT32 = 3.4028234663852886e38
"""The largest finite number of the engine's arithmetic."""


def takes(schema: Schema | Callable[[Limits], Schema]) -> Callable[[_R], _R]:
    """Give a reader the schema of its values, which may depend on the limits."""

    def mark(read: _R) -> _R:
        setattr(read, _SCHEMA, schema)
        return read

    return mark


def schema_of(read: Reader, limits: Limits) -> Schema:
    """The JSON schema of what a reader takes; `{}`, which is anything, without one."""
    schema = getattr(read, _SCHEMA, {})
    return dict(schema(limits) if callable(schema) else schema)


def kind_of(value: Any) -> str:
    """The JSON type of a value, for error messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _wrong(name: str, wanted: str, value: Any) -> Exception:
    return bad_field(name, f"Value must be {wanted}, but is {kind_of(value)}")


def integer(
    low: int, high: int | Callable[[Limits], int], *, ceiling: str = ""
) -> Reader:
    """A whole number within bounds; `2.0` is one, `2.5`, `"2"` and `true` are not."""

    def schema(limits: Limits) -> Schema:
        most = high(limits) if callable(high) else high
        return {"type": "integer", "minimum": low, "maximum": most}

    @takes(schema)
    def read(name: str, value: Any, limits: Limits) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(name, "an integer", value)
        if isinstance(value, float) and not value.is_integer():
            raise bad_field(name, f"Value must be an integer, but got {value}")
        most = high(limits) if callable(high) else high
        if not low <= value <= most:
            of = f" ({ceiling})" if ceiling else ""
            raise bad_field(
                name,
                f"Value must be between {low} <= value <= {most}{of}, but got "
                f"{_short(value)}",
            )
        return int(value)

    return read


def number(
    low: float = -FLOAT32,
    high: float = FLOAT32,
    *,
    above: float | None = None,
    clamp: float | None = None,
) -> Reader:
    """A finite number within bounds, or above `above`; lowered to `clamp`."""
    schema: Schema = {"type": "number", "minimum": low, "maximum": high}
    if above is not None:
        schema["exclusiveMinimum"] = above

    @takes(schema)
    def read(name: str, value: Any, limits: Limits) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(name, "a number", value)
        if above is not None and not value > above:
            raise bad_field(
                name, f"Value must be above {above:g}, but got {_short(value)}"
            )
        if not low <= value <= high:
            raise bad_field(
                name,
                f"Value must be between {low:g} <= value <= {high:g}, but got "
                f"{_short(value)}",
            )
        return float(value) if clamp is None else min(float(value), clamp)

    return read


@takes({"type": "boolean"})
def boolean(name: str, value: Any, limits: Limits) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, "a boolean", value)
    return value


def flag(body: dict[str, Any], name: str, default: bool, limits: Limits) -> bool:
    """A boolean field of a body; `default` when it is absent or null."""
    value = body.get(name)
    return default if value is None else boolean(name, value, limits)


@takes({"type": "string"})
def text(name: str, value: Any, limits: Limits) -> str:
    if not isinstance(value, str):
        raise _wrong(name, "a string", value)
    return value


@takes({"type": "array"})
def array(name: str, value: Any, limits: Limits) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(name, "an array", value)
    return value


@takes({"type": "object"})
def json_object(name: str, value: Any, limits: Limits) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(name, "an object", value)
    return value


_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}


@takes(_TEXTS)
def texts(name: str, value: Any, limits: Limits) -> tuple[str, ...]:
    """Strings of a list; the empty ones, which match everything, are dropped."""
    items = array(name, value, limits)
    for item in items:
        if not isinstance(item, str):
            raise bad_field(name, f"elements must be strings, not {kind_of(item)}")
    return tuple(item for item in items if item)


@takes({"anyOf": [{"type": "string"}, _TEXTS]})
def text_or_texts(name: str, value: Any, limits: Limits) -> tuple[str, ...]:
    """Stop strings: one, or a list. `""` and `[]` mean none."""
    if isinstance(value, str):
        return (value,) if value else ()
    if not isinstance(value, list):
        raise _wrong(name, "a string or an array", value)
    return texts(name, value, limits)


@takes(
    {
        "anyOf": [
            {"type": "boolean"},
            {"type": "integer", "minimum": 0, "maximum": INT32},
        ]
    }
)
def count_or_flag(name: str, value: Any, limits: Limits) -> int:
    """`logprobs`: a number in one dialect and a boolean in the other."""
    if isinstance(value, bool):
        return int(value)
    return integer(0, INT32)(name, value, limits)


_AMOUNT: Schema = {"anyOf": [{"type": "number"}, {"const": False}]}
_PAIR: Schema = {
    "type": "array",
    "prefixItems": [{"type": ["integer", "string"]}, _AMOUNT],
    "minItems": 2,
    "maxItems": 2,
}


@takes(
    {
        "anyOf": [
            {"type": "array", "items": _PAIR},
            {"type": "object", "additionalProperties": _AMOUNT},
        ]
    }
)
def bias(name: str, value: Any, limits: Limits) -> tuple[tuple[int | str, float], ...]:
    """`[[token or text, bias or false], ...]` or `{"token or text": bias}`.

    Tokens outside the vocabulary are dropped, as llama-server does: clients send the
    ids of other models' end tokens as a matter of course.
    """
    if isinstance(value, dict):
        pairs = [[_token_or_text(key), item] for key, item in value.items()]
    else:
        pairs = array(name, value, limits)
    found: list[tuple[int | str, float]] = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise bad_field(name, "elements must be pairs of token and bias")
        token, amount = pair
        if isinstance(token, bool) or not isinstance(token, int | str):
            raise bad_field(name, "a token must be an integer or a string")
        if amount is False:
            amount = -math.inf
        else:
            amount = number()(name, amount, limits)
        if isinstance(token, str) or 0 <= token < limits.n_vocab:
            found.append((token, amount))
    return tuple(found)


def _token_or_text(key: str) -> int | str:
    """JSON object keys are strings: digits are a token, as in OpenAI's dialect."""
    digits = key.isascii() and key.isdigit() and len(key) < 19
    return int(key) if digits else key


def _short(value: float) -> str:
    """A number for an error message, however many digits it came with."""
    try:
        words = str(value)
    except ValueError:
        return "a number of thousands of digits"
    return words if len(words) <= 40 else f"{words[:37]}..."
