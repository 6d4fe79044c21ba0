"""Reading JSON bodies: what is refused, and which field is blamed."""

from __future__ import annotations

import pytest

from mlxceld.api.errors import ApiError
from mlxceld.api.http import parse_object


def refusal(body: bytes) -> str:
    with pytest.raises(ApiError) as caught:
        parse_object(body)
    assert caught.value.code == 400
    return caught.value.message


def test_an_object_is_read() -> None:
    assert parse_object('{"a": [1, "é"]}'.encode()) == {"a": [1, "é"]}


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_numbers_that_are_none_are_blamed_on_their_field(number: bytes) -> None:
    assert "Field 'top_p'" in refusal(b'{"a": 1, "top_p": ' + number + b"}")
    assert "Field 'bias'" in refusal(b'{"bias": [[1, ' + number + b"]]}")
    assert "Field 'bias'" in refusal(b'{"bias": {"x": ' + number + b"}}")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{'a': 1}", b'{"a": 1} x', b'{"a": "\xff"}', b'{"a": 1,}']
)
def test_broken_json_is_a_parse_error(body: bytes) -> None:
    assert refusal(body).startswith("parse error: ")


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udc00"', '"\\ud800\\u0041"'])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    refusal(f'{{"a": {text}}}'.encode())


@pytest.mark.parametrize("body", [b"[]", b"null", b"5", b'"a"'])
def test_another_type_is_refused(body: bytes) -> None:
    assert refusal(body) == "the request body must be a JSON object"


def test_depth_is_bounded() -> None:
    assert "nested too deeply" in refusal(b'{"a":' + b"[" * 100_000)
