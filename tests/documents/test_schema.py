"""The schema, held against a validator that knows nothing of this project."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import jsonschema
import pytest

from mlxceld.documents.sample import value
from mlxceld.documents.schema import kind_schema
from mlxceld.kinds import BadValue
from mlxceld.options import EXCLUSIVE, OPTIONS, TABLES, Option
from tests.documents.tools import ROOT

SCHEMA = json.loads((ROOT / "docs" / "schema" / "mlxcel.schema.json").read_text())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)

every_option = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)


def mistakes(document: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(document)]


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_it_has_every_option_and_no_other_key() -> None:
    tables = SCHEMA["properties"]
    assert list(tables) == ["version", *TABLES]
    found = [f"{t}.{name}" for t in TABLES for name in tables[t]["properties"]]
    assert sorted(found) == sorted(option.key for option in OPTIONS)


@every_option
def test_a_key_validates_with_its_sample_value_and_not_with_a_date(
    option: Option,
) -> None:
    said = tomllib.loads(f"x = {value(option)}")["x"]
    assert mistakes({option.table: {option.name: said}}) == []
    assert mistakes({option.table: {option.name: None}}) != []


@every_option
def test_a_key_tells_its_default_and_its_meaning(option: Option) -> None:
    entry = SCHEMA["properties"][option.table]["properties"][option.name]
    assert entry["description"].startswith(f"{option.short}.")
    assert ("default" in entry) == (option.default is not None)
    if "default" in entry:
        assert option.kind.check(entry["default"]) == option.default


CANDIDATES: tuple[Any, ...] = (
    *(True, False, 0, 1, -1, -2, 2, 255, 257, 2**31, 2**40, 2**63, 2**70),
    *(0.5, -0.5, 1.5, 90000.5, 1e300),
    *("", " ", "x", "auto", "AUTO", "75%", "0%", "101%", "8K", "8KiB", "8 GiB"),
    *("1.5G", "1.5", "-1", "8X", "true", "on", "0600", "a\0b", "/a/b", "/a b", "/"),
    *([], ["a"], ["a", "b"], [""], [1], {}, {"a": 1}),
)


@every_option
def test_what_the_schema_takes_the_daemon_takes(option: Option) -> None:
    one = jsonschema.Draft7Validator(kind_schema(option.kind))
    for candidate in CANDIDATES:
        if one.is_valid(candidate):
            try:
                option.kind.check(candidate)
            except BadValue as bad:
                pytest.fail(f"{candidate!r}: {bad}")


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        ({"engine": {"ctx_siz": 1}}, "'ctx_siz' was unexpected"),
        ({"engin": {}}, "'engin' was unexpected"),
        ({"engine": {"parallel": 0}}, "0 is not valid"),
        ({"engine": {"parallel": "4"}}, "'4' is not valid"),
        ({"engine": {"mode": "lama"}}, "'lama' is not one of"),
        ({"engine": {"ctx_size": 1.5}}, "1.5 is not of type 'integer'"),
        ({"version": 1}, "2 was expected"),
        ({"model": {"path": "a", "hf_repo": "b/c"}}, "should not be valid"),
    ],
)
def test_mistakes_are_found(document: Any, wrong: str) -> None:
    assert any(wrong in found for found in mistakes(document)), mistakes(document)


def test_the_files_that_come_with_the_project_are_valid() -> None:
    files = sorted((ROOT / "etc").glob("*.toml"))
    assert len(files) >= 2
    for file in files:
        assert mistakes(tomllib.loads(file.read_text())) == [], file


def test_the_sample_is_valid_with_its_comments_undone() -> None:
    text = re.sub(
        r"^#([a-z_]+ = )", r"\1", (ROOT / "etc" / "mlxcel.toml").read_text(), flags=re.M
    )
    document = tomllib.loads(text)
    for _, other in EXCLUSIVE:
        table, _, name = other.partition(".")
        document[table].pop(name, None)
    assert mistakes(document) == []
