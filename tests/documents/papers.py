"""Models on paper: the config and the weights' headers of well-known models.

Pages show what `--check-config` says of them. The files of weights have their real size
and hold nothing, so they take no room on the disk.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROUP = 64
"""Weights that share a scale and an offset, in models quantised by MLX."""


@dataclass(frozen=True)
class Paper:
    """The sizes of a llama that are quantised to `bits`."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    trained: int
    tied: bool
    bits: int = 4


PAPERS = (
    Paper(
        "Llama-3.2-1B-Instruct-4bit", 16, 2048, 32, 8, 64, 8192, 128256, 131072, True
    ),
    Paper(
        "Llama-3.1-8B-Instruct-4bit", 32, 4096, 32, 8, 128, 14336, 128256, 131072, False
    ),
)


def write(paper: Paper, folder: Path) -> None:
    """Write the model's folder below `folder`."""
    path = folder / paper.name
    path.mkdir(parents=True)
    config = {
        "model_type": "llama",
        "hidden_size": paper.hidden,
        "num_hidden_layers": paper.layers,
        "num_attention_heads": paper.heads,
        "num_key_value_heads": paper.kv_heads,
        "head_dim": paper.head_dim,
        "intermediate_size": paper.inner,
        "vocab_size": paper.vocab,
        "max_position_embeddings": paper.trained,
        "tie_word_embeddings": paper.tied,
        "quantization": {"group_size": GROUP, "bits": paper.bits},
    }
    (path / "config.json").write_text(json.dumps(config))
    header, size = _header(paper)
    text = json.dumps(header).encode()
    with (path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)


def _header(paper: Paper) -> tuple[dict[str, Any], int]:
    header: dict[str, Any] = {}
    end = 0
    for name, (rows, columns) in _matrices(paper).items():
        parts = {
            "weight": ("U32", columns * paper.bits // 32, 4),
            "scales": ("BF16", columns // GROUP, 2),
            "biases": ("BF16", columns // GROUP, 2),
        }
        for part, (dtype, width, nbytes) in parts.items():
            begin, end = end, end + rows * width * nbytes
            header[f"{name}.{part}"] = {
                "dtype": dtype,
                "shape": [rows, width],
                "data_offsets": [begin, end],
            }
    return header, end


def _matrices(paper: Paper) -> dict[str, tuple[int, int]]:
    hidden, inner = paper.hidden, paper.inner
    queries, keys = paper.heads * paper.head_dim, paper.kv_heads * paper.head_dim
    found = {"model.embed_tokens": (paper.vocab, hidden)}
    for i in range(paper.layers):
        layer = f"model.layers.{i}"
        found |= {
            f"{layer}.self_attn.q_proj": (queries, hidden),
            f"{layer}.self_attn.k_proj": (keys, hidden),
            f"{layer}.self_attn.v_proj": (keys, hidden),
            f"{layer}.self_attn.o_proj": (hidden, queries),
            f"{layer}.mlp.gate_proj": (inner, hidden),
            f"{layer}.mlp.up_proj": (inner, hidden),
            f"{layer}.mlp.down_proj": (hidden, inner),
        }
    if not paper.tied:
        found["lm_head"] = (paper.vocab, hidden)
    return found
