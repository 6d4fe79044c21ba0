"""What the defaults of requests take: lists that flags add to, samplers, biases."""

from __future__ import annotations

import math
import tomllib

import pytest

from mlxceld import samplers
from mlxceld.config import resolve
from mlxceld.kinds import BadValue, Kind
from mlxceld.samplingkinds import Biases, Samplers, Texts, biases
from mlxceld.settings import Settings

NOWHERE = {"CONFIGURATION_DIRECTORY": "/nonexistent", "HOME": "/nonexistent"}
NONE = Texts(nothing="none")


def said(*argv: str, **environ: str) -> Settings:
    return resolve(argv, NOWHERE | environ).settings


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Texts(), "END", ("END",)),
        (Texts(), "a,b ", ("a,b ",)),
        (Texts(), "none", ("none",)),
        (Texts(), r"\n\t\\\"\x41\q", ('\n\t\\"A\\q',)),
        (NONE, "none", ()),
        (NONE, "*", ("*",)),
        (Biases(), "15043+1", ("15043+1",)),
        (Biases(), " 15043 - 0.5 ", ("15043-0.5",)),
        (Biases(), "2-inf", ("2-inf",)),
        (Samplers(), "top_k;top-p;temp", ("top_k", "top_p", "temperature")),
        (Samplers(), "dry, xtc", ("dry", "xtc")),
        (Samplers(), "edskypmxt", samplers.DEFAULT),
        (Samplers(), "ka", ("top_k", "adaptive_p")),
        (Samplers(), "temp", ("temperature",)),
    ],
)
def test_flags_and_variables(kind: Kind, text: str, value: tuple[str, ...]) -> None:
    assert kind.parse(text) == value
    assert kind.check(tomllib.loads(f"x = {kind.render(value)}")["x"]) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Texts(), ""),
        (Biases(), "15043"),
        (Biases(), "+1"),
        (Biases(), "15043+inf"),
        (Biases(), "15043+1e9"),
        (Biases(), "-5+1"),
        (Samplers(), "top_k;best"),
        (Samplers(), "kz"),
    ],
)
def test_what_they_do_not_take(kind: Kind, text: str) -> None:
    with pytest.raises(BadValue):
        kind.parse(text)


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (Texts(), ["a", "", r"\n"], ("a", r"\n")),
        (Texts(), "a", ("a",)),
        (Texts(), [], ()),
        (Biases(), ["1+1", "2-inf"], ("1+1", "2-inf")),
        (Samplers(), ["top_k", "typical"], ("top_k", "typ_p")),
        (Samplers(), "kt", ("top_k", "temperature")),
    ],
)
def test_toml(kind: Kind, value: object, found: tuple[str, ...]) -> None:
    assert kind.check(value) == found


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Texts(), 5),
        (Texts(), ["a", 5]),
        (Biases(), ["1"]),
        (Biases(), {"1": 2}),
        (Samplers(), ["best"]),
        (Samplers(), [1]),
    ],
)
def test_what_toml_does_not_take(kind: Kind, value: object) -> None:
    with pytest.raises(BadValue):
        kind.check(value)


def test_biases_are_pairs_of_token_and_number() -> None:
    assert biases(("3+1", "4-2.5", "5-inf")) == ((3, 1.0), (4, -2.5), (5, -math.inf))


def test_a_flag_that_is_given_again_adds_to_its_list() -> None:
    words = ["-r", "END", "--reverse-prompt", r"\n", "-l", "1+1", "-l", "2-1"]
    sampling = said(*words).sampling
    assert (sampling.stop, sampling.logit_bias) == (("END", "\n"), ("1+1", "2-1"))
    words = ["--dry-sequence-breaker", ".", "--dry-sequence-breaker", "none"]
    assert said(*words).sampling.dry_sequence_breakers == (".",)
    assert said(*words[2:]).sampling.dry_sequence_breakers == ()
    assert said().sampling.dry_sequence_breakers == ("\n", ":", '"', "*")


def test_the_flags_win_over_the_environment() -> None:
    assert said("-r", "a", MLXCELD_STOP="b").sampling.stop == ("a",)
    assert said(MLXCELD_STOP="b").sampling.stop == ("b",)


def test_the_names_of_llama_server_reach_the_settings() -> None:
    sampling = said(
        *("--sampler-seq", "kt", "--top-nsigma", "1.5", "--xtc-probability", "0.5"),
        *("--xtc-threshold", "0.2", "--dry-multiplier", "0.8", "--dry-base", "2"),
        *("--dry-allowed-length", "3", "--dry-penalty-last-n", "-1"),
        *("--dynatemp-range", "0.5", "--dynatemp-exp", "2", "--mirostat", "2"),
        *("--mirostat-lr", "0.2", "--mirostat-ent", "4", "--adaptive-target", "0.4"),
        *("--adaptive-decay", "0.5", "-j", '{"type": "object"}'),
    ).sampling
    assert sampling.samplers == ("top_k", "temperature")
    assert (sampling.top_n_sigma, sampling.xtc_probability) == (1.5, 0.5)
    assert (sampling.xtc_threshold, sampling.dry_multiplier) == (0.2, 0.8)
    assert (sampling.dry_base, sampling.dry_allowed_length) == (2.0, 3)
    assert (sampling.dry_penalty_last_n, sampling.dynatemp_range) == (-1, 0.5)
    assert (sampling.dynatemp_exponent, sampling.mirostat) == (2.0, 2)
    assert (sampling.mirostat_eta, sampling.mirostat_tau) == (0.2, 4.0)
    assert (sampling.adaptive_target, sampling.adaptive_decay) == (0.4, 0.5)
    assert sampling.json_schema == '{"type": "object"}'


def test_context_and_reasoning_have_llama_servers_variables() -> None:
    settings = said(
        "--keep",
        "-1",
        LLAMA_ARG_CONTEXT_SHIFT="1",
        LLAMA_ARG_THINK_BUDGET="64",
        LLAMA_ARG_THINK_BUDGET_MESSAGE="enough",
        LLAMA_ARG_NO_REASONING_PRESERVE="1",
        LLAMA_ARG_SKIP_CHAT_PARSING="on",
        LLAMA_ARG_PREFILL_ASSISTANT="off",
    )
    assert (settings.engine.context_shift, settings.engine.n_keep) == (True, -1)
    model = settings.model
    assert (model.reasoning_budget, model.reasoning_budget_message) == (64, "enough")
    assert not model.reasoning_preserve
    assert model.skip_chat_parsing
    assert not model.prefill_assistant
