"""Loading: what a model's weights become, what is told of it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlxceld.engine import model
from mlxceld.engine.messages import ModelSource
from mlxceld.engine.model import Loaded, load_model
from mlxceld.problems import Refused, Unreachable
from tests import tiny

mx = model.mx


def _load(path: Path | str, dequantize: str = "auto", **more: Any) -> Loaded:
    loaded = load_model(
        ModelSource(path=str(path)),
        device=more.pop("device", "cpu"),
        dequantize=dequantize,
        progress=more.pop("progress", lambda *_: None),
    )
    loaded.vocabulary.result()
    return loaded


def _refusal(path: Path | str, **more: Any) -> str:
    with pytest.raises(Refused) as caught:
        _load(path, **more)
    return str(caught.value)


def test_a_directory_gives_a_model_its_text_and_what_the_api_tells(
    tmp_path: Path,
) -> None:
    loaded = _load(tiny.tiny_model_dir(tmp_path, max_position_embeddings=1024))
    info = loaded.info
    assert (info.n_vocab, info.n_ctx_train, info.n_embd) == (320, 1024, 64)
    assert (info.architecture, info.ftype, info.device) == ("llama", "F32", "cpu")
    assert (info.bos_token, info.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert info.add_bos is False
    assert info.chat_template == tiny.CHAT_TEMPLATE
    # Embedding and head 2 x 320 x 64; a layer 2 norms, q, k, v, o and three of the
    # MLP: 2 x 64 + (64 + 32 + 32 + 64) x 64 + 3 x 128 x 64; and the last norm.
    layer = 128 + 192 * 64 + 384 * 64
    assert info.n_params == 2 * 320 * 64 + 3 * layer + 64
    assert info.size == info.n_params * 4
    assert loaded.dtype == mx.float32
    assert loaded.text.encode(["<|im_end|>"], add_special=True) == [2]
    assert loaded.model(mx.array([[1, 2, 3]])).shape == (1, 3, 320)


def test_quantised_weights_become_the_floats_they_stand_for(tmp_path: Path) -> None:
    path = tiny.tiny_model_dir(tmp_path, bits=4)
    loaded = _load(path)
    assert (loaded.dtype, loaded.info.ftype) == (mx.float32, "4bit")
    original = tiny.llama_weights(tiny.tiny_config())
    for name, module in (
        ("lm_head", loaded.model.lm_head),
        ("model.embed_tokens", loaded.model.model.embed_tokens),
    ):
        assert not hasattr(module, "bits")
        groups = original[f"{name}.weight"].reshape(320, 2, 32)
        low = groups.min(-1, keepdims=True)
        scale = (groups.max(-1, keepdims=True) - low) / 15
        wanted = np.rint((groups - low) / scale) * scale + low
        np.testing.assert_allclose(
            np.array(module.weight), wanted.reshape(320, 64), atol=1e-5
        )


@pytest.mark.parametrize("dequantize", ["off", "on"])
def test_loading_holds_the_weights_once(tmp_path: Path, dequantize: str) -> None:
    """MLX reads tensors into its own buffers; packed ones go as they are unpacked."""
    path = tiny.tiny_model_dir(
        tmp_path,
        bits=8,
        num_hidden_layers=12,
        hidden_size=256,
        intermediate_size=1024,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    loaded = _load(path, dequantize)
    assert loaded.bare.size > 10 << 20
    assert mx.get_peak_memory() - before < 1.15 * loaded.bare.size


def test_dequantising_can_be_left_off_and_changes_no_logits(tmp_path: Path) -> None:
    path = tiny.tiny_model_dir(tmp_path, bits=8)
    packed, plain = _load(path, "off"), _load(path, "on")
    assert packed.model.lm_head.bits == 8
    assert packed.info.n_params == plain.info.n_params
    assert packed.info.size < plain.info.size / 2
    tokens = mx.array([[1, 40, 50, 60]])
    np.testing.assert_allclose(packed.model(tokens), plain.model(tokens), atol=1e-3)


def test_tied_embeddings_work_dequantised(tmp_path: Path) -> None:
    loaded = _load(tiny.tiny_model_dir(tmp_path, bits=4, tie_word_embeddings=True))
    hidden = loaded.model.model(mx.array([[1, 2]]))
    weight = loaded.model.model.embed_tokens.weight
    logits = loaded.model(mx.array([[1, 2]]))
    np.testing.assert_allclose(logits, hidden @ weight.T, atol=1e-4)


def test_a_gguf_file_is_told_by_its_kind(tmp_path: Path) -> None:
    loaded = _load(tiny.tiny_gguf(tmp_path / "m.gguf", kind="Q4_1"))
    assert (loaded.info.ftype, loaded.info.architecture) == ("Q4_1", "llama")
    assert (loaded.info.n_vocab, loaded.info.n_ctx_train) == (320, 2048)
    assert (loaded.info.n_embd, loaded.dtype) == (64, mx.float32)


def test_progress_counts_the_bytes_of_the_weights(tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []

    def progress(doing: str, done: int, total: int) -> None:
        said.append((doing, done, total))

    loaded = _load(tiny.tiny_model_dir(tmp_path), progress=progress)
    weights = [(done, total) for doing, done, total in said if "weights" in doing]
    assert weights == sorted(weights)
    assert weights[-1] == (loaded.info.size, loaded.info.size)


def test_all_ends_of_generation_config_count(tmp_path: Path) -> None:
    path = tiny.tiny_model_dir(tmp_path)
    (path / "generation_config.json").write_text('{"eos_token_id": [2, 9]}')
    assert {0, 2, 9} <= _load(path).text.eos_ids


def test_another_model_type_loads_the_same_way(tmp_path: Path) -> None:
    loaded = _load(tiny.tiny_model_dir(tmp_path, model_type="qwen3"))
    assert loaded.info.architecture == "qwen3"
    assert loaded.model(mx.array([[1, 2]])).shape == (1, 2, 320)


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert "there is no such file or directory" in _refusal(tmp_path / "nothing")


def test_no_model_at_all_is_refused() -> None:
    assert "no model is given" in _refusal("")


def _config(**changes: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | changes))

    return change


def _cut(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def _no_weights(path: Path) -> None:
    (path / "model.safetensors").unlink()


def _no_tokenizer(path: Path) -> None:
    (path / "tokenizer.json").unlink()
    (path / "tokenizer_config.json").unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_config(model_type="moonshine"), "model type `moonshine` is not supported"),
        (_config(num_hidden_layers=4), "its weights do not fit its config.json"),
        (_config(intermediate_size=64), "its weights do not fit its config.json"),
        (_config(model_file="evil.py"), "Python code of its own"),
        (_cut, "the file is cut"),
        (_no_weights, "there are no weights"),
        (_no_tokenizer, "its tokenizer cannot be loaded"),
    ],
)
def test_what_is_wrong_with_a_directory_is_said(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    path = tiny.tiny_model_dir(tmp_path)
    damage(path)
    text = _refusal(path)
    assert words in text
    assert "hint: " in text


def test_weights_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    path = tiny.tiny_model_dir(tmp_path)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "weights are missing: model-2.safetensors" in _refusal(path)


def test_a_repository_that_was_never_fetched_is_refused_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    source = ModelSource(hf_repo="nobody/nothing-of-this-name", offline=True)
    with pytest.raises(Refused, match="nobody/nothing-of-this-name.*cannot be had"):
        load_model(source, device="cpu", dequantize="auto", progress=lambda *_: None)


def test_a_repository_that_cannot_be_fetched_now_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetch(*_args: Any, **_options: Any) -> str:
        raise OSError("the network is down")

    monkeypatch.setattr("mlx_lm.utils.snapshot_download", fetch)
    source = ModelSource(hf_repo="owner/name")
    with pytest.raises(Unreachable, match="cannot be had: the network is down"):
        load_model(source, device="cpu", dequantize="auto", progress=lambda *_: None)


@pytest.mark.skipif(mx.is_available(mx.gpu), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tiny.tiny_model_dir(tmp_path)
    assert "device is gpu and MLX sees none" in _refusal(path, device="gpu")


def test_the_demo_model_continues_as_llama_server_does(demo_model: Path) -> None:
    from mlx_lm.models.cache import make_prompt_cache

    loaded = _load(demo_model)
    assert (loaded.info.ftype, loaded.info.n_vocab) == ("Q4_1", 49152)
    assert loaded.info.n_params == 134515008
    cache = make_prompt_cache(loaded.model)
    prompt = loaded.text.encode(["The capital of France is"], add_special=True)
    tokens, generated = mx.array([prompt]), []
    for _ in range(3):
        logits = loaded.model(tokens, cache=cache)
        generated.append(int(mx.argmax(logits[0, -1]).item()))
        tokens = mx.array([[generated[-1]]])
    assert generated == [7042, 30, 198]
    assert [loaded.text.piece(t) for t in generated] == [b" Paris", b".", b"\n"]
