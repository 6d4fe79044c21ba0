"""JSON objects that several dialects share."""

from __future__ import annotations

import math

from mlxceld.api.shapes import completion_id, default_settings, timings, usage
from mlxceld.engine.messages import Done, Timings
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
