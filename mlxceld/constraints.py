"""The grammar or JSON schema of the options, for requests that bring none. No MLX here.

A mistake in it would be a 400 for every request, so it is looked for at the start: all
of it but what only shows with the model's vocabulary. What reads them is imported where
there is one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlxceld.kinds import BadValue, JsonObject
from mlxceld.problems import Problem, Refused
from mlxceld.settings import Settings


def default_constraint(settings: Settings) -> dict[str, Any]:
    """The constraint of the options, as a field of a body; empty for none.

    Reads the files. Raises Refused for those that cannot be read, and for a text that
    is no grammar or no schema.
    """
    sampling = settings.sampling
    grammar, where = sampling.grammar, "sampling.grammar"
    if sampling.grammar_file:
        where = sampling.grammar_file
        grammar = _file_text(where, "the grammar")
    if grammar:
        _check_grammar(grammar, where)
        return {"grammar": grammar}
    schema, where = sampling.json_schema, "sampling.json_schema"
    if sampling.json_schema_file:
        where = sampling.json_schema_file
        schema = _file_text(where, "the JSON schema")
    return {"json_schema": _read_schema(schema, where)} if schema is not None else {}


def _file_text(name: str, what: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        problem = Problem(f"cannot read {what}: {reason}", where=name)
        raise Refused([problem]) from None


def _check_grammar(text: str, where: str) -> None:
    from mlxceld.engine import gbnf, lexemes

    try:
        lexemes.to_lark(gbnf.parse(text))
    except gbnf.GrammarError as error:
        raise Refused([Problem(f"no grammar in GBNF: {error}", where)]) from None
    except RecursionError:
        problem = Problem("no grammar in GBNF: nested too deeply", where)
        raise Refused([problem]) from None


def _read_schema(text: str, where: str) -> dict[str, Any]:
    from mlxceld.engine import gbnf, schemas

    try:
        schema: dict[str, Any] = json.loads(JsonObject().parse(text))
        schemas.prepare(schema)
    except BadValue:
        raise Refused([Problem("found no JSON object", where)]) from None
    except gbnf.GrammarError as error:
        raise Refused([Problem(f"{error}", where)]) from None
    except RecursionError:
        raise Refused([Problem("JSON schema: nested too deeply", where)]) from None
    return schema
