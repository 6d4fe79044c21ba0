"""Checks a JSON schema and settles what JSON Schema leaves open, as llama-server does.

llguidance makes grammars of JSON schemas, and says what it does not like but not where.
So what can be seen is checked here, with the place as a JSON pointer, and the rest is
found by trying the parts of a schema one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from mlxceld.engine.gbnf import GrammarError

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

MOST_DEPTH = 40
"""Schemas within schemas; llguidance reads JSON of 128 levels."""

MOST_TRIED = 200
"""Parts that are tried to find the place of a mistake."""

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = ("additionalProperties", "items")

_MEANS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("object", (*_MAPS[:2], "additionalProperties", "required")),
    ("object", ("minProperties", "maxProperties")),
    ("array", ("items", "prefixItems", "minItems", "maxItems")),
    ("string", ("pattern", "minLength", "maxLength", "format")),
    (
        "number",
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    ),
)
_SAYS_MORE = ("type", "$ref", "const", "enum", "allOf", "anyOf", "oneOf")
"""With any of these, a schema without a type says enough."""


def prepare(schema: Any) -> Any:
    """A copy in which nothing is left open. Raises GrammarError that says where.

    As in llama-server: a schema that says nothing is that of any object; keywords of
    one type mean that type; a list in `items` is the whole array; an object has no
    properties that its schema does not name, unless `additionalProperties` says so or
    parts of the schema have to be true together (`allOf`, or anything beside `$ref`).
    """
    if schema == {}:
        return {"type": "object"}
    _References(schema).check()
    return _Preparation(closes=not _combines(schema)).schema(schema, "#", 0)


def locate(schema: Any, trouble: Callable[[Any], str]) -> tuple[str, str]:
    """Where the trouble with a prepared schema is: a JSON pointer and what is wrong.

    `trouble` tells what is wrong with a schema, or nothing. A part is tried with the
    definitions of the whole.
    """
    where, words = "#", trouble(schema)
    shared = {
        name: schema[name]
        for name in ("$schema", "$defs", "definitions")
        if isinstance(schema, dict) and name in schema
    }
    tried = 0
    deeper = True
    while deeper:
        deeper = False
        for pointer, part in parts(schema, where):
            tried += 1
            if tried > MOST_TRIED:
                break
            said = trouble({**shared, **part} if isinstance(part, dict) else part)
            if said and _kind(said) == _kind(words):
                where, schema, words, deeper = pointer, part, said, True
                break
    return where, words


def parts(schema: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The schemas directly within a schema, with their JSON pointers."""
    if not isinstance(schema, dict):
        return
    for key in _MAPS:
        if isinstance(schema.get(key), dict):
            for name, part in schema[key].items():
                yield _under(where, key, name), part
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            for index, part in enumerate(schema[key]):
                yield _under(where, key, index), part
    for key in _SINGLE:
        if key in schema:
            yield _under(where, key), schema[key]


def _kind(words: str) -> str:
    """Complaints that may be about the same thing."""
    return "Unsatisfiable" if words.startswith("Unsatisfiable") else words


def _under(where: str, *keys: str | int) -> str:
    escaped = [str(key).replace("~", "~0").replace("/", "~1") for key in keys]
    return "/".join([where, *escaped])


def _fail(where: str, what: str) -> NoReturn:
    raise GrammarError(f"JSON schema, at `{where}`: {what}")


def _combines(schema: Any) -> bool:
    """Whether anywhere two schemas have to hold for the same object."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        if not isinstance(part, dict):
            continue
        waiting += part.values()
        several = [key for key in ("allOf", "anyOf", "oneOf", "$ref") if key in part]
        every = part.get("allOf")
        if isinstance(every, list) and len(every) > 1:
            return True
        if several and (len(several) > 1 or "properties" in part):
            return True
    return False


class _Preparation:
    def __init__(self, *, closes: bool) -> None:
        self._closes = closes

    def schema(self, schema: Any, where: str, depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            _fail(where, "a schema is an object, true or false")
        if depth > MOST_DEPTH:
            _fail(where, f"schemas are nested more than {MOST_DEPTH} deep")
        _check_type(schema, where)
        found = dict(schema)
        _close_tuple(found, where)
        for key in _MAPS:
            if key in found:
                if not isinstance(found[key], dict):
                    _fail(_under(where, key), "an object is wanted")
                found[key] = {
                    name: self.schema(part, _under(where, key, name), depth + 1)
                    for name, part in found[key].items()
                }
        for key in _LISTS:
            if key in found:
                if not isinstance(found[key], list):
                    _fail(_under(where, key), "an array is wanted")
                found[key] = [
                    self.schema(part, _under(where, key, index), depth + 1)
                    for index, part in enumerate(found[key])
                ]
        for key in _SINGLE:
            if key in found:
                found[key] = self.schema(found[key], _under(where, key), depth + 1)
        if not any(key in found for key in _SAYS_MORE):
            for kind, keys in _MEANS:
                if any(key in found for key in keys):
                    found["type"] = kind
                    break
        if self._closes and "properties" in found and "patternProperties" not in found:
            found.setdefault("additionalProperties", False)
        return found


def _check_type(schema: dict[str, Any], where: str) -> None:
    if "type" not in schema:
        return
    kinds = schema["type"]
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if not isinstance(kind, str) or kind not in TYPES:
            named = f", not `{kind[:40]}`" if isinstance(kind, str) else ""
            _fail(_under(where, "type"), f"a type is one of {', '.join(TYPES)}{named}")


def _close_tuple(schema: dict[str, Any], where: str) -> None:
    """A list in `items` is what newer schemas call `prefixItems`."""
    items = schema.get("items")
    if not isinstance(items, list):
        return
    if "prefixItems" in schema:
        _fail(_under(where, "items"), "`prefixItems` has the list already")
    schema["prefixItems"] = items
    schema["items"] = schema.pop("additionalItems", False)
    if schema["items"] is False:
        schema.setdefault("minItems", len(items))


class _References:
    """Local references lead somewhere; others are not followed."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def check(self) -> None:
        waiting: list[tuple[str, Any, int]] = [("#", self._root, 0)]
        while waiting:
            where, schema, depth = waiting.pop()
            if isinstance(schema, dict) and "$ref" in schema:
                self._check(schema["$ref"], _under(where, "$ref"))
            if depth <= MOST_DEPTH:
                waiting += [(*part, depth + 1) for part in parts(schema, where)]

    def _check(self, reference: Any, where: str) -> None:
        if not isinstance(reference, str):
            _fail(where, "a reference is a text")
        if not reference.startswith("#"):
            _fail(where, f"only references within the schema work: `{reference[:80]}`")
        target = self._root
        for key in reference.removeprefix("#").split("/")[1:]:
            key = key.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            elif isinstance(target, dict) and key in target:
                target = target[key]
            else:
                _fail(where, f"there is no `{reference[:80]}` in the schema")
