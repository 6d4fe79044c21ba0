"""The keys of the old flat file, as they were: this schema is frozen.

Version 1 had no tables, and the names and the meaning of its keys will never change
again; what they are called today may. So nothing here is derived from the option
table but the check of the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Key:
    """A key of version 1."""

    now: str
    """The option that it is now."""
    rank: int = 0
    """Of several keys for one option the highest rank wins."""
    when_true: object = None
    """The value of the option where a boolean key is true; false says nothing."""


VERSION_KEYS = ("version", "config_version")
"""The number of the format, 1, under its names; it may be left out."""

KEYS = MappingProxyType(
    {
        "model": Key("model.path"),
        "model_path": Key("model.path"),
        "hf_repo": Key("model.hf_repo"),
        "hf_token": Key("model.hf_token"),
        "offline": Key("model.offline"),
        "alias": Key("model.alias"),
        "model_alias": Key("model.alias"),
        "chat_template": Key("model.chat_template"),
        "chat_template_file": Key("model.chat_template_file"),
        "chat_template_kwargs": Key("model.chat_template_kwargs"),
        "ctx_size": Key("engine.ctx_size"),
        "n_ctx": Key("engine.ctx_size"),
        "parallel": Key("engine.parallel"),
        "n_parallel": Key("engine.parallel"),
        "max_batch_size": Key("engine.parallel", rank=1),
        "no_batch": Key("engine.parallel", rank=2, when_true=1),
        "llama_server_compat": Key("engine.mode", when_true="llama-compat"),
        "kv_unified": Key("engine.kv_unified"),
        "batch_size": Key("engine.batch_size"),
        "prefill_chunk": Key("engine.batch_size"),
        "prefill_chunk_size": Key("engine.batch_size"),
        "prefill_step_size": Key("engine.batch_size"),
        "cache_prompt": Key("engine.cache_prompt"),
        "cache_ram": Key("engine.cache_ram"),
        "cache_type_k": Key("engine.cache_type_k"),
        "cache_type_v": Key("engine.cache_type_v"),
        "memory_limit": Key("engine.memory_limit"),
        "device": Key("engine.device"),
        "n_predict": Key("engine.n_predict"),
        "max_tokens": Key("engine.n_predict"),
        "seed": Key("sampling.seed"),
        "temp": Key("sampling.temperature"),
        "temperature": Key("sampling.temperature"),
        "top_k": Key("sampling.top_k"),
        "top_p": Key("sampling.top_p"),
        "min_p": Key("sampling.min_p"),
        "repeat_penalty": Key("sampling.repeat_penalty"),
        "repetition_penalty": Key("sampling.repeat_penalty"),
        "repeat_last_n": Key("sampling.repeat_last_n"),
        "presence_penalty": Key("sampling.presence_penalty"),
        "frequency_penalty": Key("sampling.frequency_penalty"),
        "host": Key("server.host"),
        "hosts": Key("server.host"),
        "bind": Key("server.host"),
        "port": Key("server.port"),
        "api_key": Key("server.api_key"),
        "api_key_file": Key("server.api_key_file"),
        "api_prefix": Key("server.api_prefix"),
        "ssl_key_file": Key("server.ssl_key_file"),
        "ssl_cert_file": Key("server.ssl_cert_file"),
        "cors_origins": Key("server.cors_origins"),
        "slots": Key("server.slots"),
        "slot_save_path": Key("server.slot_save_path"),
        "props": Key("server.props"),
        "metrics": Key("server.metrics"),
        "max_queue_depth": Key("server.queue_size"),
        "queue_size": Key("server.queue_size"),
        "timeout": Key("server.timeout"),
        "sse_ping_interval": Key("server.sse_ping_interval"),
        "log_level": Key("logging.level"),
        "log_format": Key("logging.format"),
        "log_file": Key("logging.file"),
    }
)
"""Every key of version 1; a mode is legacy where nothing says otherwise."""


def is_version_1(keys: list[str], version: object) -> bool:
    """Whether a file is one of version 1, from its dotted keys and its version.

    Without a version it is one when it has no tables and at least one key of old.
    """
    if version is not None:
        return version == 1 and not isinstance(version, bool)
    return all("." not in key for key in keys) and any(key in KEYS for key in keys)
