"""Estimates from a model's files, against sums made by hand."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlxceld.geometry import read_geometry
from mlxceld.pacing import PACINGS
from mlxceld.problems import Refused
from tests import ggufwriter, tiny


def _model(path: Path, config: dict[str, Any], half: bool = True) -> Path:
    """A directory with this config and 1000 values of weights."""
    kind = np.float16 if half else np.float32
    tiny.write_safetensors(path / "model.safetensors", {"w": np.zeros(1000, kind)})
    (path / "config.json").write_text(json.dumps(config))
    return path


def _kv(path: Path, config: dict[str, Any]) -> int:
    return read_geometry(_model(path, config), float32=False).kv_bytes_per_token


LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 12,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "vocab_size": 1000,
    "intermediate_size": 512,
}


def _refusal(path: Path) -> str:
    with pytest.raises(Refused) as caught:
        read_geometry(path, float32=False)
    return str(caught.value)


def test_keys_and_values_of_all_layers_are_counted(tmp_path: Path) -> None:
    geometry = read_geometry(_model(tmp_path, LLAMA), float32=False)
    # 12 layers x 2 heads x 32 values x keys and values x 2 bytes
    assert geometry.kv_bytes_per_token == 12 * 2 * 32 * 2 * 2
    assert geometry.n_ctx_train == 4096
    assert geometry.weight_bytes == 2000
    assert geometry.fixed_bytes_per_slot == 0
    assert geometry.measured is False


def test_in_float32_everything_has_four_bytes(tmp_path: Path) -> None:
    geometry = read_geometry(_model(tmp_path, LLAMA), float32=True)
    assert geometry.kv_bytes_per_token == 12 * 2 * 32 * 2 * 4
    assert geometry.weight_bytes == 4000


def test_a_float32_model_computes_in_float32(tmp_path: Path) -> None:
    geometry = read_geometry(_model(tmp_path, LLAMA, half=False), float32=False)
    assert geometry.kv_bytes_per_token == 12 * 2 * 32 * 2 * 4


@pytest.mark.parametrize(
    ("more", "full"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"] * 6}, 6),
        ({"layer_types": ["linear_attention"] * 9 + ["full_attention"] * 3}, 3),
        ({"full_attention_interval": 4}, 3),
        ({"sliding_window_pattern": 6, "sliding_window": 512}, 2),
        ({"sliding_window_pattern": "LLLG", "sliding_window": 512}, 3),
        ({"hybrid_override_pattern": "M-M*M-M*M-M-"}, 2),
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, 1),
        ({"full_attn_idxs": [2, 5, 8]}, 3),
        ({"linear_attn_config": {"full_attn_layers": [4, 8, 12]}}, 3),
        ({"model_type": "mamba2"}, 0),
        ({"model_type": "gemma2", "layer_types": ["sliding_attention"] * 12}, 12),
        ({"sliding_window": 512}, 12),
        ({"model_type": "gemma3_text", "sliding_window": 512}, 2),
    ],
)
def test_only_layers_that_keep_all_tokens_grow_with_the_text(
    tmp_path: Path, more: dict[str, Any], full: int
) -> None:
    assert _kv(tmp_path, LLAMA | more) == full * 2 * 32 * 2 * 2


def test_windows_and_states_are_a_fixed_cost_of_a_slot(tmp_path: Path) -> None:
    sliding = {
        "layer_types": ["full_attention"] + ["sliding_attention"] * 11,
        "sliding_window": 100,
    }
    geometry = read_geometry(_model(tmp_path, LLAMA | sliding), float32=False)
    assert geometry.fixed_bytes_per_slot == 11 * 100 * 2 * 32 * 2 * 2
    linear = {
        "full_attention_interval": 4,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 16,
    }
    geometry = read_geometry(_model(tmp_path, LLAMA | linear), float32=False)
    assert geometry.fixed_bytes_per_slot == 9 * 4 * 8 * 16 * 4


def test_latent_attention_caches_the_latent_and_the_rotated_part(
    tmp_path: Path,
) -> None:
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    config = LLAMA | latent | {"v_head_dim": 128, "num_key_value_heads": 8}
    assert _kv(tmp_path, config | {"model_type": "deepseek_v3"}) == 12 * 576 * 2
    indexed = config | {"model_type": "deepseek_v32", "index_head_dim": 128}
    assert _kv(tmp_path, indexed) == 12 * (576 + 256) * 2
    # These expand it into heads before they cache it.
    expanded = 12 * 8 * (128 + 64 + 128) * 2
    assert _kv(tmp_path, config | {"model_type": "minicpm3"}) == expanded


def test_the_language_model_inside_a_multimodal_one_counts(tmp_path: Path) -> None:
    nested = {"model_type": "gemma3", "text_config": LLAMA | {"head_dim": 64}}
    geometry = read_geometry(_model(tmp_path, nested), float32=False)
    assert geometry.n_ctx_train == 4096
    assert geometry.kv_bytes_per_token == 12 * 2 * 64 * 2 * 2


def test_old_names_of_the_dimensions_are_known(tmp_path: Path) -> None:
    gpt2 = {"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 4}
    assert _kv(tmp_path, gpt2 | {"n_positions": 1024}) == 4 * 4 * 16 * 2 * 2


def test_packed_weights_count_as_what_they_hold(tmp_path: Path) -> None:
    packed = read_geometry(tiny.tiny_model_dir(tmp_path / "q", bits=4), float32=True)
    plain = read_geometry(tiny.tiny_model_dir(tmp_path / "f"), float32=True)
    layer = 128 + 192 * 64 + 384 * 64
    assert plain.weight_bytes == 4 * (2 * 320 * 64 + 3 * layer + 64)
    assert packed.weight_bytes == plain.weight_bytes


def test_a_gguf_file_gives_the_same_figures(tmp_path: Path) -> None:
    path = tiny.tiny_gguf(tmp_path / "m.gguf", kind="Q4_0")
    geometry = read_geometry(path, float32=True)
    layer = 128 + 192 * 64 + 384 * 64
    assert geometry.weight_bytes == 4 * (2 * 320 * 64 + 3 * layer + 64)
    assert geometry.kv_bytes_per_token == 3 * 2 * 16 * 2 * 4
    assert geometry.n_ctx_train == 2048
    packed = read_geometry(path, float32=False)
    matrices = 2 * 320 * 64 + 3 * (layer - 128)
    # 4 bits a value and a float16 scale and bias for 32; the norms in float16
    assert packed.weight_bytes == matrices * 20 // 32 + 2 * (3 * 128 + 64)
    assert packed.kv_bytes_per_token == 3 * 2 * 16 * 2 * 2


@pytest.mark.parametrize(
    ("kind", "float32", "chunk", "per_cell"),
    [
        # A layer makes 4608 values of a token, see test_working.py.
        ("", True, 10 * 4608 * 4, 10 * (8 * 4 + 1)),
        ("", False, 2 * (9 + PACINGS["cuda"].grain) * 4608 * 2 + (64 << 20), 0),
        ("cpu", False, 10 * 4608 * 2, 10 * (8 * 2 + 1)),
        ("metal", False, 2 * 10 * 4608 * 2, 0),
    ],
)
def test_the_working_memory_is_that_of_the_device(
    kind: str, float32: bool, chunk: int, per_cell: int, tmp_path: Path
) -> None:
    """Where it is not said, float32 is on the CPU and the rest on CUDA."""
    path = _model(tmp_path, LLAMA)
    found = read_geometry(path, float32=float32, chunk=10, kind=kind)
    assert (found.work_bytes, found.work_bytes_per_cell) == (chunk, per_cell)
    assert found.work_bytes_per_slot > 0


@pytest.mark.parametrize(
    ("types", "float32", "per_head"),
    [
        (("f16", "f16"), False, 32 * 2 + 32 * 2),
        (("f32", "bf16"), False, 32 * 4 + 32 * 2),
        (("q8_0", "auto"), False, (32 + 2 * 2) + 32 * 2),
        (("q8_0", "q8_0"), False, 2 * (32 + 2 * 2)),
        (("q4_0", "q4_0"), False, 2 * (16 + 2 * 2)),
        (("q8_0", "q4_0"), True, (32 + 2 * 4) + (16 + 2 * 4)),
    ],
)
def test_cache_types_count_with_their_scales(
    types: tuple[str, str], float32: bool, per_head: int, tmp_path: Path
) -> None:
    path = _model(tmp_path, LLAMA)
    found = read_geometry(path, float32=float32, cache_types=types)
    # 12 layers x 2 heads of 32 values
    assert found.kv_bytes_per_token == 12 * 2 * per_head


def test_a_latent_counts_as_keys_in_cache_types(tmp_path: Path) -> None:
    latent = {"kv_lora_rank": 48, "qk_rope_head_dim": 16, "model_type": "deepseek_v3"}
    path = _model(tmp_path, LLAMA | latent)
    found = read_geometry(path, float32=False, cache_types=("q8_0", "f16"))
    assert found.kv_bytes_per_token == 12 * (64 + 2 * 2 * 2)


def test_windows_keep_their_type(tmp_path: Path) -> None:
    sliding = {
        "model_type": "gemma3_text",
        "sliding_window": 64,
        "sliding_window_pattern": 3,
    }
    path = _model(tmp_path, LLAMA | sliding)
    plain = read_geometry(path, float32=False)
    packed = read_geometry(path, float32=False, cache_types=("q4_0", "q4_0"))
    assert packed.fixed_bytes_per_slot == plain.fixed_bytes_per_slot > 0


@pytest.mark.parametrize(
    ("float32", "per_token"),
    [
        # 2 heads x 32 values x keys and values, of one layer
        (True, 2 * 32 * 2 * 4),
        # and of two
        (False, 2 * 2 * 32 * 2 * 2),
    ],
)
def test_unpacking_layers_is_part_of_the_working_memory(
    float32: bool, per_token: int, tmp_path: Path
) -> None:
    path = _model(tmp_path, LLAMA)
    plain = read_geometry(path, float32=float32)
    packed = read_geometry(path, float32=float32, cache_types=("auto", "q8_0"))
    assert packed.work_bytes_per_cell - plain.work_bytes_per_cell == per_token
    assert packed.work_bytes == plain.work_bytes


def test_a_larger_chunk_needs_more_working_memory(tmp_path: Path) -> None:
    path = _model(tmp_path, LLAMA)
    small = read_geometry(path, float32=True, chunk=128)
    large = read_geometry(path, float32=True, chunk=512)
    assert large.work_bytes == 4 * small.work_bytes
    assert large.work_bytes_per_cell == 4 * small.work_bytes_per_cell
    assert large.work_bytes_per_slot == small.work_bytes_per_slot


def test_what_is_wrong_with_a_directory_is_said(tmp_path: Path) -> None:
    assert "there is no such file or directory" in _refusal(tmp_path / "nothing")
    assert "there is no config.json in it" in _refusal(tmp_path)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "give the GGUF file itself" in _refusal(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": ')
    assert "is not valid JSON" in _refusal(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert "has no `model_type`" in _refusal(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert "there are no weights" in _refusal(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"short")
    assert "is no whole safetensors file" in _refusal(tmp_path)
    _model(tmp_path, LLAMA)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    assert "the file is cut" in _refusal(tmp_path)
    _model(tmp_path, {"model_type": "clip"})
    assert "neither how many layers" in _refusal(tmp_path)


def test_gguf_files_that_the_engine_cannot_run_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tiny.tiny_gguf(path, metadata={"general.architecture": "bert"})
    assert "GGUF architecture `bert` is not supported" in _refusal(path)
    tiny.tiny_gguf(path, metadata={"split.count": ggufwriter.U32(3)})
    assert "split over several GGUF files" in _refusal(path)
    tiny.tiny_gguf(path, metadata={"llama.expert_count": ggufwriter.U32(8)})
    assert "experts" in _refusal(path)
    # Type 12 is Q4_K, blocks of 256 values and 144 bytes.
    raw = tiny.tiny_gguf(path, num_hidden_layers=1, hidden_size=256).read_bytes()
    name = struct.pack("<Q", 13) + b"output.weight"
    at = raw.index(name) + len(name) + 4 + 16
    path.write_bytes(raw[:at] + b"\x0c\0\0\0" + raw[at + 4 :])
    assert "output.weight is stored as Q4_K" in _refusal(path)
    path.write_bytes(raw[:2000])
    assert "the file is cut or damaged" in _refusal(path)


def test_numbers_of_a_gguf_file_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tiny.tiny_gguf(path, metadata={"llama.block_count": "many"})
    assert "llama.block_count is 'many'" in _refusal(path)
    tiny.tiny_gguf(path, metadata={"llama.attention.head_count": ggufwriter.U32(0)})
    assert read_geometry(path, float32=True).n_ctx_train == 2048


@pytest.mark.parametrize(
    "header",
    [
        b'{"w": {"dtype": "F16", "data_offsets": [0, 2]}}',
        b'{"w": {"shape": [1], "data_offsets": [0, 2]}}',
        b'{"w": {"dtype": "F16", "shape": ["x"], "data_offsets": [0, 2]}}',
        b'{"w": 3}',
        b"[]",
    ],
)
def test_a_safetensors_header_that_is_none_is_refused(
    tmp_path: Path, header: bytes
) -> None:
    _model(tmp_path, LLAMA)
    raw = struct.pack("<Q", len(header)) + header + bytes(8)
    (tmp_path / "model.safetensors").write_bytes(raw)
    assert "is no whole safetensors file" in _refusal(tmp_path)


def test_it_works_without_mlx(tmp_path: Path) -> None:
    path = tiny.tiny_gguf(tmp_path / "m.gguf")
    code = (
        "import sys; sys.modules['mlx'] = None\n"
        "from pathlib import Path; from mlxceld.geometry import read_geometry\n"
        f"print(read_geometry(Path({str(path)!r}), float32=True).kv_bytes_per_token)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "768"


def test_the_demo_model_is_estimated_in_no_time(demo_model: Path) -> None:
    geometry = read_geometry(demo_model, float32=True)
    assert geometry.kv_bytes_per_token == 30 * 3 * 64 * 2 * 4
    assert geometry.n_ctx_train == 8192
    assert geometry.weight_bytes == 134515008 * 4


def test_a_path_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    assert "cannot be read: File name too long" in _refusal(tmp_path / ("x" * 300))
    file = tmp_path / "model.gguf"
    file.touch()
    assert "cannot be read: Not a directory" in _refusal(file / "inside")


@pytest.mark.parametrize(
    ("layers", "hidden"),
    [("num_transformer_layers", "model_dim"), ("num_layers", "hidden_dim")],
    ids=["openelm", "afm7"],
)
def test_sizes_are_found_under_the_names_of_other_families(
    tmp_path: Path, layers: str, hidden: str
) -> None:
    config = {"model_type": "x", layers: 3, hidden: 64, "num_attention_heads": 4}
    # 3 layers x 4 heads x 16 values x keys and values x 2 bytes
    assert _kv(tmp_path, config) == 3 * 4 * 16 * 2 * 2
