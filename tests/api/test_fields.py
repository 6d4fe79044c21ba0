"""The table of completion fields, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from mlxceld.api.errors import ApiError
from mlxceld.api.fields import FIELDS, NOT_YET, Ask, read_ask
from mlxceld.api.readers import Limits
from mlxceld.settings import EngineSettings, SamplingSettings, Settings

LIMITS = Limits(n_vocab=100, slots=2)


def read(body: dict[str, Any], settings: Settings | None = None) -> Ask:
    return read_ask(body, settings or Settings(), LIMITS)


def test_what_a_request_leaves_out_comes_from_the_settings() -> None:
    settings = Settings(
        engine=EngineSettings(n_predict=77, cache_prompt=False),
        sampling=SamplingSettings(temperature=0.1, top_k=5, seed=9, ignore_eos=True),
    )
    ask = read({"temperature": None}, settings)
    assert (ask.temperature, ask.top_k, ask.seed) == (0.1, 5, 9)
    assert (ask.n_predict, ask.cache_prompt, ask.ignore_eos) == (77, False, True)
    assert read({"n_predict": 3, "seed": 4}, settings).n_predict == 3


def test_a_default_top_k_above_a_small_vocabulary_is_all_of_it() -> None:
    settings = Settings(sampling=SamplingSettings(top_k=1000))
    assert read({}, settings).top_k == 100
    with pytest.raises(ApiError, match="the vocabulary"):
        read({"top_k": 101}, settings)


def test_whole_floats_are_integers_and_others_are_not() -> None:
    assert read({"n_predict": 2.0}).n_predict == 2
    with pytest.raises(ApiError, match="Field 'n_predict': .*2.5"):
        read({"n_predict": 2.5})


def test_a_seed_keeps_its_low_32_bits() -> None:
    assert read({"seed": 2**32 + 5}).seed == 5


def test_bounds_are_told_in_llama_servers_words() -> None:
    with pytest.raises(ApiError) as caught:
        read({"n_predict": -2})
    assert caught.value.message == (
        "Field 'n_predict': Value must be between -1 <= value <= 2147483647, but got -2"
    )


def test_samplers_left_out_do_nothing() -> None:
    ask = read({"samplers": ["top_k", "temperature"], "top_p": 0.5, "min_p": 0.2})
    assert (ask.top_p, ask.min_p, ask.typical_p) == (1.0, 0.0, 1.0)
    assert (ask.top_k, ask.temperature) == (40, 0.8)
    ask = read({"samplers": "k", "temperature": 0.1, "repeat_penalty": 2})
    assert (ask.temperature, ask.repeat_penalty) == (1.0, 1.0)


@pytest.mark.parametrize("samplers", ["edskypmxt", "ekt", ["dry", "top_k", "xtc"]])
def test_any_part_of_the_order_is_served(samplers: Any) -> None:
    read({"samplers": samplers})


@pytest.mark.parametrize("samplers", ["tk", ["min_p", "top_p"], ["top_k", "top_k"]])
def test_another_order_is_not(samplers: Any) -> None:
    with pytest.raises(ApiError) as caught:
        read({"samplers": samplers})
    assert caught.value.code == 501


def test_biases_in_every_form() -> None:
    ask = read({"logit_bias": [[5, 1.5], [6, False], [" word", -2]]})
    assert ask.logit_bias == ((5, 1.5), (6, float("-inf")), (" word", -2.0))
    ask = read({"logit_bias": {"5": 1, " word": False, "²": 1}})
    assert ask.logit_bias == ((5, 1.0), (" word", float("-inf")), ("²", 1.0))


def test_biases_of_tokens_that_do_not_exist_have_no_effect() -> None:
    """As in llama-server: clients send the end tokens of other models."""
    assert read({"logit_bias": {"50256": -100}}).logit_bias == ()


def test_stop_strings_in_every_form() -> None:
    assert read({"stop": "a"}).stop == ("a",)
    assert read({"stop": ["a", "", "b"]}).stop == ("a", "b")
    nothing: list[Any] = [None, "", []]
    assert [read({"stop": value}).stop for value in nothing] == [(), (), ()]


def test_no_name_stands_twice_in_the_tables() -> None:
    names = [name for entry in FIELDS for name in entry.names]
    names += [entry.name for entry in NOT_YET]
    assert len(names) == len(set(names))


def test_the_engine_gets_what_was_read() -> None:
    sampling = read({"temperature": 0, "seed": 3}).sampling(((4, 1.0),))
    assert (sampling.temperature, sampling.seed) == (0.0, 3)
    assert sampling.logit_bias == ((4, 1.0),)
