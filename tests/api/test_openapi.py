"""The document that describes the API, and whether the API keeps to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from mlxceld.api.app import ROUTES, SLOT
from mlxceld.api.fields import FIELDS
from mlxceld.api.openapi import OPERATIONS
from mlxceld.plan import Wish
from tests import fake
from tests.api.serving import SETTINGS, Served, serve

N = int(os.environ.get("MLXCELD_EXAMPLES", "4"))
"""Requests to each operation, half of them meant to be refused."""

KEPT = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
"""What every reply must do. Which statuses may come is part of the document."""

LIMITS = ("n_predict", "max_tokens", "max_completion_tokens", "max_output_tokens")


@pytest.fixture(scope="module")
def target() -> Iterator[Served]:
    """Four slots of 64 tokens, so that no answer takes long."""
    wish = Wish(mode="llama-compat", ctx_size=256, parallel=4, min_slot_ctx=1)
    with serve(fake.Script(), wish=wish) as running:
        yield running


@pytest.fixture(scope="module")
def document(target: Served) -> dict[str, Any]:
    reply = target.get("/openapi.json")
    assert reply.status_code == 200
    found: dict[str, Any] = reply.json()
    return found


def fields_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The fields of a named body."""
    found: dict[str, Any] = document["components"]["schemas"][name]["properties"]
    return found


def test_every_route_is_described(document: dict[str, Any]) -> None:
    routes = {**ROUTES, "/slots/{id}": SLOT}
    described = {
        path: {method.upper() for method in found}
        for path, found in document["paths"].items()
    }
    assert described == {path: set(found) for path, found in routes.items()}


def test_no_described_operation_has_lost_its_route() -> None:
    routed = {handler for found in ROUTES.values() for handler in found.values()}
    assert set(OPERATIONS) - {*SLOT.values()} <= routed


def test_every_completion_field_says_what_it_takes(document: dict[str, Any]) -> None:
    fields = fields_of(document, "CompletionRequest")
    for field in FIELDS:
        for name in field.names:
            assert {"type", "anyOf"} & set(fields[name]), name


def test_bounds_and_defaults_are_those_of_this_server(document: dict[str, Any]) -> None:
    fields = fields_of(document, "CompletionRequest")
    # Four slots.
    assert fields["id_slot"]["minimum"] == -1
    assert fields["id_slot"]["maximum"] == 3
    assert fields["temperature"]["type"] == ["number", "null"]
    assert fields["temperature"]["minimum"] == 0
    assert fields["temperature"]["default"] == 0.8
    assert "most likely token" in fields["temperature"]["description"]
    assert fields["repeat_penalty"]["exclusiveMinimum"] == 0
    assert fields["max_tokens"]["description"] == "Another name of `n_predict`"


def test_the_document_is_there_under_the_prefix_and_asks_for_the_key() -> None:
    server = replace(SETTINGS.server, api_prefix="/llm", api_key=("k",))
    with serve(settings=replace(SETTINGS, server=server)) as served:
        assert served.get("/llm/openapi.json").status_code == 401
        headers = {"authorization": "Bearer k"}
        reply = served.get("/llm/openapi.json", headers=headers)
        assert reply.json()["servers"] == [{"url": "/llm"}]


def shortened(case: Any) -> Any:
    """The same request with a short answer, where it asks for a long one."""
    if isinstance(case.body, dict):
        for name in LIMITS:
            if isinstance(case.body.get(name), int):
                case.body[name] = min(case.body[name], 3)
    return case


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: str(mode.value))
def test_the_replies_are_as_described(
    target: Served, document: dict[str, Any], mode: GenerationMode
) -> None:
    described = schemathesis.openapi.from_dict(document)
    described.config.update(base_url=target.url)
    seen: dict[int, int] = {}
    known: set[str] = set()
    for found in described.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        about = operation.definition.raw
        if about["summary"] in known:
            # Another path of the same handler.
            continue
        known.add(about["summary"])
        cases = operation.as_strategy(generation_mode=mode)
        served = "200" in about["responses"]

        @hypothesis.settings(
            max_examples=N // 2 if served else 1,
            deadline=None,
            derandomize=N < 50,
            database=None,
            phases=[Phase.generate],
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(cases.map(shortened))
        def ask(case: Any) -> None:
            response = case.call(timeout=30)
            seen[response.status_code] = seen.get(response.status_code, 0) + 1
            case.validate_response(response, checks=KEPT)
            # What is not served is 501; nothing else may go wrong on our side.
            status = response.status_code
            assert status < 500 or status == 501, (case.path, case.body, response.text)

        # Where nothing is taken, nothing can be wrong.
        with contextlib.suppress(Unsatisfiable):
            ask()
    target.until(target.idle)
    assert 400 in seen
    assert set(seen) <= {200, 400, 501}
    print(f"{mode.value}: {sum(seen.values())} requests, {seen}")
