"""The grammar or schema of the options: where it comes from, and mistakes in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlxceld.constraints import default_constraint
from mlxceld.problems import Refused
from mlxceld.settings import SamplingSettings, Settings


def constraint(**more: Any) -> dict[str, Any]:
    return default_constraint(Settings(sampling=SamplingSettings(**more)))


def test_grammars_and_schemas_come_from_flags_and_files(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert constraint() == {}
    assert constraint(grammar="root ::= [x]") == {"grammar": "root ::= [x]"}
    assert constraint(json_schema='{"type": "object"}') == {
        "json_schema": {"type": "object"}
    }
    assert constraint(json_schema="{}") == {"json_schema": {}}
    file.write_text('root ::= "é"', encoding="utf-8")
    assert constraint(grammar_file=str(file)) == {"grammar": 'root ::= "é"'}
    file.write_text('{"minimum": 1}')
    assert constraint(json_schema_file=str(file)) == {"json_schema": {"minimum": 1}}


@pytest.mark.parametrize(
    ("option", "text", "what"),
    [
        ("grammar_file", None, "cannot read the grammar: No such file or directory"),
        ("json_schema_file", None, "cannot read the JSON schema: No such file"),
        ("grammar_file", b"\xff", "cannot read the grammar: not UTF-8 text"),
        ("json_schema_file", b"[1]", "found no JSON object"),
        ("json_schema_file", b"{", "found no JSON object"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_start(
    tmp_path: Path, option: str, text: bytes | None, what: str
) -> None:
    file = tmp_path / "file"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(Refused) as caught:
        constraint(**{option: str(file)})
    [problem] = caught.value.problems
    assert problem.where == str(file)
    assert problem.what.startswith(what)


@pytest.mark.parametrize(
    ("option", "text", "what"),
    [
        ("grammar", 'root ::= "a', "no grammar in GBNF: line 1: this has no end, at"),
        ("grammar", 'x ::= "a"', "no grammar in GBNF: there is no rule `root`"),
        (
            "grammar",
            "root ::= [a-z]+\nroot2 ::= y",
            "no grammar in GBNF: line 2: there",
        ),
        (
            "json_schema",
            '{"type": "nix"}',
            "JSON schema, at `#/type`: a type is one of",
        ),
        ("json_schema", '{"$ref": "#/x"}', "JSON schema, at `#/$ref`: there is no"),
    ],
)
@pytest.mark.parametrize("in_file", [False, True], ids=["text", "file"])
def test_a_grammar_or_schema_that_is_none_is_refused_at_start(
    tmp_path: Path, option: str, text: str, what: str, in_file: bool
) -> None:
    """Every request would be refused for it."""
    file = tmp_path / "file"
    file.write_text(text)
    said = {f"{option}_file": str(file)} if in_file else {option: text}
    with pytest.raises(Refused) as caught:
        constraint(**said)
    [problem] = caught.value.problems
    assert problem.where == (str(file) if in_file else f"sampling.{option}")
    assert problem.what.startswith(what)


def test_a_schema_of_too_many_levels_is_refused_at_start() -> None:
    deep = '{"items": ' * 60 + "{}" + "}" * 60
    with pytest.raises(Refused, match="JSON schema"):
        constraint(json_schema=deep)
