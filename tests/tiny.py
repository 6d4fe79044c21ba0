"""A tiny random model, in MLX's layout and as GGUF, so that tests need no download.

Nothing here imports MLX for the default (llama) model: a test decides itself when
MLX is loaded, and the attention hook must be in place before mlx-lm's models are.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests import ggufwriter as gguf

Floats = npt.NDArray[np.float32]

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TEXT, IM_START, IM_END = 0, 1, 2
MERGES = (
    "h e|t h|th e|Ġ t|Ġt he|l l|o r|i n|in g|a n|an d|Ġ a|Ġ w|Ġ s|e r|r e|o n|"
    "e n|Ġ o|Ġ c|Ġ b|Ġ f|Ġ p|o u|Ġ d|e d|i s|i t|a t|e s|Ġ m|Ġ n|Ġ h|Ġ l|o f|"
    "Ġ of|Ġt o|Ġ and|Ġ in|he ll|hell o|or l|Ġw orl|Ġworl d"
)
VOCAB_SIZE = 320
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes in byte-level BPE, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in plain}
    spare = 256
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(spare)
            spare += 1
    return [table[byte] for byte in range(256)]


def merges() -> list[tuple[str, str]]:
    """The merges, best first."""
    found: list[tuple[str, str]] = []
    known = set(byte_alphabet())
    for merge in MERGES.split("|"):
        left, right = merge.split(" ")
        assert {left, right} <= known - {left + right}, merge
        known.add(left + right)
        found.append((left, right))
    return found


def vocabulary() -> list[str]:
    """`VOCAB_SIZE` tokens: three special, 256 bytes, the merges, then unused ones."""
    tokens = [*SPECIAL, *byte_alphabet(), *(a + b for a, b in merges())]
    return tokens + [f"<|unused_{i}|>" for i in range(VOCAB_SIZE - len(tokens))]


def tokenizer_json() -> dict[str, Any]:
    """The same tokenizer as a Hugging Face tokenizer.json."""
    tokens = vocabulary()
    added = [t for t in tokens if t.startswith("<|")]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": tokens.index(token),
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in added
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": [list(pair) for pair in merges()],
        },
    }


def tiny_config(model_type: str = "llama", **overrides: Any) -> dict[str, Any]:
    """config.json of the tiny model."""
    config: dict[str, Any] = {
        "model_type": model_type,
        "architectures": ["LlamaForCausalLM"] if model_type == "llama" else [],
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": IM_START,
        "eos_token_id": IM_END,
    }
    return config | overrides


def llama_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, Floats]:
    """Random float32 weights under mlx-lm's names for a llama-like model.

    Rows have length about one, so that logits differ clearly from token to token.
    """
    rng = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q_dim = config["num_attention_heads"] * head_dim
    kv_dim = config["num_key_value_heads"] * head_dim

    def matrix(rows: int, columns: int) -> Floats:
        values = rng.standard_normal((rows, columns)) / math.sqrt(columns)
        return values.astype(np.float32)

    weights = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], hidden) * 8,
        "model.norm.weight": np.ones(hidden, np.float32),
    }
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        weights |= {
            f"{layer}.input_layernorm.weight": np.ones(hidden, np.float32),
            f"{layer}.post_attention_layernorm.weight": np.ones(hidden, np.float32),
            f"{layer}.self_attn.q_proj.weight": matrix(q_dim, hidden) * 2,
            f"{layer}.self_attn.k_proj.weight": matrix(kv_dim, hidden) * 2,
            f"{layer}.self_attn.v_proj.weight": matrix(kv_dim, hidden),
            f"{layer}.self_attn.o_proj.weight": matrix(hidden, q_dim),
            f"{layer}.mlp.gate_proj.weight": matrix(inner, hidden),
            f"{layer}.mlp.up_proj.weight": matrix(inner, hidden),
            f"{layer}.mlp.down_proj.weight": matrix(hidden, inner),
        }
    if not config.get("tie_word_embeddings", True):
        weights["lm_head.weight"] = matrix(config["vocab_size"], hidden) * 4
    return weights


def tiny_model_dir(
    where: Any,
    *,
    model_type: str = "llama",
    seed: int = 0,
    bits: int = 0,
    **overrides: Any,
) -> Path:
    """Write an MLX model directory and return it.

    `where` is a directory, or pytest's `tmp_path_factory`. `overrides` go into
    config.json; `bits` 4 or 8 stores quantised weights (groups of 32). A model type
    other than llama takes its parameters from mlx-lm's class for it.
    """
    path = Path(where.mktemp("tiny") if hasattr(where, "mktemp") else where)
    path.mkdir(parents=True, exist_ok=True)
    config = tiny_config(model_type, **overrides)
    weights: Mapping[str, Any]
    if model_type == "llama":
        weights = llama_weights(config, seed)
    else:
        weights = _weights_of_class(config, seed)
    if bits:
        config["quantization"] = {"group_size": 32, "bits": bits}
        weights = dict(_quantised(weights, bits))
    write_safetensors(path / "model.safetensors", weights)
    (path / "config.json").write_text(json.dumps(config, indent=1))
    (path / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    (path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": SPECIAL[IM_START],
                "eos_token": SPECIAL[IM_END],
                "add_bos_token": False,
                "clean_up_tokenization_spaces": False,
                "model_max_length": config["max_position_embeddings"],
                "chat_template": CHAT_TEMPLATE,
            }
        )
    )
    return path


def write_safetensors(
    path: Path, weights: Mapping[str, npt.NDArray[Any]], note: str = "mlx"
) -> None:
    """Write arrays of float16, float32 or uint32 as one safetensors file."""
    names = {"float16": "F16", "float32": "F32", "uint32": "U32"}
    header: dict[str, Any] = {"__metadata__": {"format": note}}
    offset = 0
    for name, array in weights.items():
        header[name] = {
            "dtype": names[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for array in weights.values():
            file.write(np.ascontiguousarray(array).tobytes())


def _quantised(
    weights: Mapping[str, Floats], bits: int
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """MLX's affine layout: packed uint32 words, scales and biases per group of 32."""
    for name, array in weights.items():
        if array.ndim != 2:
            yield name, array
            continue
        groups = array.reshape(array.shape[0], -1, 32)
        low = groups.min(-1)
        scale = (groups.max(-1) - low) / (2**bits - 1)
        codes = np.rint((groups - low[..., None]) / scale[..., None])
        codes = codes.astype(np.uint32).reshape(array.shape[0], -1, 32 // bits)
        shifts = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
        base = name.removesuffix(".weight")
        yield name, (codes << shifts).sum(-1, dtype=np.uint32)
        yield f"{base}.scales", scale.astype(np.float32)
        yield f"{base}.biases", low.astype(np.float32)


def _weights_of_class(config: Mapping[str, Any], seed: int) -> dict[str, Floats]:
    """Random weights for whatever parameters mlx-lm's class of this type has."""
    from mlxceld.engine import blas

    blas.load_blas()
    from mlxceld.engine import attention

    attention.install()
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    rng = np.random.default_rng(seed)
    model_class, args_class = _get_classes(dict(config))
    weights: dict[str, Floats] = {}
    with mx.stream(mx.cpu):
        model = model_class(args_class.from_dict(dict(config)))
        for name, array in tree_flatten(model.parameters()):
            if array.ndim < 2:
                weights[name] = np.array(array.astype(mx.float32))
                continue
            values = rng.standard_normal(array.shape) / math.sqrt(array.shape[-1])
            louder = 8 if "embed" in name else 1
            weights[name] = (values * louder).astype(np.float32)
    return weights


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """A tensor's name in a GGUF file, from its name in mlx-lm's llama."""
    base, suffix = name.rsplit(".", 1)
    if base.startswith("model.layers."):
        index, part = base.removeprefix("model.layers.").split(".", 1)
        return f"blk.{index}.{GGUF_NAMES[part]}.{suffix}"
    return f"{GGUF_NAMES[base]}.{suffix}"


def tiny_gguf(
    path: Path,
    *,
    kind: str = "F16",
    kinds: Mapping[str, str] | None = None,
    seed: int = 0,
    metadata: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Path:
    """Write the tiny llama as GGUF: matrices stored as `kind`, the rest as F32.

    `kinds` names other kinds for single tensors (F32, F16, Q4_0, Q4_1, Q8_0);
    `metadata` replaces entries of the header, or removes those that are None.
    """
    config = tiny_config(**overrides)
    tensors = []
    for name, array in llama_weights(config, seed).items():
        name = gguf_name(name)
        stored = (kinds or {}).get(name, kind if array.ndim == 2 else "F32")
        tensors.append((name, array, stored))
    fields = gguf_metadata(config, kind) | dict(metadata or {})
    gguf.write(path, {k: v for k, v in fields.items() if v is not None}, tensors)
    return path


def gguf_metadata(config: Mapping[str, Any], kind: str = "F16") -> dict[str, Any]:
    """The header of the tiny llama: its geometry, tokenizer and chat template."""
    tokens = vocabulary()
    return {
        "general.architecture": "llama",
        "general.name": "tiny",
        "general.file_type": gguf.U32(gguf.FILE_TYPES[kind]),
        "llama.context_length": gguf.U32(config["max_position_embeddings"]),
        "llama.embedding_length": gguf.U32(config["hidden_size"]),
        "llama.block_count": gguf.U32(config["num_hidden_layers"]),
        "llama.feed_forward_length": gguf.U32(config["intermediate_size"]),
        "llama.attention.head_count": gguf.U32(config["num_attention_heads"]),
        "llama.attention.head_count_kv": gguf.U32(config["num_key_value_heads"]),
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "llama.rope.freq_base": config["rope_theta"],
        "llama.rope.dimension_count": gguf.U32(config["head_dim"]),
        "llama.vocab_size": gguf.U32(config["vocab_size"]),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            gguf.I32(3 if t.startswith("<|") else 1) for t in tokens
        ],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges()],
        "tokenizer.ggml.bos_token_id": gguf.U32(IM_START),
        "tokenizer.ggml.eos_token_id": gguf.U32(IM_END),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
