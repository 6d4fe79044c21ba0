"""The sizes of a model that its memory depends on, as its config.json says them.

Every family has names and habits of its own; all of them are known here, and only here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxceld.problems import Problem, Refused

_STATELESS = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv7"})
"""Model types without any cache that grows with the text."""

_ALWAYS_FULL = frozenset(
    {"dots1", "gemma2", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"}
    | {"smollm3", "starcoder2"}
)
"""Model types that keep all tokens even in layers whose attention slides."""

_PATTERNS = {"gemma3_text": 6, "cohere2": 4, "gpt_oss": 2}
"""Every how many layers one keeps all tokens, where the config leaves it out."""

_LATENT_AS_HEADS = frozenset({"minicpm3", "deepseek_v2", "youtu_llm"})
"""Model types with latent attention that cache the expanded keys and values."""

_LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_transformer_layers",
)
_HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim", "dim", "hidden_dim")
"""Names of the number of layers and of their width, in the order of trust."""

_FULL = ("full_attention", "attention", "global_attention", "full", "global", "*", "G")
_SLIDING = ("sliding_attention", "chunked_attention", "local", "sliding", "L")


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder that its memory depends on."""

    layers: int
    hidden: int
    heads: int
    kv_heads: float
    """Mean over the layers that keep keys and values."""
    key_dim: int
    value_dim: int
    inner: int = 0
    vocab: int = 0
    full_layers: int | None = None
    """Layers whose cache grows with the text; None for all."""
    sliding_layers: int = 0
    window: int = 0
    state_values: int = 0
    """Values of recurrent state of one sequence, over all layers."""
    latent: int = 0
    """Values a layer caches per token in latent attention, 0 in ordinary attention."""

    @property
    def token_values(self) -> float:
        """Values that one layer caches per token."""
        return self.latent or self.kv_heads * (self.key_dim + self.value_dim)


def shape_of(path: Path, config: Mapping[str, Any]) -> Shape:
    """The sizes that the config of a language model says.

    `config` is what `modelfiles.text_config` gives, `path` the model's directory.
    Raises `Refused` for a config of something else.
    """
    layers = _int(config, *_LAYERS)
    hidden = _int(config, *_HIDDEN)
    if not layers or not hidden:
        what = "says neither how many layers the model has nor how wide they are"
        hint = "this is not the config of a language model"
        raise Refused([Problem(what, where=str(path / "config.json"), hint=hint)])
    heads = _int(config, "num_attention_heads", "n_head", "n_heads", "num_heads")
    kv_heads = _int(config, "num_key_value_heads", "n_kv_heads", "num_kv_heads")
    if config.get("multi_query"):
        kv_heads = kv_heads or 1
    kv_heads = kv_heads or heads
    head_dim = _int(config, "head_dim") or (hidden // heads if heads else 0)
    kind = str(config.get("model_type"))
    key_dim, value_dim, latent = head_dim, head_dim, 0
    if rank := _int(config, "kv_lora_rank"):
        rope = _int(config, "qk_rope_head_dim")
        if kind in _LATENT_AS_HEADS:
            key_dim = _int(config, "qk_nope_head_dim") + rope
            value_dim = _int(config, "v_head_dim") or key_dim
            kv_heads = heads
        else:
            # Some keep the keys of an index beside the latent, and keep them twice.
            latent = rank + rope + 2 * _int(config, "index_head_dim")
    full, sliding = _layer_kinds(config, layers, kind)
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        inner=_int(config, "intermediate_size", "n_inner", "ffn_dim"),
        vocab=_int(config, "vocab_size"),
        full_layers=full,
        sliding_layers=sliding,
        window=_int(config, "sliding_window", "attention_chunk_size"),
        state_values=(layers - full - sliding) * _state_values(config),
        latent=latent,
    )


def _layer_kinds(config: Mapping[str, Any], layers: int, kind: str) -> tuple[int, int]:
    """How many layers keep all tokens, and how many a window of them."""
    if kind in _STATELESS:
        return 0, 0
    if kind in _ALWAYS_FULL:
        return layers, 0
    window = _int(config, "sliding_window", "attention_chunk_size")
    for key in ("layer_types", "layers_block_type", "block_types"):
        if isinstance(types := config.get(key), list) and types:
            names = [str(types[i % len(types)]) for i in range(layers)]
            return _count(names)
    if isinstance(pattern := config.get("hybrid_override_pattern"), str):
        return pattern.count("*"), 0
    linear = config.get("linear_attn_config")
    if isinstance(linear, dict) and isinstance(linear.get("full_attn_layers"), list):
        return len(linear["full_attn_layers"]), 0
    if isinstance(indices := config.get("full_attn_idxs"), list):
        return len(indices), 0
    if every := _int(config, "full_attention_interval"):
        return layers // every, 0
    if every := _int(config, "attn_layer_period"):
        offset = _int(config, "attn_layer_offset")
        return sum(i % every == offset for i in range(layers)), 0
    pattern = config.get("sliding_window_pattern") or _PATTERNS.get(kind)
    if window and isinstance(pattern, str) and pattern:
        return _count([pattern[i % len(pattern)] for i in range(layers)])
    if window and isinstance(pattern, int) and pattern > 0:
        return layers // pattern, layers - layers // pattern
    return layers, 0


def _count(names: list[str]) -> tuple[int, int]:
    full = sum(name in _FULL for name in names)
    return full, sum(name in _SLIDING for name in names)


def _state_values(config: Mapping[str, Any]) -> int:
    """Values of the recurrent state of one layer, 0 where none is known."""
    if heads := _int(config, "linear_num_value_heads"):
        key, value = "linear_key_head_dim", "linear_value_head_dim"
        return heads * _int(config, key) * _int(config, value)
    state = _int(config, "ssm_state_size", "mamba_d_state", "state_size")
    if heads := _int(config, "mamba_num_heads", "mamba_n_heads"):
        return heads * _int(config, "mamba_head_dim", "mamba_d_head") * state
    expand = _int(config, "mamba_expand", "expand") or 2
    return expand * _int(config, "hidden_size", "d_model") * state


def _int(config: Mapping[str, Any], *names: str) -> int:
    """The first of these keys that holds a positive number, else 0."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
