"""The table of completion fields, without a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mlxceld.api.errors import ApiError
from mlxceld.api.fields import FIELDS, NOT_YET, Ask, read_ask
from mlxceld.api.readers import Limits
from mlxceld.api.shapes import generation_settings
from mlxceld.engine import messages as m
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


@pytest.mark.parametrize("samplers", ["edskypmxt", "ekt", ["dry", "top_k", "xtc"], []])
def test_a_part_of_the_usual_order_is_the_usual_chain(samplers: Any) -> None:
    """What is left out does nothing, and rows with the usual chain are fastest."""
    ask = read({"samplers": samplers})
    assert ask.sampling(()).samplers == m.SAMPLERS
    assert ask.sampling(()).usual


@pytest.mark.parametrize(
    ("samplers", "chain"),
    [
        ("tk", ("temperature", "top_k")),
        (["min_p", "top_p"], ("min_p", "top_p")),
        (["top_k", "temp", "top-k"], ("top_k", "temperature", "top_k")),
        (["typical_p", "penalties"], ("typ_p", "penalties")),
    ],
)
def test_any_other_order_is_kept(samplers: Any, chain: tuple[str, ...]) -> None:
    ask = read({"samplers": samplers})
    assert ask.samplers == ask.sampling(()).samplers == chain
    assert not ask.sampling(()).usual


def test_adaptive_p_works_where_it_is_named_and_has_a_target() -> None:
    named = {"samplers": "edskypmxta"}
    ask = read({**named, "adaptive_target": 0.4, "adaptive_decay": 5})
    assert ask.sampling(()).samplers == (*m.SAMPLERS, "adaptive_p")
    assert (ask.adaptive_target, ask.adaptive_decay) == (0.4, 0.99)
    assert read(named).sampling(()).usual
    assert read({"adaptive_target": 0.4}).sampling(()).usual
    ask = read({"samplers": ["adaptive-p", "top_k"], "adaptive_target": 0.4})
    assert ask.sampling(()).samplers == (*m.SAMPLERS, "adaptive_p")


OPTIONS = SamplingSettings(
    logit_bias=("5+1.5", "6-inf", "50256+1"),
    samplers=("temperature", "top_k"),
    top_n_sigma=1.5,
    xtc_probability=0.25,
    xtc_threshold=0.2,
    dry_multiplier=0.8,
    dry_base=2.0,
    dry_allowed_length=3,
    dry_penalty_last_n=-1,
    dry_sequence_breakers=("zz",),
    dynatemp_range=0.5,
    dynatemp_exponent=2.0,
    mirostat=2,
    mirostat_tau=4.0,
    mirostat_eta=0.2,
    stop=("END", "."),
)


def test_the_options_are_what_a_request_says_nothing_of() -> None:
    settings = Settings(
        sampling=replace(OPTIONS, samplers=m.SAMPLERS), engine=EngineSettings(n_keep=7)
    )
    ask = read({}, settings)
    for name in (
        *("top_n_sigma", "xtc_probability", "xtc_threshold", "dry_multiplier"),
        *("dry_base", "dry_allowed_length", "dry_penalty_last_n", "mirostat"),
        *("dry_sequence_breakers", "dynatemp_range", "dynatemp_exponent"),
        *("mirostat_tau", "mirostat_eta", "stop"),
    ):
        assert getattr(ask, name) == getattr(OPTIONS, name), name
    assert ask.logit_bias == ((5, 1.5), (6, float("-inf")))
    assert ask.n_keep == 7
    said = {"stop": "x", "logit_bias": [], "mirostat": 0, "n_keep": -1}
    ask = read(said, settings)
    assert (ask.stop, ask.logit_bias, ask.mirostat, ask.n_keep) == (("x",), (), 0, -1)
    assert read({"stop": []}, settings).stop == ("END", ".")


def test_the_order_of_the_samplers_may_be_an_option() -> None:
    ask = read({}, Settings(sampling=OPTIONS))
    assert ask.samplers == ask.sampling(()).samplers == ("temperature", "top_k")
    # What is not named does nothing, whatever its option says.
    assert (ask.dry_multiplier, ask.xtc_probability, ask.top_p) == (0.0, 0.0, 1.0)


ENGINES: dict[str, Any] = {
    "min_keep": 3,
    "top_n_sigma": 1.5,
    "dynatemp_range": 0.5,
    "dynatemp_exponent": 2.0,
    "xtc_probability": 0.25,
    "xtc_threshold": 0.2,
    "dry_multiplier": 0.8,
    "dry_base": 2.0,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": -1,
    "mirostat": 2,
    "mirostat_tau": 4.0,
    "mirostat_eta": 0.2,
    "n_probs": 7,
    "post_sampling_probs": True,
}


def test_every_field_of_the_chain_reaches_the_engine_and_is_told_again() -> None:
    ask = read(ENGINES)
    sampling = ask.sampling(())
    told = generation_settings(ask, ())
    for name, value in ENGINES.items():
        assert getattr(sampling, name) == value, name
        assert told[name] == value, name
    breakers = ["\n", "zz"]
    ask = read({"dry_sequence_breakers": breakers})
    assert ask.sampling(()).dry_sequence_breakers == ("\n", "zz")
    assert generation_settings(ask, ())["dry_sequence_breakers"] == breakers


def test_a_request_that_asks_for_nothing_goes_the_fast_way() -> None:
    assert read({}).sampling(()).usual
    assert not read({"min_keep": 1}).sampling(()).usual


def test_a_dry_base_below_one_is_the_default() -> None:
    """As in llama-server."""
    assert read({"dry_base": 0.5}).dry_base == 1.75


def test_each_answer_of_several_has_the_next_seed() -> None:
    ask = read({"n": 2, "seed": 2**32 - 2})
    # Two prompts with two answers each; 32 bits.
    seeds = [ask.for_answer(index).sampling(()).seed for index in range(4)]
    assert seeds == [2**32 - 2, 2**32 - 1, 2**32 - 2, 2**32 - 1]
    assert read({"seed": 5}).for_answer(3).seed == 5


@pytest.mark.parametrize("name", ["n", "n_cmpl"])
def test_no_more_answers_at_once_than_slots(name: str) -> None:
    assert read({name: 2}).n == 2
    for n in (0, 3):
        with pytest.raises(ApiError) as caught:
            read({name: n})
        assert caught.value.code == 400
        assert caught.value.message == (
            f"Field '{name}': Value must be between 1 <= value <= 2, but got {n}"
        )


def test_probabilities_are_asked_for_under_two_names() -> None:
    assert read({"n_probs": 3, "logprobs": 5}).n_probs == 3
    assert read({"logprobs": 5}).n_probs == 5
    assert [read({"logprobs": v}).n_probs for v in (True, False, 0)] == [1, 0, 0]


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
