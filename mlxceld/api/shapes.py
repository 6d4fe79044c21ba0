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

_BREAKERS = ["\n", ":", '"', "*"]


def completion_id() -> str:
    return "chatcmpl-" + "".join(secrets.choice(_ALPHABET) for _ in range(32))


def public_settings(ask: Ask) -> dict[str, Any]:
    """The 42 parameters that /props and /slots show: nothing that users wrote.

    Parameters of samplers that the engine does not have stand there with the values
    with which they do nothing, because clients read them.
    """
    inert = ask.inert
    return {
        "seed": ask.seed,
        "temperature": ask.temperature,
        "dynatemp_range": 0.0,
        "dynatemp_exponent": inert.get("dynatemp_exponent", 1.0),
        "top_k": ask.top_k,
        "top_p": ask.top_p,
        "min_p": ask.min_p,
        "top_n_sigma": inert.get("top_n_sigma", -1.0),
        "xtc_probability": 0.0,
        "xtc_threshold": inert.get("xtc_threshold", 0.1),
        "typical_p": ask.typical_p,
        "repeat_last_n": ask.repeat_last_n,
        "repeat_penalty": ask.repeat_penalty,
        "presence_penalty": ask.presence_penalty,
        "frequency_penalty": ask.frequency_penalty,
        "dry_multiplier": 0.0,
        "dry_base": inert.get("dry_base", 1.75),
        "dry_allowed_length": inert.get("dry_allowed_length", 2),
        "dry_penalty_last_n": inert.get("dry_penalty_last_n", 64),
        "mirostat": 0,
        "mirostat_tau": inert.get("mirostat_tau", 5.0),
        "mirostat_eta": inert.get("mirostat_eta", 0.1),
        "adaptive_target": inert.get("adaptive_target", -1.0),
        "adaptive_decay": inert.get("adaptive_decay", 0.9),
        "max_tokens": ask.n_predict,
        "n_predict": ask.n_predict,
        "n_keep": ask.n_keep,
        "n_discard": ask.n_discard,
        "ignore_eos": ask.ignore_eos,
        "stream": ask.stream,
        "n_probs": 0,
        "min_keep": 0,
        "chat_format": "Content-only",
        "reasoning_format": "none",
        "reasoning_in_content": False,
        "generation_prompt": "",
        "samplers": list(ask.samplers),
        "speculative.types": "none",
        "timings_per_token": ask.timings_per_token,
        "post_sampling_probs": False,
        "backend_sampling": False,
        "lora": [],
    }


def generation_settings(
    ask: Ask, biases: Sequence[tuple[int, float]]
) -> dict[str, Any]:
    """The 49 parameters of a native answer; `biases` are pairs of token and bias."""
    private: dict[str, dict[str, Any]] = {
        "dry_penalty_last_n": {
            "dry_sequence_breakers": list(
                ask.inert.get("dry_sequence_breakers", _BREAKERS)
            )
        },
        "adaptive_decay": {"stop": list(ask.stop)},
        "stream": {
            "logit_bias": [{"bias": amount, "token": token} for token, amount in biases]
        },
        "min_keep": {
            "grammar": "",
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


def usage(answers: Sequence[m.Done]) -> dict[str, Any]:
    """Tokens in the words of OpenAI, summed over the prompts of a request."""
    completion = sum(done.n_decoded for done in answers)
    prompt = sum(done.n_prompt for done in answers)
    return {
        "completion_tokens": completion,
        "prompt_tokens": prompt,
        "total_tokens": completion + prompt,
        "prompt_tokens_details": {
            "cached_tokens": sum(done.n_cached for done in answers)
        },
    }


def finish_reason(done: m.Done) -> str:
    return "length" if done.stop_type == "limit" else "stop"


def _ratio(amount: float, by: float) -> float:
    return amount / by if by > 0 else 0.0
