"""The JSON Schema of `mlxcel.toml`, for editors that complete and check TOML.

Draft 7, because the common TOML editors read that one. What the schema takes the
daemon takes too; the other way round it is stricter, as it knows only the words that
are advertised and not every old or foreign spelling.
"""

from __future__ import annotations

import json
import tomllib
from typing import Any

from mlxceld.filemode import FileMode
from mlxceld.files import VERSION
from mlxceld.kinds import (
    INT32_MAX,
    Boolean,
    Choice,
    FilePath,
    Integer,
    JsonObject,
    Kind,
    Number,
    TextList,
    UrlPrefix,
)
from mlxceld.memory import Memory, RamSize, Size
from mlxceld.options import EXCLUSIVE, TABLES, Option, in_table
from mlxceld.samplers import LETTERS
from mlxceld.samplingkinds import Biases, Samplers, Texts

_UNIT = "[KMGTkmgt]([iI][bB])?"
_WHOLE = f"[1-9][0-9]*( *{_UNIT})?"
_PART = f"[0-9]+\\.[0-9]*[1-9] *{_UNIT}"
_SHARE = "([1-9][0-9]?(\\.[0-9]+)?|100) *%"

Schema = dict[str, Any]


def schema_text() -> str:
    """The file `docs/schema/mlxcel.schema.json`."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> Schema:
    """The schema of a whole file."""
    version = {
        "const": VERSION,
        "description": "The version of the file format.",
    }
    tables = {table: _table(table) for table in TABLES}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Written by `python -m mlxceld.generate` from the option table.",
        "title": "mlxcel.toml",
        "description": "The configuration of mlxcel-server.",
        "type": "object",
        "additionalProperties": False,
        "properties": {"version": version, **tables},
    }


def _table(table: str) -> Schema:
    options = [option for option in in_table(table) if "file" in option.where]
    made: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {option.name: _option(option) for option in options},
    }
    pairs = [
        [one.partition(".")[2], other.partition(".")[2]]
        for one, other in EXCLUSIVE
        if one.startswith(f"{table}.")
    ]
    if pairs:
        made["allOf"] = [{"not": {"required": pair}} for pair in pairs]
    return made


def _option(option: Option) -> Schema:
    made: Schema = {"description": f"{option.short}.\n\n{option.long}"}
    if option.default is not None:
        made["default"] = tomllib.loads(f"x = {option.kind.render(option.default)}")[
            "x"
        ]
    if option.deprecated:
        made["deprecated"] = True
    return {**made, **kind_schema(option.kind)}


def kind_schema(kind: Kind) -> Schema:
    """The values of one kind.

    A kind that is not known here takes text, as `Kind.check` does.
    """
    if isinstance(kind, Boolean):
        return {"type": "boolean"}
    if isinstance(kind, Integer):
        return _integer(kind)
    if isinstance(kind, Number):
        bounds = {"minimum": kind.low, "maximum": kind.high}
        return {"type": "number", **{k: v for k, v in bounds.items() if v is not None}}
    if isinstance(kind, Choice):
        return {"type": "string", "enum": list(kind.words)}
    if isinstance(kind, TextList):
        items: Schema = {"type": "array", "items": {"type": "string", "pattern": r"\S"}}
        if kind.at_least:
            items["minItems"] = kind.at_least
        return items
    if isinstance(kind, Texts | Biases | Samplers):
        return {"type": "array", "items": _item(kind)}
    if isinstance(kind, JsonObject):
        text = r"^\s*\{[\s\S]*\}\s*$"
        return {"anyOf": [{"type": "object"}, {"type": "string", "pattern": text}]}
    if isinstance(kind, FileMode):
        return {"type": "string", "pattern": "^0?[0-7]{3}$"}
    if isinstance(kind, UrlPrefix):
        return {"type": "string", "pattern": "^((/[A-Za-z0-9._~-]+)+/?)?$"}
    if isinstance(kind, FilePath):
        return {"type": "string", "pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$"}
    if isinstance(kind, RamSize):
        text = f"^(-1|0|{_WHOLE}|{_PART})$"
        return {
            "anyOf": [
                {"type": "integer", "minimum": -1, "maximum": 2**43 - 1},
                {"type": "string", "pattern": text},
            ]
        }
    if isinstance(kind, Memory | Size):
        share = "" if isinstance(kind, Size) else f"|auto|{_SHARE}"
        return {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
                {"type": "string", "pattern": f"^({_WHOLE}|{_PART}{share})$"},
            ]
        }
    return {"type": "string", "pattern": r"\S"}


def _integer(kind: Integer) -> Schema:
    if kind.negative_is_auto:
        return {
            "anyOf": [
                {"const": -1},
                {"type": "integer", "minimum": kind.low, "maximum": kind.high},
            ]
        }
    return {"type": "integer", "minimum": kind.low, "maximum": kind.high}


def _item(kind: Texts | Biases | Samplers) -> Schema:
    if isinstance(kind, Samplers):
        return {"type": "string", "enum": list(LETTERS)}
    if isinstance(kind, Biases):
        pattern = r"^[0-9]{1,10}([+-]([0-9]+(\.[0-9]*)?|\.[0-9]+)|-inf)$"
        return {"type": "string", "pattern": pattern}
    return {"type": "string"}


def describe(kind: Kind) -> str:
    """The type of a TOML value in a word or two."""
    if isinstance(kind, Boolean):
        return "boolean"
    if isinstance(kind, Integer):
        most = "" if kind.high >= INT32_MAX else f" to {kind.high}"
        low = -1 if kind.negative_is_auto else kind.low
        return f"integer from {low}{most}"
    if isinstance(kind, Number):
        return _number(kind)
    if isinstance(kind, TextList | Texts | Biases | Samplers):
        return "array of texts"
    if isinstance(kind, JsonObject):
        return "table"
    if isinstance(kind, Memory | Size | RamSize):
        return "integer or text"
    return "text"


def _number(kind: Number) -> str:
    low = "" if kind.low is None else f" from {kind.low:g}"
    return f"number{low}" + ("" if kind.high is None else f" to {kind.high:g}")
