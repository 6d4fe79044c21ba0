"""Loads a llama-architecture GGUF file into mlx-lm's llama model.

MLX reads the tensors and keeps 4 and 8 bit ones packed; what is left is to check the
file before native code sees it, to give the tensors mlx-lm's names, and to say in
mlx-lm's words what the metadata says in llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# isort: off
from mlxceld.engine import blas

blas.load_blas()  # before MLX, or not at all

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
# isort: on

from mlxceld.geometry import check_gguf  # noqa: E402
from mlxceld.ggufheader import Header, read_header  # noqa: E402
from mlxceld.problems import Problem, Refused  # noqa: E402

GROUP = 32
"""Values that share a scale, in all GGUF types that MLX keeps packed."""

FILE_TYPES: Mapping[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    32: "BF16",
}
"""Names of `general.file_type`, as far as the engine reads such files."""

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"


class FactoredRope(nn.Module):
    """Rotary embedding whose frequencies are divided by factors from the file.

    Llama 3.1 and its kin store their long-context scaling this way.
    """

    def __init__(self, base: float, factors: mx.array) -> None:
        super().__init__()
        self._dims = 2 * factors.size
        exponents = mx.arange(0, self._dims, 2, dtype=mx.float32) / self._dims
        self._freqs = base**exponents * factors.astype(mx.float32)

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        """Rotate `x` [..., length, dims] from position `offset` on."""
        return mx.fast.rope(
            x,
            self._dims,
            traditional=True,
            base=None,
            scale=1.0,
            offset=offset,
            freqs=self._freqs,
        )


def open_gguf(path: Path, *, vocabulary: bool = True) -> Header:
    """The header of a GGUF file that the engine can run; else `Refused`.

    Without `vocabulary` the long arrays are left out, which take most of the time.
    """
    header = read_header(path, arrays=vocabulary)
    check_gguf(path, header)
    return header


def build_model(path: Path, header: Header) -> nn.Module:
    """The model in `path`, with its weights as the file holds them.

    Matrices stay packed where MLX can keep them so; everything else becomes float16.
    Raises `Refused` when tensors are missing, unknown or of a wrong shape.
    """
    from mlxceld.engine import attention

    attention.install()  # before the first model module
    from mlx_lm.models import llama

    config = llama_config(path, header)
    try:
        tensors: Any = mx.load(str(path))
    except (RuntimeError, ValueError) as error:
        raise _refused(path, f"cannot be read: {error}") from None
    factors = tensors.pop(_ROPE_FACTORS, None)
    weights = {}
    for name, array in tensors.items():
        if array.dtype in (mx.float32, mx.bfloat16):
            array = array.astype(mx.float16)
        weights[model_name(path, name)] = array
    config["tie_word_embeddings"] = "lm_head.weight" not in weights
    config["attention_bias"] = "model.layers.0.self_attn.q_proj.bias" in weights
    config["mlp_bias"] = "model.layers.0.mlp.up_proj.bias" in weights
    model = llama.Model(llama.ModelArgs.from_dict(config))
    kinds = {t.name.removesuffix(".weight"): t.kind for t in header.tensors}
    packed = {
        model_name(path, f"{name}.weight").removesuffix(".weight"): kind
        for name, kind in kinds.items()
        if f"{name}.scales" in tensors
    }

    def how(name: str, module: nn.Module) -> bool | dict[str, Any]:
        if name not in packed:
            return False
        return {"group_size": GROUP, "bits": 8 if packed[name] == "Q8_0" else 4}

    nn.quantize(model, class_predicate=how)
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise _refused(path, f"does not fit its own header: {error}") from None
    if factors is not None:
        for layer in model.layers:
            layer.self_attn.rope = FactoredRope(config["rope_theta"], factors)
    model.eval()
    return model


def llama_config(path: Path, header: Header) -> dict[str, Any]:
    """The metadata as arguments of mlx-lm's llama model.

    llama.cpp stores queries and keys permuted, so that the rotation works on
    neighbouring values: mlx-lm calls that `rope_traditional`.
    """
    fields = header.metadata

    def need(name: str) -> Any:
        value = fields.get(f"llama.{name}")
        if isinstance(value, list) and value and len(set(value)) == 1:
            value = value[0]
        if not isinstance(value, int | float) or value <= 0:
            raise _refused(path, f"has no usable `llama.{name}`: {value!r}")
        return value

    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    if "token_embd.weight" not in shapes:
        raise _refused(path, "has no tensor token_embd.weight")
    hidden, heads = need("embedding_length"), need("attention.head_count")
    head_dim = fields.get("llama.attention.key_length") or hidden // heads
    value_dim = fields.get("llama.attention.value_length") or head_dim
    rotated = fields.get("llama.rope.dimension_count") or head_dim
    if not head_dim == value_dim == rotated:
        raise _refused(
            path,
            f"keys of {head_dim}, values of {value_dim} and {rotated} rotated values "
            "are not supported together",
        )
    kv_heads = heads
    if "llama.attention.head_count_kv" in fields:
        kv_heads = need("attention.head_count_kv")
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": need("block_count"),
        "intermediate_size": need("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "rms_norm_eps": need("attention.layer_norm_rms_epsilon"),
        "vocab_size": shapes["token_embd.weight"][0],
        "max_position_embeddings": need("context_length"),
        "rope_theta": fields.get("llama.rope.freq_base", 10000.0),
        "rope_traditional": True,
        "rope_scaling": _rope_scaling(path, fields),
    }


def model_name(path: Path, name: str) -> str:
    """mlx-lm's name of a tensor, from its name in the file."""
    base, _, part = name.rpartition(".")
    if base in _OUTER:
        return f"{_OUTER[base]}.{part}"
    block, _, inner = base.partition(".")
    index, _, inner = inner.partition(".")
    if block == "blk" and index.isdigit() and inner in _INNER:
        return f"model.layers.{index}.{_INNER[inner]}.{part}"
    raise _refused(path, f"has a tensor that a llama model does not know: {name}")


def _rope_scaling(path: Path, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = fields.get("llama.rope.scaling.type", "none")
    factor = fields.get("llama.rope.scaling.factor") or fields.get(
        "llama.rope.scale_linear"
    )
    if kind == "linear" or (kind == "none" and factor):
        return {"type": "linear", "factor": factor or 1.0}
    if kind != "none":
        raise _refused(path, f"rope scaling `{kind}` is not supported")
    return None


def _refused(path: Path, what: str) -> Refused:
    return Refused(
        [Problem(what, where=str(path), hint="use the same model in MLX's format")]
    )
