"""JSON schemas: what is settled before they are compiled, and where mistakes are."""

from __future__ import annotations

from typing import Any

import pytest

from mlxceld.engine.gbnf import GrammarError
from mlxceld.engine.schemas import locate, parts, prepare


def test_a_schema_that_says_nothing_is_any_object() -> None:
    assert prepare({}) == {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"properties": {}}, "object"),
        ({"required": ["a"]}, "object"),
        ({"additionalProperties": True}, "object"),
        ({"items": {}}, "array"),
        ({"minItems": 2}, "array"),
        ({"pattern": "a"}, "string"),
        ({"format": "date"}, "string"),
        ({"minimum": 2}, "number"),
    ],
)
def test_keywords_of_one_type_mean_that_type(schema: dict[str, Any], kind: str) -> None:
    assert prepare(schema)["type"] == kind
    assert prepare({"items": schema})["items"]["type"] == kind


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minItems": 2},
        {"const": "x", "properties": {}},
        {"enum": [1], "items": {}},
        {"anyOf": [{}], "minimum": 1},
        {"title": "anything"},
    ],
)
def test_a_type_is_added_only_where_nothing_else_says_it(
    schema: dict[str, Any],
) -> None:
    assert prepare(schema).get("type") == schema.get("type")


def test_objects_have_only_the_properties_that_are_named() -> None:
    inner: dict[str, Any] = {"properties": {"b": {}}}
    found = prepare({"properties": {"a": inner}})
    assert found["additionalProperties"] is False
    assert found["properties"]["a"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {}}, "additionalProperties": True},
        {"properties": {"a": {}}, "patternProperties": {"^x": {}}},
        {"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]},
        {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
        {"$ref": "#/$defs/x", "properties": {"a": {}}, "$defs": {"x": {}}},
    ],
)
def test_objects_stay_open_where_the_schema_needs_it(schema: dict[str, Any]) -> None:
    assert prepare(schema).get("additionalProperties") is not False


def test_one_schema_in_all_of_changes_nothing() -> None:
    wrapped = {"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"properties": {}}}}
    assert prepare(wrapped)["$defs"]["x"]["additionalProperties"] is False


def test_a_list_in_items_is_the_whole_array() -> None:
    assert prepare({"items": [{"type": "integer"}, True]}) == {
        "prefixItems": [{"type": "integer"}, True],
        "items": False,
        "minItems": 2,
        "type": "array",
    }
    found = prepare({"items": [True], "additionalItems": {"type": "null"}})
    assert found["items"] == {"type": "null"}
    assert "minItems" not in found


def test_the_request_stays_as_it_was() -> None:
    schema = {"properties": {"a": {"items": [True]}}}
    prepare(schema)
    assert schema == {"properties": {"a": {"items": [True]}}}


@pytest.mark.parametrize(
    ("schema", "where", "what"),
    [
        (3, "#", "a schema is an object, true or false"),
        ({"type": "hiccup"}, "#/type", "not `hiccup`"),
        ({"type": 123}, "#/type", "a type is one of null, boolean"),
        ({"type": ["string", None]}, "#/type", "a type is one of"),
        (
            {"properties": {"a": {"properties": {"b/c~": {"type": "x"}}}}},
            "#/properties/a/properties/b~1c~0/type",
            "not `x`",
        ),
        ({"properties": 3}, "#/properties", "an object is wanted"),
        ({"properties": {"a": "string"}}, "#/properties/a", "a schema is an object"),
        ({"anyOf": {}}, "#/anyOf", "an array is wanted"),
        ({"anyOf": [True, 5]}, "#/anyOf/1", "a schema is an object"),
        ({"items": [{"type": "x"}]}, "#/prefixItems/0/type", "not `x`"),
        ({"items": [True], "prefixItems": []}, "#/items", "has the list already"),
        ({"$ref": 5}, "#/$ref", "a reference is a text"),
        ({"$ref": "#/$defs/x"}, "#/$ref", "there is no `#/$defs/x`"),
        ({"$ref": "#/anyOf/2", "anyOf": [True]}, "#/$ref", "there is no"),
        ({"$ref": "file:///etc/passwd"}, "#/$ref", "only references within"),
        (
            {"items": {"$ref": "http://127.0.0.1/x"}},
            "#/items/$ref",
            "only references within",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(schema: Any, where: str, what: str) -> None:
    with pytest.raises(GrammarError) as caught:
        prepare(schema)
    assert str(caught.value).startswith(f"JSON schema, at `{where}`: ")
    assert what in str(caught.value)


def test_schemas_within_schemas_have_a_bound() -> None:
    schema: dict[str, Any] = {}
    for _ in range(60):
        schema = {"items": schema}
    with pytest.raises(GrammarError, match="nested more than 40 deep"):
        prepare(schema)


def test_a_reference_may_lead_back_and_through_escapes() -> None:
    prepare({"$defs": {"a/b": {"items": {"$ref": "#"}}}, "$ref": "#/$defs/a~1b"})


def test_the_parts_of_a_schema_have_pointers() -> None:
    schema = {"properties": {"a": 1}, "anyOf": [2], "items": 3, "enum": [4]}
    assert list(parts(schema, "#")) == [
        ("#/properties/a", 1),
        ("#/anyOf/0", 2),
        ("#/items", 3),
    ]


def test_trouble_is_followed_to_the_part_that_has_it() -> None:
    bad = {"pattern": "("}

    def trouble(schema: Any) -> str:
        return "unclosed" if "(" in str(schema) else ""

    schema = {"properties": {"x": {}, "a": {"items": bad}}, "$defs": {"y": {}}}
    assert locate(schema, trouble) == ("#/properties/a/items", "unclosed")


def test_trouble_of_the_whole_stays_with_the_whole() -> None:
    def trouble(schema: Any) -> str:
        return "" if schema is True else "both cannot be"

    assert locate({"allOf": [True, True]}, trouble) == ("#", "both cannot be")
