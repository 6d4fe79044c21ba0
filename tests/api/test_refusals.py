"""Requests that are refused: which status, and which field is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.serving import Served

BAD: list[tuple[str, str]] = [
    ("temperature", '"hot"'),
    ("temperature", "-0.1"),
    ("temperature", "NaN"),
    ("temperature", "1e999"),
    ("temperature", "1e200"),
    ("temperature", "true"),
    ("top_k", "1000001"),
    ("top_k", "-2"),
    ("top_k", "1.5"),
    ("top_p", "-0.5"),
    ("min_p", "-Infinity"),
    ("min_p", "[]"),
    ("typical_p", "-1"),
    ("repeat_penalty", "0"),
    ("repeat_last_n", "-2"),
    ("presence_penalty", '"1"'),
    ("frequency_penalty", "1e39"),
    ("seed", "-2"),
    ("seed", "9223372036854775808"),
    ("seed", '"7"'),
    ("id_slot", "1"),
    ("id_slot", "-2"),
    ("stop", "5"),
    ("stop", "[5]"),
    ("stream", "1"),
    ("stream", '"true"'),
    ("cache_prompt", "0"),
    ("ignore_eos", "{}"),
    ("logit_bias", "5"),
    ("logit_bias", "[[1]]"),
    ("logit_bias", "[[1, true]]"),
    ("logit_bias", '{"1": "x"}'),
    ("logit_bias", "[[1, NaN]]"),
    ("response_fields", '"content"'),
    ("stream_options", "true"),
    ("stream_options", '{"include_usage": 1}'),
    ("samplers", "5"),
    ("samplers", '["wizardry"]'),
    ("n_predict", "123456789012345678901234567890"),
    ("n_keep", "-2"),
    ("n_cmpl", "2"),
    ("n", "0"),
    ("n", '"1"'),
    ("n", "true"),
    ("mirostat", "3"),
    ("mirostat", "-1"),
    ("mirostat_tau", '"5"'),
    ("min_keep", "-1"),
    ("dynatemp_range", "-0.5"),
    ("xtc_probability", "-0.1"),
    ("xtc_threshold", '"high"'),
    ("dry_multiplier", "1e39"),
    ("dry_allowed_length", "-1"),
    ("dry_penalty_last_n", "-2"),
    ("dry_sequence_breakers", "[]"),
    ("dry_sequence_breakers", "[1]"),
    ("dry_sequence_breakers", '":"'),
    ("n_probs", "-1"),
    ("n_probs", "1.5"),
    ("logprobs", '"yes"'),
    ("post_sampling_probs", "1"),
    ("t_max_predict_ms", "-2"),
    ("n_indent", "-1"),
    ("samplers", '"z"'),
    ("sse_ping_interval", "0.5"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_400_with_the_fields_name(
    small: Served, name: str, value: str
) -> None:
    text = f'{{"prompt": "a", "n_predict": 1, "{name}": {value}}}'
    if name == "n_predict":
        text = f'{{"prompt": "a", "n_predict": {value}}}'
    reply = small.http.post("/completion", content=text)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert (error["code"], error["type"]) == (400, "invalid_request_error")
    assert error["message"].startswith(f"Field '{name}")
    after = small.post("/completion", {"prompt": "a", "n_predict": 1})
    assert after.status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grammar_lazy", True),
        ("lora", [{"id": 0, "scale": 1.0}]),
    ],
)
def test_what_is_not_there_yet_is_501_with_the_fields_name(
    small: Served, name: str, value: Any
) -> None:
    reply = small.post("/completion", {"prompt": "a", "n_predict": 1, name: value})
    assert reply.status_code == 501
    error = reply.json()["error"]
    assert error["type"] == "not_supported_error"
    assert error["message"].startswith(f"Field '{name}'")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mirostat", 1),
        ("mirostat", 2),
        ("dry_multiplier", 0.8),
        ("xtc_probability", 0.5),
        ("dynatemp_range", 0.5),
        ("top_n_sigma", 1.0),
        ("min_keep", 3),
        ("samplers", ["temperature", "top_k"]),
        ("samplers", "tk"),
        ("samplers", []),
        ("n_probs", 2),
        ("t_max_predict_ms", 5),
        ("n_indent", 4),
        ("adaptive_target", -1.0),
        ("adaptive_target", 0.5),
        ("samplers", "edskypmxta"),
    ],
)
def test_what_asks_for_more_than_the_usual_is_served(
    small: Served, name: str, value: Any
) -> None:
    reply = small.post("/completion", {"prompt": "a", "n_predict": 2, name: value})
    assert reply.status_code == 200
    assert reply.json()["tokens_predicted"] == 2


def test_values_that_ask_for_nothing_pass(small: Served) -> None:
    asked = {
        "prompt": "a",
        "n_predict": 1,
        "n": 1,
        "n_cmpl": 1,
        "n_probs": 0,
        "logprobs": None,
        "grammar": "",
        "json_schema": None,
        "mirostat": 0,
        "mirostat_tau": 5,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "xtc_probability": 0,
        "top_n_sigma": -1,
        "samplers": "edskypmxt",
        "lora": [],
        "top_k": -1,
        "top_p": 1.5,
        "n_predict_": "unknown fields are ignored",
        "temperature": None,
    }
    body = small.post("/completion", asked).json()
    assert body["generation_settings"]["top_k"] == 0
    assert body["generation_settings"]["top_p"] == 1.0
    assert body["generation_settings"]["temperature"] == 0.8


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (123, "elements must be"),
        ({"text": "a"}, "elements must be"),
        ([1, [2]], "elements must be"),
        ([True], "elements must be"),
        ([1.5], "elements must be"),
        ([99999999], "Prompt contains invalid tokens"),
        ([-1], "Prompt contains invalid tokens"),
    ],
)
def test_a_prompt_of_another_shape_is_refused(
    small: Served, prompt: Any, words: str
) -> None:
    reply = small.post("/completion", {"prompt": prompt})
    assert reply.status_code == 400
    assert words in reply.json()["error"]["message"]
    assert "rompt" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{bad",
        "[]",
        "null",
        '"text"',
        '{"prompt": "\\ud800"}',
        "[" * 100_000,
        "\xff",
    ],
)
def test_a_body_that_is_no_json_object_is_refused(small: Served, text: str) -> None:
    reply = small.http.post("/completion", content=text.encode("latin-1"))
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_a_number_of_thousands_of_digits_is_refused(small: Served) -> None:
    text = f'{{"prompt": "a", "top_k": {"9" * 5000}}}'
    reply = small.http.post("/completion", content=text)
    assert reply.status_code == 400
    assert "top_k" in reply.json()["error"]["message"]


def test_an_object_with_a_prompt_string_is_a_prompt(small: Served) -> None:
    asked = {"prompt": {"prompt_string": "a b"}, "n_predict": 1}
    assert small.post("/completion", asked).json()["tokens_evaluated"] == 2
    asked["prompt"] = {"prompt_string": "a", "multimodal_data": ["xx"]}
    assert small.post("/completion", asked).status_code == 501
