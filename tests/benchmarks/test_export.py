from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
from mlx_lm import utils

from benchmarks import clients, export
from benchmarks.clients import Prompts
from mlxceld.engine.messages import ModelSource
from mlxceld.engine.model import load_model
from tests import tiny


def both(path: Path) -> tuple[mx.array, mx.array]:
    """The logits of both loaders for the same text."""
    ours = load_model(
        ModelSource(path=str(path)),
        device="cpu",
        dequantize="never",
        progress=lambda *_: None,
    )
    peer, wrapper = utils.load(str(path))
    text = Prompts(clients.words_of(path / "tokenizer.json", 64)).make(9).text
    ids = ours.text.encode([text], add_special=True)
    assert len(ids) == 9
    assert wrapper.encode(text) == ids
    assert wrapper.decode(ids).strip() == ours.text.decode(ids).strip() == text.strip()
    assert wrapper.eos_token_ids == set(ours.text.eos_ids)
    batch = mx.array([ids])
    return ours.model(batch), peer(batch)


def test_both_sides_load_a_random_model_of_4_bits(tmp_path: Path) -> None:
    export.random_model("tiny", "4bit", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["quantization"]["bits"] == 4
    assert config["max_position_embeddings"] == 131072
    ours, peer = both(tmp_path)
    assert ours.shape == (1, 9, 1024)
    assert mx.array_equal(ours, peer)


def test_every_token_of_a_made_up_vocabulary_gives_text() -> None:
    tokenizer = export.made_up(1024)
    assert tokenizer.get_vocab_size() == 1024
    texts = [tokenizer.decode([token]) for token in range(257, 1024)]
    assert len(set(texts)) == 1024 - 257
    assert all(len(text.strip()) == 4 and text.strip().isalpha() for text in texts)
    # Other text falls into bytes: nothing is unknown.
    assert len(tokenizer.encode("é!").ids) == 3


def test_a_gguf_file_becomes_float32_with_its_own_vocabulary(tmp_path: Path) -> None:
    file = tiny.tiny_gguf(tmp_path / "tiny.gguf")
    out = tmp_path / "out"
    out.mkdir()
    export.from_gguf(file, out)
    weights = mx.load(str(out / "model.safetensors"))
    assert {array.dtype for array in weights.values()} == {mx.float32}
    ours, peer = both(out)
    assert mx.array_equal(ours, peer)


def test_no_answer_ends_by_itself(tmp_path: Path) -> None:
    """No control token has the name of an end that a server may know."""
    file = tiny.tiny_gguf(tmp_path / "tiny.gguf")
    out = tmp_path / "out"
    out.mkdir()
    export.from_gguf(file, out)
    vocabulary = json.loads((out / "tokenizer.json").read_text())["model"]["vocab"]
    assert not {"<|endoftext|>", "<|im_end|>"} & vocabulary.keys()
    assert json.loads((out / "tokenizer_config.json").read_text())["eos_token"] == (
        export.END
    )
