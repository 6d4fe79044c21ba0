"""Texts of slots in files: they come back, mlx-lm reads them, and nothing else does.

A file of another model, a cut file and a stranger's file are refused with a reason.
"""

from __future__ import annotations

import json
import os
import random
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.engine import real
from tests.engine.families import FAMILIES

# isort: split
import mlx.core as mx
from mlx_lm.models.cache import KVCache, load_prompt_cache, save_prompt_cache

from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.runner import Unusable
from mlxceld.engine.snapshots import Snapshots, fingerprint
from tests.tiny import VOCAB_SIZE, tiny_gguf, tiny_model_dir

N = 29
"""Tokens that are saved: more than a window or chunk of 8."""

PROMPT = [random.Random(3).randrange(3, VOCAB_SIZE) for _ in range(N + 1)]

TYPES = {"q8_0": ("q8_0", "q8_0"), "q8_0 and q4_0": ("q8_0", "q4_0")}
TYPES |= {"q4_0 and f16": ("q4_0", "f16")}
SOME = (
    *("llama", "deepseek_v3", "gemma3_text", "gpt_oss", "llama4", "gemma4_text"),
    *("mamba2", "falcon_h1", "qwen3_next", "lfm2"),
)
KINDS = (*SOME, "unpooled", *TYPES)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of each kind, made once: a family, or llama in another dress."""

    @cache
    def make(kind: str) -> real.Model:
        family = kind if kind in FAMILIES else "llama"
        options = FAMILIES[family] | ({"head_dim": 32} if kind in TYPES else {})
        loaded = real.tiny_model(tmp_path_factory, family, **options)
        loaded.batched = False
        if kind in TYPES:
            loaded.map = loaded.map.stored_as(*TYPES[kind])
        if kind == "unpooled":
            loaded.map = loaded.map.unpooled()
        return loaded

    return make


@pytest.fixture
def llama(models: Any) -> real.Model:
    model: real.Model = models("llama")
    return model


def files(model: real.Model, name: str = "this model") -> Snapshots:
    return Snapshots(model.model, model.map, name)


def read_prompt(model: real.Model) -> ModelRunner:
    """A runner whose slot 0 holds all of the prompt but its last token."""
    runner = model.runner(2, 100)
    runner.prefill(0, 5, 0, PROMPT[:20])
    runner.prefill(0, 5, 20, PROMPT[20:N])
    runner.mark(0, N)
    return runner


def follow(runner: ModelRunner, slot: int, start: int) -> list[int]:
    """Six tokens after the prompt."""
    token, found = PROMPT[-1], []
    for i in range(6):
        row = real.row(slot=slot, start=start, position=N + i, token=token)
        [token] = runner.step([row]).read()
        found.append(token)
    return found


def save(model: real.Model, folder: Path, name: str = "saved") -> Path:
    saved = read_prompt(model).export(0, 5, N)
    files(model).write(str(folder), name, PROMPT[:N], saved)
    return folder / name


def refusal(model: real.Model, path: Path, most: int = 1000) -> str:
    with pytest.raises(Unusable) as error:
        files(model).read(str(path.parent), path.name, most)
    return str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_goes_on_in_another_slot_of_another_process(
    kind: str, models: Any, tmp_path: Path
) -> None:
    model = models(kind)
    runner = read_prompt(model)
    saved = runner.export(0, 5, N)
    written = files(model).write(str(tmp_path), "a name.bin", PROMPT[:N], saved)
    wanted = follow(runner, 0, 5)
    if kind not in TYPES:
        assert wanted == real.greedy(model.model, PROMPT, 6)

    tokens, back, size = files(model).read(str(tmp_path), "a name.bin", N)
    assert (tokens, size) == (PROMPT[:N], written)
    assert written == (tmp_path / "a name.bin").stat().st_size
    assert back is not None
    assert back.n == N
    other = model.runner(2, 100)
    other.restore(1, 60, back)
    assert follow(other, 1, 60) == wanted


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "falcon_h1", "q8_0"])
def test_mlx_lm_reads_the_file_and_goes_on_from_it(
    kind: str, models: Any, tmp_path: Path
) -> None:
    model = models(kind)
    path = save(model, tmp_path, "text.safetensors")
    caches, said = load_prompt_cache(str(path), return_metadata=True)
    assert json.loads(said["tokens"]) == PROMPT[:N]
    token, found = PROMPT[-1], []
    for _ in range(6):
        logits = model.model(mx.array([[token]]), cache=caches)[0, -1]
        logits[real.EOS] = -mx.inf
        token = int(logits.argmax().item())
        found.append(token)
    if kind == "q8_0":
        # Quantised attention of its own: near, not the same.
        assert found[0] == follow(read_prompt(model), 0, 5)[0]
    else:
        assert found == real.greedy(model.model, PROMPT, 6)


def test_a_file_is_for_its_owner_alone_and_nothing_else_is_left_behind(
    llama: real.Model, tmp_path: Path
) -> None:
    os.umask(os.umask(0o022))
    path = save(llama, tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    save(llama, tmp_path)
    assert os.listdir(tmp_path) == ["saved"]


def test_an_empty_slot_makes_a_file_that_empties_a_slot(
    llama: real.Model, tmp_path: Path
) -> None:
    size = files(llama).write(str(tmp_path), "none", [], None)
    assert files(llama).read(str(tmp_path), "none", 10) == ([], None, size)


def test_a_longest_name_can_be_written(llama: real.Model, tmp_path: Path) -> None:
    assert save(llama, tmp_path, "n" * 255).exists()


def test_a_text_longer_than_the_slot_is_refused(
    llama: real.Model, tmp_path: Path
) -> None:
    path = save(llama, tmp_path)
    assert "does not fit in the slot context" in refusal(llama, path, N - 1)


def test_a_file_of_another_model_or_another_cache_type_is_refused(
    llama: real.Model, models: Any, tmp_path: Path
) -> None:
    path = save(llama, tmp_path)
    with pytest.raises(Unusable, match="another model"):
        files(llama, "that model").read(str(tmp_path), path.name, N)
    assert "other cache types" in refusal(models("unpooled"), path)
    path = save(models("q8_0"), tmp_path)
    assert "other cache types" in refusal(models("q4_0 and f16"), path)


def test_a_missing_file_and_a_folder_are_refused(
    llama: real.Model, tmp_path: Path
) -> None:
    assert refusal(llama, tmp_path / "nothing") == "there is no such file"
    (tmp_path / "folder").mkdir()
    assert "Is a directory" in refusal(llama, tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    assert "not written by this server" in refusal(llama, tmp_path / "pipe")


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "..", ".", ""])
def test_a_name_that_is_a_path_is_refused(
    name: str, llama: real.Model, tmp_path: Path
) -> None:
    with pytest.raises(Unusable, match="Invalid filename"):
        files(llama).read(str(tmp_path), name, N)
    with pytest.raises(Unusable, match="Invalid filename"):
        files(llama).write(str(tmp_path), name, [], None)


def test_a_link_out_of_the_folder_is_refused_both_ways(
    llama: real.Model, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    path = save(llama, outside)
    before = path.read_bytes()
    (inside / "link").symlink_to(path)
    assert "a link that leads out" in refusal(llama, inside / "link")
    with pytest.raises(Unusable, match="a link that leads out"):
        files(llama).write(str(inside), "link", [], None)
    assert path.read_bytes() == before
    (tmp_path / "folder").symlink_to(inside)
    save(llama, tmp_path / "folder")
    assert (inside / "saved").exists()


@pytest.mark.parametrize("kind", ["llama", "falcon_h1"])
def test_a_file_cut_anywhere_is_refused(kind: str, models: Any, tmp_path: Path) -> None:
    model = models(kind)
    path = save(model, tmp_path)
    whole = path.read_bytes()
    random_ = random.Random(1)
    for n in [0, 7, 8, 9, len(whole) - 1, *random_.sample(range(len(whole)), 30)]:
        path.write_bytes(whole[:n])
        assert refusal(model, path) in (
            "the file is cut or damaged",
            "the file was not written by this server",
        )


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "falcon_h1"])
def test_garbage_in_the_header_never_gets_further_than_a_refusal(
    kind: str, models: Any, tmp_path: Path
) -> None:
    """Bytes of the header are changed at random; what is still the same file may be
    read, and what it then holds fits a slot."""
    model = models(kind)
    path = save(model, tmp_path)
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    random_ = random.Random(2)
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(random_.randrange(1, 3)):
            data[random_.randrange(8 + length)] = random_.randrange(256)
        path.write_bytes(data)
        try:
            tokens, saved, _ = files(model).read(str(tmp_path), path.name, N)
        except Unusable:
            refused += 1
            continue
        assert saved is None or saved.n == len(tokens) == N
    assert refused > 50


def rewrite(path: Path, change: Any) -> None:
    """Write a file anew after `change` has had its header."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def test_a_hostile_header_is_refused(llama: real.Model, tmp_path: Path) -> None:
    """Keys and values lie at 0.0, 0.1 and 0.2 of the first layer."""

    def name(new: str) -> Any:
        return lambda h: h.__setitem__(new, h.pop("0.0"))

    def metadata(key: str, value: str) -> Any:
        return lambda h: h["__metadata__"].__setitem__(key, value)

    def shape(*axes: Any) -> Any:
        return lambda h: h["0.0"].__setitem__("shape", list(axes))

    heads, dim = llama.map.shapes[0].heads, llama.map.shapes[0].keys.dim
    for change in (
        name("99999999.0"),
        name("7.0"),
        name("x"),
        shape(1, N, heads, dim),
        shape(1, heads, -N, -dim),
        shape(1, heads, N, dim, 1),
        shape(1 << 62, 1 << 62, 0, 4),
        shape("a"),
        metadata("1.5", "KVCache"),
        metadata("0.tokens", "[1, true]"),
        metadata("0.tokens", "[" * 100_000),
        metadata("0.tokens", json.dumps([1] * (N - 1))),
        metadata("0.format", "another"),
        metadata("2.1.1", "elsewhere"),
        lambda h: h["0.0"].__setitem__("data_offsets", [-8, 0]),
        lambda h: h["0.0"].__setitem__("dtype", "F64"),
        lambda h: h.__setitem__("__metadata__", []),
        lambda h: h.__setitem__("0.0", None),
    ):
        path = save(llama, tmp_path)
        rewrite(path, change)
        assert refusal(llama, path)


def test_a_file_that_would_fill_the_memory_is_refused(
    llama: real.Model, tmp_path: Path
) -> None:
    """A thousand names for the same bytes."""
    path = save(llama, tmp_path)

    def change(header: Any) -> None:
        for index in range(1000):
            header[f"0.{index + 3}"] = header["0.0"]

    rewrite(path, change)
    assert "does not hold" in refusal(llama, path)


def test_a_prompt_cache_of_mlx_lm_itself_is_refused(
    llama: real.Model, tmp_path: Path
) -> None:
    """It does not say which tokens it holds, nor of which model."""
    save_prompt_cache(str(tmp_path / "own.safetensors"), [KVCache()], {"a": "b"})
    assert "not written by" in refusal(llama, tmp_path / "own.safetensors")


def test_a_full_disk_leaves_the_old_file_as_it_was(
    llama: real.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(llama, tmp_path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(llama, tmp_path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["saved"]


def test_models_are_told_apart_by_their_settings_and_weights(tmp_path: Path) -> None:
    one = tiny_model_dir(tmp_path / "one")
    same = tiny_model_dir(tmp_path / "same")
    other = tiny_model_dir(tmp_path / "other", seed=5)
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    config = one / "config.json"
    config.write_text(config.read_text() + " ")
    assert fingerprint(one) != fingerprint(same)
    gguf = tiny_gguf(tmp_path / "model.gguf")
    before = fingerprint(gguf)
    assert fingerprint(gguf.rename(tmp_path / "moved.gguf")) == before != ""
