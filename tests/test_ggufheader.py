"""The header reader believes no count and no length before it has checked it."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.geometry import read_geometry
from mlxceld.ggufheader import Skipped, Tensor, read_header
from mlxceld.problems import Refused
from tests import ggufwriter, tiny


def _refusal(path: Path) -> str:
    with pytest.raises(Refused) as caught:
        read_header(path)
    return str(caught.value)


def _start(path: Path, n_tensors: int, n_fields: int, rest: bytes = b"") -> Path:
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, n_tensors, n_fields) + rest)
    return path


def _field(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def test_fields_and_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tiny.tiny_gguf(tmp_path / "m.gguf", kind="Q4_1", num_hidden_layers=1)
    header = read_header(path)
    assert header.version == 3
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.attention.head_count_kv"] == 2
    assert header.metadata["llama.rope.freq_base"] == 10000.0
    assert header.metadata["tokenizer.ggml.add_bos_token"] is False
    assert header.metadata["tokenizer.ggml.tokens"][:2] == [
        "<|endoftext|>",
        "<|im_start|>",
    ]
    # 320 x 64 values in blocks of 32 values and 20 bytes.
    first = Tensor("token_embd.weight", (320, 64), "Q4_1", 0, 320 * 2 * 20)
    assert header.tensors[0] == first
    assert len(header.tensors) == 3 + 9
    assert header.data_offset % 32 == 0


def test_long_arrays_are_skipped_unless_they_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    words = [f"word {i}" for i in range(2000)]
    numbers = [ggufwriter.I32(i) for i in range(2000)]
    ggufwriter.write(path, {"words": words, "numbers": numbers, "after": "x"}, [])
    brief = read_header(path).metadata
    assert brief == {"words": Skipped(2000), "numbers": Skipped(2000), "after": "x"}
    whole = read_header(path, arrays=True).metadata
    assert whole == {"words": words, "numbers": list(range(2000)), "after": "x"}


def test_a_token_that_is_no_utf8_keeps_its_bytes(tmp_path: Path) -> None:
    value = struct.pack("<Q", 2) + b"\xe5\xaa"
    path = _start(tmp_path / "m.gguf", 0, 1, _field("k", 8, value) + bytes(32))
    text = read_header(path).metadata["k"]
    assert text.encode("utf-8", "surrogateescape") == b"\xe5\xaa"


def test_a_missing_file_an_empty_one_and_another_format_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.gguf"
    assert "there is no such file" in _refusal(path)
    path.write_bytes(b"")
    assert "the file is empty" in _refusal(path)
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    assert "begins with b'PK\\x03\\x04'" in _refusal(path)
    path.write_bytes(b"GG")
    assert "ends within its header" in _refusal(path)


def test_other_versions_and_byte_orders_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 1, 0, 0))
    assert "GGUF version 1 is not supported" in _refusal(path)
    path.write_bytes(struct.pack(">4sIQQ", b"GGUF", 3, 0, 0))
    assert "big-endian" in _refusal(path)


def test_counts_that_the_file_cannot_hold_are_absurd(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    assert "announces" in _refusal(_start(path, 0, 2**60))
    assert "announces" in _refusal(_start(path, 2**40, 0))
    many = struct.pack("<IQ", 8, 2**50)
    assert "announces" in _refusal(_start(path, 0, 1, _field("k", 9, many)))
    many = struct.pack("<IQ", 6, 2**50)
    assert "announces" in _refusal(_start(path, 0, 1, _field("k", 9, many)))
    long = struct.pack("<Q", 2**63)
    assert "ends within its header" in _refusal(
        _start(path, 0, 1, _field("k", 8, long))
    )


def test_arrays_in_arrays_end_somewhere(tmp_path: Path) -> None:
    deep = struct.pack("<IQ", 9, 1) * 100
    path = _start(tmp_path / "m.gguf", 0, 1, _field("k", 9, deep))
    assert "makes no sense" in _refusal(path)


def test_a_cut_file_names_the_tensor_and_what_is_missing(tmp_path: Path) -> None:
    path = tiny.tiny_gguf(tmp_path / "m.gguf", num_hidden_layers=1)
    path.write_bytes(path.read_bytes()[:-100])
    text = _refusal(path)
    assert "the file is cut: tensor output.weight ends 100 bytes after" in text
    assert "hint: " in text


def test_rows_must_be_whole_blocks(tmp_path: Path) -> None:
    name = struct.pack("<Q", 1) + b"t"
    entry = name + struct.pack("<IQIQ", 1, 48, 2, 0) + bytes(64)
    assert "not a multiple of 32" in _refusal(_start(tmp_path / "m", 1, 0, entry))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damage_is_refused_or_read_but_never_anything_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    source = folder / "whole.gguf"
    if not source.exists():
        tiny.tiny_gguf(source, num_hidden_layers=1)
    raw = bytearray(source.read_bytes())
    at = data.draw(st.integers(0, 8000))
    junk = data.draw(st.binary(min_size=1, max_size=8))
    raw[at : at + len(junk)] = junk
    damaged = folder / "damaged.gguf"
    damaged.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    for look in (read_header, lambda path: read_geometry(path, float32=True)):
        with contextlib.suppress(Refused):
            look(damaged)
