"""JSON objects that several dialects share; keys and their order are llama-server's.

Pure functions of what a request asked and what the engine answered.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlxceld import __version__
from mlxceld.api.fields import RANDOM_SEED, Ask, read_ask
from mlxceld.api.readers import INT32, Limits
from mlxceld.engine import messages as m
from mlxceld.settings import Settings

BUILD = f"mlxceld-{__version__}"
"""`build_info` and `system_fingerprint`."""

_ALPHABET = string.ascii_letters + string.digits


def identifier(prefix: str) -> str:
    """A name of its own for an answer or a part of one, as llama-server makes them."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(32))


def completion_id() -> str:
    return identifier("chatcmpl-")


def public_settings(ask: Ask) -> dict[str, Any]:
    """The 42 parameters that /props and /slots show: nothing that users wrote."""
    return {
        "seed": ask.seed,
        "temperature": ask.temperature,
        "dynatemp_range": ask.dynatemp_range,
        "dynatemp_exponent": ask.dynatemp_exponent,
        "top_k": ask.top_k,
        "top_p": ask.top_p,
        "min_p": ask.min_p,
        "top_n_sigma": ask.top_n_sigma,
        "xtc_probability": ask.xtc_probability,
        "xtc_threshold": ask.xtc_threshold,
        "typical_p": ask.typical_p,
        "repeat_last_n": ask.repeat_last_n,
        "repeat_penalty": ask.repeat_penalty,
        "presence_penalty": ask.presence_penalty,
        "frequency_penalty": ask.frequency_penalty,
        "dry_multiplier": ask.dry_multiplier,
        "dry_base": ask.dry_base,
        "dry_allowed_length": ask.dry_allowed_length,
        "dry_penalty_last_n": ask.dry_penalty_last_n,
        "mirostat": ask.mirostat,
        "mirostat_tau": ask.mirostat_tau,
        "mirostat_eta": ask.mirostat_eta,
        "adaptive_target": ask.adaptive_target,
        "adaptive_decay": ask.adaptive_decay,
        "max_tokens": ask.n_predict,
        "n_predict": ask.n_predict,
        "n_keep": ask.n_keep,
        "n_discard": ask.n_discard,
        "ignore_eos": ask.ignore_eos,
        "stream": ask.stream,
        "n_probs": ask.n_probs,
        "min_keep": ask.min_keep,
        "chat_format": ask.chat.get("chat_format", "Content-only"),
        "reasoning_format": ask.chat.get("reasoning_format", "none"),
        "reasoning_in_content": ask.chat.get("reasoning_in_content", False),
        "generation_prompt": ask.chat.get("generation_prompt", ""),
        "samplers": list(ask.samplers),
        "speculative.types": "none",
        "timings_per_token": ask.timings_per_token,
        "post_sampling_probs": ask.post_sampling_probs,
        "backend_sampling": False,
        "lora": [],
    }


_LOWEST = -3.4028234663852886e38
"""What llama-server writes for the logarithm of 0: JSON has no infinity."""


def probabilities(
    tokens: Sequence[m.TokenProbability], *, post_sampling: bool
) -> list[dict[str, Any]]:
    """`completion_probabilities`, and the `content` of OpenAI's `logprobs`.

    After sampling they are probabilities, and candidates of no probability are left
    out; before it they are logarithms.
    """
    value_key, top_key = (
        ("prob", "top_probs") if post_sampling else ("logprob", "top_logprobs")
    )

    def one(token: int, piece: bytes, value: float) -> dict[str, Any]:
        return {
            "id": token,
            "token": piece.decode("utf-8", "ignore"),
            "bytes": list(piece),
            value_key: max(value, _LOWEST),
        }

    return [
        {
            **one(entry.id, entry.piece, entry.value),
            top_key: [
                one(*other) for other in entry.top if not post_sampling or other[2] > 0
            ],
        }
        for entry in tokens
    ]


def generation_settings(
    ask: Ask, biases: Sequence[tuple[int, float]]
) -> dict[str, Any]:
    """The 49 parameters of a native answer; `biases` are pairs of token and bias."""
    private: dict[str, dict[str, Any]] = {
        "dry_penalty_last_n": {
            "dry_sequence_breakers": list(ask.dry_sequence_breakers)
        },
        "adaptive_decay": {"stop": list(ask.stop)},
        "stream": {
            "logit_bias": [{"bias": amount, "token": token} for token, amount in biases]
        },
        "min_keep": {
            "grammar": _grammar(ask),
            "grammar_lazy": False,
            "grammar_triggers": [],
            "preserved_tokens": [],
        },
    }
    every: dict[str, Any] = {}
    for key, value in public_settings(ask).items():
        every[key] = value
        every.update(private.get(key, {}))
    return every


def _grammar(ask: Ask) -> str:
    """The grammar that a request wrote; llama-server shows what schemas become."""
    spec = ask.grammar
    return spec.text if spec is not None and spec.kind == "gbnf" else ""


def default_settings(settings: Settings) -> dict[str, Any]:
    """The parameters of a request that sets none, as /props shows them.

    n_predict is -1 there whatever the option says, and the seed is the unsigned -1.
    """
    seed = settings.sampling.seed
    ask = read_ask({}, settings, Limits(n_vocab=INT32, slots=1))
    ask = replace(ask, seed=RANDOM_SEED if seed < 0 else seed, n_predict=-1)
    return public_settings(ask)


def timings(
    n_prompt: int,
    n_cached: int,
    n_decoded: int,
    prompt_ms: float,
    predicted_ms: float,
) -> dict[str, Any]:
    """Counts and times. The first token belongs to the prompt: rates count the rest.

    Every number is finite, also for one token and for a prompt read in no time.
    """
    read = n_prompt - n_cached
    steps = max(0, n_decoded - 1)
    return {
        "cache_n": n_cached,
        "prompt_n": read,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": _ratio(prompt_ms, read),
        "prompt_per_second": _ratio(read * 1e3, prompt_ms),
        "predicted_n": n_decoded,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": _ratio(predicted_ms, steps),
        "predicted_per_second": _ratio(steps * 1e3, predicted_ms),
    }


def done_timings(done: m.Done) -> dict[str, Any]:
    times = done.timings
    return timings(
        done.n_prompt,
        done.n_cached,
        done.n_decoded,
        times.prompt_ms,
        times.predicted_ms,
    )


def usage(answers: Sequence[m.Done], n: int = 1) -> dict[str, Any]:
    """Tokens in the words of OpenAI, summed over the prompts of a request.

    A prompt with `n` answers counts once, as the first of them read it.
    """
    completion = sum(done.n_decoded for done in answers)
    firsts = answers[::n]
    prompt = sum(done.n_prompt for done in firsts)
    return {
        "completion_tokens": completion,
        "prompt_tokens": prompt,
        "total_tokens": completion + prompt,
        "prompt_tokens_details": {
            "cached_tokens": sum(done.n_cached for done in firsts)
        },
    }


def finish_reason(done: m.Done, *, calls: bool = False) -> str:
    """Why an answer ended; `calls` says whether it calls tools."""
    if done.stop_type == "limit":
        return "length"
    return "tool_calls" if calls else "stop"


def _ratio(amount: float, by: float) -> float:
    return amount / by if by > 0 else 0.0
