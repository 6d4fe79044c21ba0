"""Fields that ask for an answer of a certain form, on every route that has them."""

from __future__ import annotations

from typing import Any

import pytest

from mlxceld.api.errors import ApiError
from mlxceld.api.grammars import constrains, read_grammar, with_format
from mlxceld.api.readers import Limits
from mlxceld.engine.messages import GrammarSpec
from tests.api.serving import Served

LIMITS = Limits(n_vocab=100, slots=2)
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
GBNF = 'root ::= "a"'
SCHEMA = {"type": "object", "properties": {"z": {"const": "\u00e9"}, "a": True}}
WRITTEN = '{"type":"object","properties":{"z":{"const":"\u00e9"},"a":true}}'


def read(body: dict[str, Any]) -> GrammarSpec | None:
    return read_grammar(with_format(body, LIMITS), LIMITS)


def refused(body: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as caught:
        read(body)
    assert caught.value.code == 400
    return caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"grammar": "", "json_schema": None, "regex": ""},
        {"response_format": None},
        {"response_format": {}},
        {"response_format": {"type": "text"}},
    ],
)
def test_what_asks_for_nothing_constrains_nothing(body: dict[str, Any]) -> None:
    assert read(body) is None
    assert not constrains(body)


@pytest.mark.parametrize(
    ("body", "spec"),
    [
        ({"grammar": GBNF}, GrammarSpec("gbnf", GBNF)),
        ({"regex": "[ab]+"}, GrammarSpec("regex", "[ab]+")),
        ({"json_schema": SCHEMA}, GrammarSpec("json_schema", WRITTEN)),
        ({"json_schema": SCHEMA, "grammar": ""}, GrammarSpec("json_schema", WRITTEN)),
        ({"json_schema": {}}, GrammarSpec("json_object")),
        ({"response_format": {"type": "json_object"}}, GrammarSpec("json_object")),
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            GrammarSpec("json_schema", WRITTEN),
        ),
        (
            {"response_format": {"type": "json_schema", "schema": SCHEMA}},
            GrammarSpec("json_schema", WRITTEN),
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "strict": True, "schema": SCHEMA},
                }
            },
            GrammarSpec("json_schema", WRITTEN),
        ),
    ],
)
def test_every_spelling_is_understood(body: dict[str, Any], spec: GrammarSpec) -> None:
    """Properties stay in their order, in which they will be written."""
    assert read(body) == spec
    assert constrains(body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"grammar": 5}, "Field 'grammar': Value must be a string, but is number"),
        ({"grammar": []}, "Field 'grammar': Value must be a string, but is array"),
        ({"regex": {"a": 1}}, "Field 'regex': Value must be a string, but is object"),
        ({"json_schema": 5}, "Field 'json_schema': Value must be an object"),
        ({"json_schema": "x"}, "Field 'json_schema': Value must be an object"),
        (
            {"json_schema": SCHEMA, "grammar": GBNF},
            "Cannot use both json_schema and grammar",
        ),
        ({"regex": "a", "grammar": GBNF}, "Cannot use both grammar and regex"),
        (
            {"response_format": {"type": "json_object"}, "grammar": GBNF},
            "Cannot use both response_format and grammar",
        ),
        (
            {"response_format": {"type": "json_object"}, "json_schema": {}},
            "Cannot use both response_format and json_schema",
        ),
        ({"response_format": "json"}, "Field 'response_format': Value must be an obj"),
        (
            {"response_format": {"type": "sound"}},
            'Field \'response_format\': type must be "text" or "json_object" or',
        ),
        ({"response_format": {"type": 5}}, "Field 'response_format': type must be"),
        ({"response_format": {"type": ["text"]}}, "Field 'response_format': type"),
        (
            {"response_format": {"type": "json_object", "schema": 123}},
            "Field 'response_format.schema': Value must be an object, but is number",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "Field 'response_format': the schema is missing",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "Field 'response_format.json_schema': the schema is missing",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": [1]}},
            "Field 'response_format.json_schema': Value must be an object",
        ),
        (
            {"json_schema": {"minimum": 10**5000}},
            "Field 'json_schema': too deep, or a number is too long",
        ),
    ],
)
def test_mistakes_name_the_field(body: dict[str, Any], words: str) -> None:
    assert refused(body).startswith(words)


@pytest.fixture
def sent(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the engine is asked to generate; it gets the requests without grammars."""
    asked: list[dict[str, Any]] = []
    generate = served.client.generate

    def note(**fields: Any) -> Any:
        asked.append(fields)
        return generate(**{**fields, "grammar": None})

    monkeypatch.setattr(served.client, "generate", note)
    return asked


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/completion", {"prompt": "fox a"}),
        ("/v1/completions", {"prompt": "fox a"}),
        (CHAT, {"messages": HELLO}),
    ],
)
@pytest.mark.parametrize(
    ("field", "value", "spec"),
    [
        ("grammar", GBNF, GrammarSpec("gbnf", GBNF)),
        ("json_schema", SCHEMA, GrammarSpec("json_schema", WRITTEN)),
        ("regex", "a+", GrammarSpec("regex", "a+")),
    ],
)
def test_the_engine_gets_what_the_request_says(
    served: Served,
    sent: list[dict[str, Any]],
    path: str,
    prompt: dict[str, Any],
    field: str,
    value: Any,
    spec: GrammarSpec,
) -> None:
    reply = served.post(path, {**prompt, "max_tokens": 1, field: value})
    assert reply.status_code == 200, reply.text
    assert [fields["grammar"] for fields in sent] == [spec]


def test_a_response_format_is_for_chats(
    served: Served, sent: list[dict[str, Any]]
) -> None:
    """llama-server ignores it in completions, like every field it does not know."""
    wanted = {"response_format": {"type": "json_object"}, "max_tokens": 1}
    assert served.post(CHAT, {"messages": HELLO, **wanted}).status_code == 200
    assert served.post("/completion", {"prompt": "a", **wanted}).status_code == 200
    assert [f["grammar"] for f in sent] == [GrammarSpec("json_object"), None]


def test_the_settings_of_an_answer_show_its_grammar(
    served: Served, sent: list[dict[str, Any]]
) -> None:
    asked = {"prompt": "fox a", "n_predict": 1}
    for field, value, shown in (
        ("grammar", GBNF, GBNF),
        ("json_schema", SCHEMA, ""),
        ("grammar", "", ""),
    ):
        body = served.post("/completion", {**asked, field: value}).json()
        assert body["generation_settings"]["grammar"] == shown


@pytest.mark.parametrize("stream", [False, True])
def test_a_mistake_in_the_fields_is_400_before_anything_is_sent(
    served: Served, sent: list[dict[str, Any]], stream: bool
) -> None:
    body = {"response_format": {"type": "json_object", "schema": 123}}
    reply = served.post(CHAT, {"messages": HELLO, **body, "stream": stream})
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert sent == []
