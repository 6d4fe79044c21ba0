"""POST /completion in llama-server's dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlxceld.api.native import pick
from tests import fake
from tests.api.serving import Served

ANSWER_KEYS = [
    "index",
    "content",
    "tokens",
    "id_slot",
    "stop",
    "model",
    "tokens_predicted",
    "tokens_evaluated",
    "generation_settings",
    "prompt",
    "has_new_line",
    "truncated",
    "stop_type",
    "stopping_word",
    "tokens_cached",
    "timings",
]
SETTING_KEYS = """
seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma
xtc_probability xtc_threshold typical_p repeat_last_n repeat_penalty
presence_penalty frequency_penalty dry_multiplier dry_base dry_allowed_length
dry_penalty_last_n dry_sequence_breakers mirostat mirostat_tau mirostat_eta
adaptive_target adaptive_decay stop max_tokens n_predict n_keep n_discard
ignore_eos stream logit_bias n_probs min_keep grammar grammar_lazy
grammar_triggers preserved_tokens chat_format reasoning_format
reasoning_in_content generation_prompt samplers speculative.types
timings_per_token post_sampling_probs backend_sampling lora
"""


def test_an_answer_has_llama_servers_keys_in_its_order(served: Served) -> None:
    reply = served.post("/completion", {"prompt": "fox one two", "n_predict": 3})
    body = reply.json()
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert list(body) == ANSWER_KEYS
    assert list(body["generation_settings"]) == SETTING_KEYS.split()
    assert len(SETTING_KEYS.split()) == 49
    assert body["content"] == "The quick brown f"
    assert body["prompt"] == "fox one two"
    assert body["model"] == "toy"
    assert (body["tokens_evaluated"], body["tokens_predicted"]) == (3, 3)
    assert (body["stop_type"], body["truncated"], body["tokens"]) == (
        "limit",
        False,
        [],
    )
    # Three prompt tokens and the first two of the answer: the last was never read.
    assert body["tokens_cached"] == 5


def test_timings_count_the_first_token_to_the_prompt(served: Served) -> None:
    body = served.post("/completion", {"prompt": "one two", "n_predict": 1}).json()
    times = body["timings"]
    assert list(times) == [
        "cache_n",
        "prompt_n",
        "prompt_ms",
        "prompt_per_token_ms",
        "prompt_per_second",
        "predicted_n",
        "predicted_ms",
        "predicted_per_token_ms",
        "predicted_per_second",
    ]
    assert times["cache_n"] + times["prompt_n"] == 2
    assert times["predicted_n"] == 1
    assert times["predicted_per_token_ms"] == times["predicted_per_second"] == 0.0


def test_a_stream_ends_with_the_whole_answer_and_no_done_mark(served: Served) -> None:
    events = served.events("/completion", {"prompt": "fox", "n_predict": 3})
    assert [event["content"] for event in events] == ["The ", "quick br", "own f", ""]
    first, last = events[0], events[-1]
    assert list(first) == [
        "index",
        "content",
        "tokens",
        "stop",
        "id_slot",
        "tokens_predicted",
        "tokens_evaluated",
    ]
    assert (first["stop"], first["id_slot"], first["tokens_predicted"]) == (
        False,
        -1,
        1,
    )
    assert list(last) == ANSWER_KEYS
    assert last["stop"] is True


def test_tokens_come_when_asked_for(served: Served) -> None:
    asked = {"prompt": "plain", "n_predict": 3, "return_tokens": True}
    assert served.post("/completion", asked).json()["tokens"] == [fake.FILLER] * 3
    events = served.events("/completion", {"prompt": "plain", "n_predict": 2})
    assert [event["tokens"] for event in events] == [[fake.FILLER], [fake.FILLER], []]


def test_a_stop_string_across_tokens_cuts_the_text_exactly(served: Served) -> None:
    for stop in (["own fox"], "own fox"):
        body = served.post("/completion", {"prompt": "fox", "stop": stop}).json()
        assert body["content"] == "The quick br"
        assert (body["stop_type"], body["stopping_word"]) == ("word", "own fox")
        events = served.events("/completion", {"prompt": "fox", "stop": stop})
        assert "".join(event["content"] for event in events) == "The quick br"


@pytest.mark.parametrize("stop", [None, "", [], [""]])
def test_no_stop_string_is_no_stop(served: Served, stop: Any) -> None:
    body = served.post("/completion", {"prompt": "fox", "stop": stop}).json()
    assert body["content"] == "The quick brown fox jumps"
    assert body["stop_type"] == "eos"


def test_text_held_back_for_a_stop_string_is_sent_at_the_end(served: Served) -> None:
    asked = {"prompt": "fox", "n_predict": 3, "stop": ["own fax"]}
    events = served.events("/completion", asked)
    assert "".join(event["content"] for event in events) == "The quick brown f"


def test_bytes_of_one_character_never_come_apart(served: Served) -> None:
    events = served.events("/completion", {"prompt": "bytes"})
    assert "".join(event["content"] for event in events) == "가!"
    assert "�" not in "".join(event["content"] for event in events)


def test_a_line_break_is_reported(served: Served) -> None:
    asked = {"prompt": "lines", "n_predict": 2}
    assert served.post("/completion", asked).json()["has_new_line"] is True


def test_several_prompts_give_a_list_in_their_order(served: Served) -> None:
    asked = {"prompt": ["fox", "plain one", [1, 1]], "n_predict": 2}
    body = served.post("/completion", asked).json()
    assert [answer["index"] for answer in body] == [0, 1, 2]
    assert [answer["content"] for answer in body] == ["The quick br", "x x ", "x x "]
    assert [answer["prompt"] for answer in body] == ["fox", "plain one", "x x "]


def test_one_failing_prompt_fails_all(served: Served) -> None:
    reply = served.post(
        "/completion", {"prompt": ["plain", "boom now"], "n_predict": 900}
    )
    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "server_error"
    served.until(served.idle)


def test_a_mixed_list_is_one_prompt(served: Served) -> None:
    body = served.post("/completion", {"prompt": ["a b", 1], "n_predict": 1}).json()
    assert body["tokens_evaluated"] == 3
    assert body["prompt"] == "a bx "


def test_only_the_wanted_fields_come_back(served: Served) -> None:
    asked = {
        "prompt": "fox",
        "n_predict": 1,
        "response_fields": ["content", "generation_settings/n_predict", "nope"],
    }
    assert served.post("/completion", asked).json() == {
        "content": "The ",
        "generation_settings/n_predict": 1,
    }


def test_a_path_into_something_that_is_no_object_is_left_out() -> None:
    assert pick({"a": {"b": 1}, "c": 2}, ["a/b", "c/d", "a/x"]) == {"a/b": 1}


def test_a_drawn_seed_is_told_and_a_given_one_kept(served: Served) -> None:
    def seed(**fields: Any) -> int:
        asked = {"prompt": "fox", "n_predict": 1, **fields}
        found: int = served.post("/completion", asked).json()["generation_settings"][
            "seed"
        ]
        return found

    drawn = {seed(), seed(seed=-1), seed(seed=4294967295)}
    assert len(drawn) == 3
    assert all(0 <= value < 4294967295 for value in drawn)
    assert seed(seed=7) == 7


def test_progress_and_timings_come_with_each_event(served: Served) -> None:
    words = " ".join(f"w{i}" for i in range(700))
    events = served.events(
        "/completion",
        {
            "prompt": words,
            "n_predict": 2,
            "return_progress": True,
            "timings_per_token": True,
            "cache_prompt": False,
        },
    )
    reads = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert reads[0]["processed"] == 0
    read = [event["processed"] for event in reads]
    assert len(read) > 2
    assert all(n < more for n, more in zip(read, read[1:], strict=False))
    assert {read["total"] for read in reads} == {700}
    assert events[0]["tokens"] == [0]
    assert events[0]["timings"]["prompt_n"] == 0
    assert all("timings" in event for event in events)


def test_a_bias_by_text_is_the_bias_of_its_tokens(served: Served) -> None:
    token = served.post("/tokenize", {"content": "biased"}).json()["tokens"][0]
    for bias in (
        [["biased", False]],
        {"biased": 2.5},
        [[token, 2.5]],
        {str(token): -1},
    ):
        asked = {"prompt": "fox", "n_predict": 1, "logit_bias": bias}
        settings = served.post("/completion", asked).json()["generation_settings"]
        assert [item["token"] for item in settings["logit_bias"]] == [token]
        if bias == [["biased", False]]:
            # JSON has no -infinity.
            assert settings["logit_bias"][0]["bias"] is None


def test_the_same_prompt_again_reads_one_token_again(served: Served) -> None:
    asked = {"prompt": "fox again and again", "temperature": 0, "id_slot": 2}
    first = served.post("/completion", asked).json()
    second = served.post("/completion", asked).json()
    assert second["content"] == first["content"] == "The quick brown fox jumps"
    assert (second["timings"]["cache_n"], second["timings"]["prompt_n"]) == (3, 1)
    events = served.events("/completion", asked)
    assert "".join(event["content"] for event in events) == first["content"]
    prefix = served.post("/completion", {**asked, "prompt": "fox again"}).json()
    assert (prefix["timings"]["cache_n"], prefix["timings"]["prompt_n"]) == (1, 1)
    single = served.post("/completion", {**asked, "prompt": "fox"}).json()
    assert single["timings"]["prompt_n"] == 1
    assert single["content"] == first["content"]


@pytest.mark.parametrize("route", ["/completion", "/v1/completions"])
@pytest.mark.parametrize("prompt", ["", [], [[]], None])
def test_an_empty_prompt_is_refused_by_name(
    served: Served, route: str, prompt: Any
) -> None:
    """llama-server answers "" with an empty text; a prompt without a token is refused
    here, since nothing can be continued."""
    reply = served.post(route, {"prompt": prompt})
    assert reply.status_code == 400
    assert "prompt" in reply.json()["error"]["message"]
    assert served.post(route, {"prompt": "fox", "n_predict": 1}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "route", ["/completion", "/v1/completions", "/v1/chat/completions"]
)
def test_a_prompt_too_long_is_400_before_any_stream(
    served: Served, route: str, stream: bool
) -> None:
    words = " ".join(["w"] * 1100)
    asked: dict[str, Any] = {"stream": stream}
    if "chat" in route:
        asked["messages"] = [{"role": "user", "content": words}]
    else:
        asked["prompt"] = words
    reply = served.post(route, asked)
    assert reply.status_code == 400
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    error = reply.json()["error"]
    assert error["code"] == 400
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (1100, 1024)


EIGHT = "a b c d e f g h"


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 248), (-1, 248), (10**9, 248), (0, 1), (1, 1)]
)
def test_output_limits(small: Served, limit: int | None, expected: int) -> None:
    """0 still gives one token, as in llama-server."""
    for name in ("n_predict", "max_tokens", "max_completion_tokens"):
        body = small.post("/completion", {"prompt": EIGHT, name: limit}).json()
        assert body["tokens_predicted"] == expected
        assert body["stop_type"] == "limit"
        assert body["truncated"] is (expected == 248)


@pytest.mark.parametrize("limit", [-2, "5", 2.5, True, [], {}])
def test_output_limits_that_are_none_are_refused(small: Served, limit: Any) -> None:
    """llama-server refuses -2 too; the field is named."""
    for name in ("n_predict", "max_tokens"):
        reply = small.post("/completion", {"prompt": EIGHT, name: limit})
        assert reply.status_code == 400
        assert f"Field '{name}'" in reply.json()["error"]["message"]


def test_the_first_name_of_a_limit_wins(small: Served) -> None:
    asked = {
        "prompt": EIGHT,
        "max_tokens": 9,
        "max_completion_tokens": 3,
        "n_predict": 2,
    }
    assert small.post("/completion", asked).json()["tokens_predicted"] == 2
    asked["n_predict"] = None  # type: ignore[assignment]
    assert small.post("/completion", asked).json()["tokens_predicted"] == 3


def test_answers_are_compact_json(small: Served) -> None:
    reply = small.post("/completion", {"prompt": "a", "n_predict": 1})
    assert reply.text == json.dumps(
        reply.json(), separators=(",", ":"), ensure_ascii=False
    )
