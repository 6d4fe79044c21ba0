"""The completion fields of all dialects, read through one table.

To add a field: one line in `FIELDS` (its names, how it is read, its default) and the
attribute of `Ask`. A field that the engine cannot serve yet stands in `NOT_YET` with
the question whether a value asks for anything; a request that does gets a 501 that
names the field, never an answer that silently ignores it. Names, bounds and defaults
are llama-server's; null means absent; unknown fields are ignored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mlxceld import samplers
from mlxceld.api.errors import bad_field, not_supported
from mlxceld.api.grammars import read_grammar
from mlxceld.api.readers import (
    INT32,
    Limits,
    Reader,
    array,
    bias,
    boolean,
    count_or_flag,
    integer,
    json_object,
    number,
    schema_of,
    takes,
    text_or_texts,
    texts,
)
from mlxceld.engine import messages as m
from mlxceld.samplingkinds import biases
from mlxceld.settings import Settings

RANDOM_SEED = 2**32 - 1
"""llama-server's spelling of "any seed", beside -1."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request wants, after validation. Units are tokens and seconds."""

    temperature: float
    top_k: int
    """0 is off."""
    top_p: float
    min_p: float
    typical_p: float
    repeat_last_n: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    """32 bits; drawn here when the request leaves it open, so that it can be told."""
    ignore_eos: bool
    logit_bias: tuple[tuple[int | str, float], ...]
    n_predict: int
    n_keep: int
    n_discard: int
    stop: tuple[str, ...]
    id_slot: int
    cache_prompt: bool
    stream: bool
    include_usage: bool
    return_tokens: bool
    return_progress: bool
    timings_per_token: bool
    verbose: bool
    response_fields: tuple[str, ...]
    sse_ping_interval: int
    samplers: tuple[str, ...]
    """As the request lists them."""
    min_keep: int
    top_n_sigma: float
    dynatemp_range: float
    dynatemp_exponent: float
    xtc_probability: float
    xtc_threshold: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: tuple[str, ...]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float
    n_probs: int
    post_sampling_probs: bool
    n: int
    """Answers to each prompt."""
    t_max_predict_ms: int
    n_indent: int
    chain: tuple[str, ...] = m.SAMPLERS
    """The samplers in the order in which they have to work."""
    chat: Mapping[str, Any] = field(default_factory=dict)
    """What a chat says of its format, in `generation_settings`."""
    grammar: m.GrammarSpec | None = None
    """What the answer has to match."""

    def for_answer(self, index: int) -> Ask:
        """What the request's answer number `index` goes by.

        Of the `n` answers to a prompt each has the next seed, as in llama-server.
        """
        return replace(self, seed=(self.seed + index % self.n) & RANDOM_SEED)

    def sampling(self, biases: tuple[tuple[int, float], ...]) -> m.Sampling:
        """For the engine; `biases` is `logit_bias` with its texts made tokens."""
        own: dict[str, Any] = {"logit_bias": biases, "samplers": self.chain}
        names = (name for name in m.Sampling.__struct_fields__ if name not in own)
        return m.Sampling(**{name: getattr(self, name) for name in names}, **own)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of `Ask`: the first of its names that is present wins."""

    attribute: str
    names: tuple[str, ...]
    read: Reader
    default: Callable[[Settings], Any]


def _field(
    name: str, read: Reader, default: Callable[[Settings], Any], *more: str
) -> Field:
    return Field(name, (name, *more), read, default)


@takes(
    {
        "type": "object",
        "properties": {"include_usage": {"type": ["boolean", "null"]}},
    }
)
def _usage(name: str, value: Any, limits: Limits) -> bool:
    wanted = json_object(name, value, limits).get("include_usage")
    return wanted is not None and boolean(f"{name}.include_usage", wanted, limits)


DRY_BASE = 1.75


@takes(schema_of(number(), Limits(0, 0)))
def _dry_base(name: str, value: Any, limits: Limits) -> float:
    """Below 1 a penalty would shrink: llama-server takes the default then."""
    base = float(number()(name, value, limits))
    return base if base >= 1 else DRY_BASE


@takes({"type": "array", "items": {"type": "string"}, "minItems": 1})
def _breakers(name: str, value: Any, limits: Limits) -> tuple[str, ...]:
    found = texts(name, value, limits)
    if not found:
        raise bad_field(name, "it must not be empty")
    return found


@takes(lambda known: {"type": "integer", "minimum": -1, "maximum": known.n_vocab})
def _top_k(name: str, value: Any, limits: Limits) -> int:
    """0 and -1 mean off; more than the vocabulary holds is a mistake."""
    read = integer(-1, lambda known: known.n_vocab, ceiling="the vocabulary")
    return max(0, int(read(name, value, limits)))


_OFF: Mapping[str, Mapping[str, Any]] = {
    "penalties": {
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    },
    "dry": {"dry_multiplier": 0.0},
    "top_n_sigma": {"top_n_sigma": -1.0},
    "top_k": {"top_k": 0},
    "typ_p": {"typical_p": 1.0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "xtc": {"xtc_probability": 0.0},
    "temperature": {"temperature": 1.0, "dynatemp_range": 0.0},
    "adaptive_p": {"adaptive_target": -1.0},
}
"""How a sampler is left out: the values with which it does nothing."""


@takes({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
def _samplers(name: str, value: Any, limits: Limits) -> tuple[str, ...]:
    """A list of names or a string of letters, in any order."""
    try:
        if isinstance(value, str):
            return samplers.from_letters(value)
        return samplers.from_names(texts(name, value, limits))
    except ValueError as error:
        raise bad_field(name, f"{error}") from None


FIELDS: tuple[Field, ...] = (
    _field("temperature", number(0.0), lambda s: s.sampling.temperature),
    _field("top_k", _top_k, lambda s: s.sampling.top_k),
    _field("top_p", number(0.0, clamp=1.0), lambda s: s.sampling.top_p),
    _field("min_p", number(0.0, clamp=1.0), lambda s: s.sampling.min_p),
    _field("typical_p", number(0.0, clamp=1.0), lambda s: s.sampling.typical_p),
    _field("repeat_last_n", integer(-1, INT32), lambda s: s.sampling.repeat_last_n),
    _field("repeat_penalty", number(above=0.0), lambda s: s.sampling.repeat_penalty),
    _field("presence_penalty", number(), lambda s: s.sampling.presence_penalty),
    _field("frequency_penalty", number(), lambda s: s.sampling.frequency_penalty),
    _field("seed", integer(-1, 2**63 - 1), lambda s: s.sampling.seed),
    _field("ignore_eos", boolean, lambda s: s.sampling.ignore_eos),
    _field("logit_bias", bias, lambda s: biases(s.sampling.logit_bias)),
    # llama-server refuses numbers below -1 instead of guessing what they mean.
    _field(
        "n_predict",
        integer(-1, INT32),
        lambda s: s.engine.n_predict,
        "max_completion_tokens",
        "max_tokens",
    ),
    _field("n_keep", integer(-1, INT32), lambda s: s.engine.n_keep),
    _field("n_discard", integer(0, INT32), lambda s: 0),
    _field("stop", text_or_texts, lambda s: s.sampling.stop),
    # llama-server takes the slot number modulo the slots; here it must exist.
    _field("id_slot", integer(-1, lambda known: known.slots - 1), lambda s: -1),
    _field("cache_prompt", boolean, lambda s: s.engine.cache_prompt),
    _field("stream", boolean, lambda s: False),
    Field("include_usage", ("stream_options",), _usage, lambda s: False),
    _field("return_tokens", boolean, lambda s: False),
    _field("return_progress", boolean, lambda s: False),
    _field("timings_per_token", boolean, lambda s: False),
    _field("verbose", boolean, lambda s: s.logging.level == "debug"),
    _field("response_fields", texts, lambda s: ()),
    _field(
        "sse_ping_interval", integer(-1, INT32), lambda s: s.server.sse_ping_interval
    ),
    _field("samplers", _samplers, lambda s: s.sampling.samplers),
    _field("min_keep", integer(0, INT32), lambda s: 0),
    _field("top_n_sigma", number(), lambda s: s.sampling.top_n_sigma),
    _field("dynatemp_range", number(0.0), lambda s: s.sampling.dynatemp_range),
    _field("dynatemp_exponent", number(), lambda s: s.sampling.dynatemp_exponent),
    _field(
        "xtc_probability", number(0.0, clamp=1.0), lambda s: s.sampling.xtc_probability
    ),
    _field("xtc_threshold", number(0.0, clamp=1.0), lambda s: s.sampling.xtc_threshold),
    _field("dry_multiplier", number(), lambda s: s.sampling.dry_multiplier),
    _field("dry_base", _dry_base, lambda s: s.sampling.dry_base),
    _field(
        "dry_allowed_length", integer(0, INT32), lambda s: s.sampling.dry_allowed_length
    ),
    _field(
        "dry_penalty_last_n",
        integer(-1, INT32),
        lambda s: s.sampling.dry_penalty_last_n,
    ),
    _field(
        "dry_sequence_breakers", _breakers, lambda s: s.sampling.dry_sequence_breakers
    ),
    _field("mirostat", integer(0, 2), lambda s: s.sampling.mirostat),
    _field("mirostat_tau", number(), lambda s: s.sampling.mirostat_tau),
    _field("mirostat_eta", number(), lambda s: s.sampling.mirostat_eta),
    _field("adaptive_target", number(), lambda s: s.sampling.adaptive_target),
    _field(
        "adaptive_decay", number(0.0, clamp=0.99), lambda s: s.sampling.adaptive_decay
    ),
    _field("n_probs", count_or_flag, lambda s: 0, "logprobs"),
    _field("post_sampling_probs", boolean, lambda s: False),
    _field("n", integer(1, lambda known: known.slots), lambda s: 1, "n_cmpl"),
    _field("t_max_predict_ms", integer(-1, INT32), lambda s: -1),
    _field("n_indent", integer(0, INT32), lambda s: 0),
)


@dataclass(frozen=True, slots=True)
class NotYet:
    """A field that the engine cannot serve: does its value ask for anything?"""

    name: str
    read: Reader
    asks: Callable[[Any], bool]


NOT_YET: tuple[NotYet, ...] = (
    NotYet("grammar_lazy", boolean, bool),
    NotYet("lora", array, bool),
)


def read_ask(body: dict[str, Any], settings: Settings, limits: Limits) -> Ask:
    """The completion fields of a request body.

    Raises ApiError: 400 for a value of the wrong type or out of bounds, 501 for a
    field that asks for what the engine does not have.
    """
    values: dict[str, Any] = {}
    for entry in FIELDS:
        for name in entry.names:
            if body.get(name) is not None:
                values[entry.attribute] = entry.read(name, body[name], limits)
                break
        else:
            values[entry.attribute] = entry.default(settings)
    for known in NOT_YET:
        value = body.get(known.name)
        if value is None:
            continue
        if known.asks(known.read(known.name, value, limits)):
            raise not_supported(f"Field '{known.name}': not supported by this server")
    values["seed"] = _seed(values["seed"])
    values["stop"] = values["stop"] or settings.sampling.stop
    values["logit_bias"] = tuple(
        (token, amount)
        for token, amount in values["logit_bias"]
        if isinstance(token, str) or token < limits.n_vocab
    )
    values["top_k"] = max(0, min(values["top_k"], limits.n_vocab))
    grammar = read_grammar(body, limits)
    return _leave_out(Ask(**values, grammar=grammar))


def _seed(wanted: int) -> int:
    """32 bits as llama-server keeps them; -1 and its unsigned twin are drawn."""
    seed = wanted & RANDOM_SEED
    return secrets.randbelow(RANDOM_SEED) if seed == RANDOM_SEED else seed


def _leave_out(ask: Ask) -> Ask:
    """Neutral values for the samplers that a request does not list."""
    for name, neutral in _OFF.items():
        if name not in ask.samplers:
            ask = replace(ask, **neutral)
    # With the others doing nothing, a subset in the usual order is the usual chain.
    adapts = ask.adaptive_target >= 0
    order = [name for name in samplers.DEFAULT if name in ask.samplers]
    if [name for name in ask.samplers if name != "adaptive_p"] == order:
        last = ("adaptive_p",) if adapts else ()
        return replace(ask, chain=(*samplers.DEFAULT, *last))
    return replace(ask, chain=ask.samplers)
