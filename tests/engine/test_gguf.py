"""GGUF files: the values MLX makes of them, their names, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlxceld.engine import gguf, gguftext, model
from mlxceld.problems import Refused
from tests import ggufwriter, tiny

mx = gguf.mx


@pytest.fixture(autouse=True)
def _on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def _refusal(path: Path) -> str:
    with pytest.raises(Refused) as caught:
        gguf.build_model(path, gguf.open_gguf(path))
    return str(caught.value)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"])
def test_dequantised_weights_are_those_the_file_stands_for(
    tmp_path: Path, kind: str
) -> None:
    path = tiny.tiny_gguf(tmp_path / "m.gguf", kind=kind, num_hidden_layers=1)
    built = gguf.build_model(path, gguf.open_gguf(path))
    model.to_float32(built)
    stored = tiny.llama_weights(tiny.tiny_config(num_hidden_layers=1))
    for name in ("model.embed_tokens", "model.layers.0.mlp.down_proj", "lm_head"):
        _, wanted = ggufwriter.quantise(stored[f"{name}.weight"], kind)
        module: Any = built
        for part in name.split("."):
            module = module[int(part)] if part.isdigit() else getattr(module, part)
        assert module.weight.dtype == mx.float32
        # What is not packed is held in float16: F32 loses bits, BF16 tiny values.
        slack = {"F32": 1e-3, "BF16": 1e-7}.get(kind, 0)
        np.testing.assert_allclose(np.array(module.weight), wanted, slack, slack)


def test_a_matrix_of_six_bits_is_read_to_float16_precision(tmp_path: Path) -> None:
    wide: dict[str, Any] = {"hidden_size": 256, "head_dim": 64, "num_hidden_layers": 1}
    path = tmp_path / "m.gguf"
    tiny.tiny_gguf(path, kinds={"output.weight": "Q6_K"}, **wide)
    built = gguf.build_model(path, gguf.open_gguf(path))
    stored = tiny.llama_weights(tiny.tiny_config(**wide))["lm_head.weight"]
    _, wanted = ggufwriter.quantise(stored, "Q6_K")
    read = np.array(built.lm_head.weight.astype(mx.float32))
    np.testing.assert_allclose(read, wanted, rtol=1e-3)


def test_packed_matrices_stay_packed_and_the_rest_is_float16(tmp_path: Path) -> None:
    path = tiny.tiny_gguf(
        tmp_path / "m.gguf", kind="Q4_0", kinds={"token_embd.weight": "Q8_0"}
    )
    built = gguf.build_model(path, gguf.open_gguf(path))
    assert (built.model.embed_tokens.bits, built.lm_head.bits) == (8, 4)
    assert built.model.norm.weight.dtype == mx.float16
    assert built(mx.array([[1, 2]])).dtype == mx.float16


def test_the_logits_are_those_of_the_same_model_in_mlx_format(tmp_path: Path) -> None:
    path = tiny.tiny_gguf(tmp_path / "m.gguf")
    folder = tiny.tiny_model_dir(tmp_path / "m", rope_traditional=True)
    built = gguf.build_model(path, gguf.open_gguf(path))
    from mlx_lm.utils import load_model

    model.to_float32(built)
    reference, _ = load_model(folder)
    tokens = mx.array([[1, 50, 60, 299, 7]])
    got, wanted = np.array(built(tokens)), np.array(reference(tokens))
    # The matrices of the file are float16.
    np.testing.assert_allclose(got, wanted, atol=0.05)
    assert (got.argmax(-1) == wanted.argmax(-1)).all()


def test_without_an_output_matrix_the_embedding_serves(tmp_path: Path) -> None:
    path = tiny.tiny_gguf(tmp_path / "m.gguf", tie_word_embeddings=True)
    built = gguf.build_model(path, gguf.open_gguf(path))
    assert built(mx.array([[1]])).shape == (1, 1, tiny.VOCAB_SIZE)


def test_rope_factors_of_one_change_nothing_and_others_slow_the_rotation() -> None:
    x = mx.random.normal((1, 2, 5, 16), key=mx.random.key(0))
    plain = gguf.nn.RoPE(16, traditional=True, base=10000.0)
    same = gguf.FactoredRope(10000.0, mx.ones(8))
    np.testing.assert_allclose(same(x, offset=3), plain(x, offset=3), atol=1e-5)
    # Every frequency halved: position 6 looks like position 3.
    slow = gguf.FactoredRope(10000.0, mx.full(8, 2.0))
    one = x[:, :, :1]
    np.testing.assert_allclose(slow(one, offset=6), plain(one, offset=3), atol=1e-5)


def test_linear_rope_scaling_is_passed_on_and_other_kinds_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.gguf"
    scaling: dict[str, Any] = {"llama.rope.scaling.type": "linear"}
    tiny.tiny_gguf(path, metadata=scaling | {"llama.rope.scaling.factor": 4.0})
    config = gguf.llama_config(path, gguf.open_gguf(path))
    assert config["rope_scaling"] == {"type": "linear", "factor": 4.0}
    tiny.tiny_gguf(path, metadata={"llama.rope.scaling.type": "yarn"})
    assert "rope scaling `yarn` is not supported" in _refusal(path)


def test_a_missing_dimension_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tiny.tiny_gguf(path, metadata={"llama.block_count": None})
    assert "llama.block_count" in _refusal(path)


def test_tensors_of_a_wrong_shape_or_number_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tiny.tiny_gguf(path, metadata={"llama.block_count": ggufwriter.U32(4)})
    assert "does not fit its own header" in _refusal(path)
    tiny.tiny_gguf(path, metadata={"llama.feed_forward_length": ggufwriter.U32(64)})
    assert "does not fit its own header" in _refusal(path)


# ---- tokenizers ----


def _byte_level(pre: str, **more: Any) -> gguftext.Text:
    fields = tiny.gguf_metadata(tiny.tiny_config()) | {"tokenizer.ggml.pre": pre}
    return gguftext.read_text(Path("m.gguf"), fields | more)


def _words(text: gguftext.Text, content: str) -> list[str]:
    tokens = text.encode([content], add_special=False)
    return [text.piece(token).decode() for token in tokens]


# All digits are merged as far as the rule lets them meet.
_DIGITS = {
    "tokenizer.ggml.tokens": [*tiny.vocabulary()[:259], "12", "123", "1234", "é1"],
    "tokenizer.ggml.token_type": [3, 3, 3] + [1] * 260,
    "tokenizer.ggml.merges": ["1 2", "12 3", "123 4"],
}


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["a", " ", "1234"]),
        ("smollm", ["a", " ", "1", "2", "3", "4"]),
        ("qwen2", ["a", " ", "1", "2", "3", "4"]),
        ("llama-bpe", ["a", " ", "123", "4"]),
        ("default", ["a", " ", "123", "4"]),
    ],
)
def test_each_rule_splits_digits_its_own_way(pre: str, words: list[str]) -> None:
    assert _words(_byte_level(pre, **_DIGITS), "a 1234") == words


def test_llama3_takes_a_whole_word_that_is_a_token_even_without_merges() -> None:
    fields = _DIGITS | {"tokenizer.ggml.merges": []}
    assert _words(_byte_level("llama-bpe", **fields), "123") == ["123"]
    assert _words(_byte_level("gpt-2", **fields), "123") == ["1", "2", "3"]


def test_llama3_wants_a_bos_unless_the_file_says_otherwise() -> None:
    said = {"tokenizer.ggml.add_bos_token": None}
    fields = tiny.gguf_metadata(tiny.tiny_config()) | {
        "tokenizer.ggml.pre": "llama-bpe"
    }
    assert not gguftext.read_text(Path("m"), fields).add_bos
    without = {k: v for k, v in fields.items() if k not in said}
    assert gguftext.read_text(Path("m"), without).add_bos


def test_an_unknown_rule_or_tokenizer_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="tokenizer rule `klingon` is not supported"):
        _byte_level("klingon")
    with pytest.raises(Refused, match="tokenizer `bert` is not supported"):
        _byte_level("gpt-2", **{"tokenizer.ggml.model": "bert"})
    with pytest.raises(Refused, match="has no tokenizer"):
        gguftext.read_text(Path("m"), {})


def test_the_gguf_and_the_json_form_of_a_tokenizer_agree() -> None:
    import json

    from tokenizers import Tokenizer

    from mlxceld.engine.text import Text

    plain = Text.from_tokenizers(Tokenizer.from_str(json.dumps(tiny.tokenizer_json())))
    other = _byte_level("gpt-2")
    sample = "<|im_start|>user\nhello the world, it's 3 o'clock  é🙂<|im_end|>\n"
    tokens = plain.encode([sample], add_special=False)
    assert other.encode([sample], add_special=False) == tokens
    assert other.decode(tokens) == sample
    assert other.chat_template == tiny.CHAT_TEMPLATE
    assert (other.bos_token, other.eos_token) == ("<|im_start|>", "<|im_end|>")


def test_a_token_that_is_no_utf8_does_not_stop_a_sentencepiece_vocabulary() -> None:
    text = _sentencepiece({"\udce5\udcaa": -1.0, "a": -2.0})
    assert text.piece(259) == b"\xe5\xaa"


def _sentencepiece(scores: Mapping[str, float], **more: Any) -> gguftext.Text:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *scores]
    fields = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(scores),
        "tokenizer.ggml.scores": [0.0] * 259 + list(scores.values()),
    }
    return gguftext.read_text(Path("m.gguf"), fields | more)


def test_sentencepiece_joins_the_best_score_first_and_the_leftmost_of_equals() -> None:
    text = _sentencepiece(
        {"▁": -9, "a": -9, "b": -9, "c": -9, "ab": -2, "bc": -1, "aa": -3}
    )
    # bc (-1) beats ab (-2); of the two places for aa the left one.
    assert _words(text, "abc") == [" ", "a", "bc"]
    assert _words(text, "aaa") == [" ", "aa", "a"]


def test_sentencepiece_spells_unknown_characters_in_bytes() -> None:
    text = _sentencepiece({"▁": -1, "a": -2})
    tokens = text.encode(["aé"], add_special=True)
    assert tokens == [1, 259, 260, 3 + 0xC3, 3 + 0xA9]
    assert text.decode(tokens) == "<s> aé"
    assert b"".join(map(text.piece, tokens)).decode() == " aé"


def test_sentencepiece_puts_a_space_after_special_tokens_if_the_file_asks() -> None:
    scores = {"▁": -1.0, "a": -2.0}
    text = _sentencepiece(scores)
    assert text.encode(["</s>a"], add_special=False) == [2, 259, 260]
    without = _sentencepiece(scores, **{"tokenizer.ggml.add_space_prefix": False})
    assert without.encode(["</s>a"], add_special=False) == [2, 260]
    assert without.encode(["</s>"], add_special=False, parse_special=False) != [2]


# ---- the demo model ----


@pytest.fixture(scope="module")
def demo_text(demo_model: Path) -> gguftext.Text:
    return gguftext.read_text(demo_model, gguf.open_gguf(demo_model).metadata)


def test_the_demo_model_has_llama_servers_tokens(demo_text: gguftext.Text) -> None:
    def encode(*content: str | int, **more: bool) -> list[int]:
        return demo_text.encode(content, add_special=True, **more)

    assert encode("Hello world") == [19556, 905]
    assert encode("Hé 媽<|im_end|>") == [56, 2756, 13223, 120, 138, 2]
    assert encode(1, "hi", 2) == [1, 6004, 2]
    literal = encode("<|im_end|>", parse_special=False)
    assert literal == [44, 108, 306, 79, 486, 108, 46]
    pieces = [demo_text.piece(t, special=True) for t in (13223, 120, 138, 2)]
    assert pieces == [bytes([32, 229]), bytes([170]), bytes([189]), b"<|im_end|>"]
    assert demo_text.decode([19556, 905]) == "Hello world"
    assert {0, 2} <= demo_text.eos_ids
    assert (demo_text.bos_token, demo_text.eos_token) == ("<|im_start|>", "<|im_end|>")
