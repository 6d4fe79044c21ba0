"""JSON objects that several dialects share."""

from __future__ import annotations

import math

from mlxceld.api.shapes import (
    completion_id,
    default_settings,
    probabilities,
    timings,
    usage,
)
from mlxceld.engine.messages import Done, Timings, TokenProbability
from mlxceld.settings import EngineSettings, SamplingSettings, Settings


def done(n_prompt: int, n_cached: int, n_decoded: int) -> Done:
    return Done(
        1, 0, "", [], "eos", "", False, n_prompt, n_cached, n_decoded, 0, Timings()
    )


def test_timings_of_a_measured_answer() -> None:
    """Six tokens in 304.218 ms are five steps: numbers of a llama-server."""
    found = timings(5, 0, 6, 2963.258, 304.218)
    assert math.isclose(found["prompt_per_token_ms"], 592.6516)
    assert math.isclose(found["prompt_per_second"], 1.6873319839177015)
    assert math.isclose(found["predicted_per_token_ms"], 60.8436)
    assert math.isclose(found["predicted_per_second"], 16.435582378426)


def test_timings_are_finite_when_nothing_was_done() -> None:
    assert set(timings(0, 0, 0, 0.0, 0.0).values()) == {0}
    assert timings(4, 4, 1, 0.0, 0.0)["prompt_per_second"] == 0.0


def test_usage_sums_the_prompts() -> None:
    assert usage([done(5, 4, 2), done(3, 0, 7)]) == {
        "completion_tokens": 9,
        "prompt_tokens": 8,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_usage_counts_a_prompt_with_several_answers_once() -> None:
    """Two prompts of 5 and 3 tokens with two answers each."""
    answers = [done(5, 0, 2), done(5, 4, 2), done(3, 1, 7), done(3, 2, 7)]
    assert usage(answers, 2) == {
        "completion_tokens": 18,
        "prompt_tokens": 8,
        "total_tokens": 26,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def test_probabilities_before_sampling_are_logarithms() -> None:
    """Keys as a llama-server sends them; a broken character has no text but bytes."""
    found = probabilities(
        [
            TokenProbability(
                7042, b" Paris", -0.25, [(7042, b" Paris", -0.25), (9, b"\xec", -2.5)]
            )
        ],
        post_sampling=False,
    )
    assert found == [
        {
            "id": 7042,
            "token": " Paris",
            "bytes": [32, 80, 97, 114, 105, 115],
            "logprob": -0.25,
            "top_logprobs": [
                {
                    "id": 7042,
                    "token": " Paris",
                    "bytes": [32, 80, 97, 114, 105, 115],
                    "logprob": -0.25,
                },
                {"id": 9, "token": "", "bytes": [236], "logprob": -2.5},
            ],
        }
    ]
    assert list(found[0]) == ["id", "token", "bytes", "logprob", "top_logprobs"]


def test_the_logarithm_of_nothing_is_the_least_float() -> None:
    entry = TokenProbability(1, b"a", -math.inf, [])
    [found] = probabilities([entry], post_sampling=False)
    assert found["logprob"] == -3.4028234663852886e38


def test_after_sampling_candidates_of_no_probability_are_left_out() -> None:
    entry = TokenProbability(1, b"a", 0.75, [(1, b"a", 0.75), (2, b"b", 0.0)])
    [found] = probabilities([entry], post_sampling=True)
    assert list(found) == ["id", "token", "bytes", "prob", "top_probs"]
    assert found["prob"] == 0.75
    assert [other["id"] for other in found["top_probs"]] == [1]


def test_the_defaults_of_props_follow_the_sampling_options() -> None:
    sampling = SamplingSettings(seed=42, temperature=0.0, top_k=-1)
    shown = default_settings(
        Settings(sampling=sampling, engine=EngineSettings(n_predict=9))
    )
    assert (shown["seed"], shown["temperature"], shown["top_k"]) == (42, 0.0, 0)
    # As llama-server, whatever the option says.
    assert shown["n_predict"] == shown["max_tokens"] == -1


def test_ids_are_random() -> None:
    assert len({completion_id() for _ in range(100)}) == 100
