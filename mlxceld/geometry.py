"""What the plan has to know of a model before it is loaded, from its files alone.

These are estimates: they serve `--check-config` and the migration report, and lower
an unset context before anything is loaded. A running daemon measures the same figures
on the loaded caches. Neither MLX nor the weights are touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from mlxceld import cachetypes
from mlxceld.ggufheader import Header, Skipped, read_header
from mlxceld.modelfiles import (
    read_config,
    read_safetensors_header,
    text_config,
    trained_length,
    weight_files,
)
from mlxceld.plan import Geometry
from mlxceld.problems import Problem, Refused
from mlxceld.shape import Shape, shape_of
from mlxceld.working import (
    growing_layers,
    work_bytes,
    work_bytes_per_cell,
    work_bytes_per_part,
    work_bytes_per_slot,
)

CHUNK = 512
"""Tokens of the largest prompt chunk, where nothing else is said."""

GGUF_ARCHITECTURES = ("llama",)
"""Values of `general.architecture` that the engine can run."""

GGUF_KINDS = frozenset({"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q6_K"})
"""Tensor types that the engine can read."""

_PACKED = {"Q4_0": (4, 32), "Q4_1": (4, 32), "Q8_0": (8, 32)}
"""GGUF tensor types that MLX keeps packed: bits of a value, values of a group."""


@dataclass(frozen=True, slots=True)
class _Run:
    """How the model is going to be run; see `read_geometry`."""

    float32: bool
    chunk: int
    cache_types: tuple[str, str]
    kind: str


def read_geometry(
    path: Path,
    *,
    float32: bool,
    chunk: int = CHUNK,
    cache_types: tuple[str, str] = (cachetypes.AUTO, cachetypes.AUTO),
    kind: str = "",
) -> Geometry:
    """Estimate the geometry of the model at `path`.

    `path` is a model directory with config.json, or a GGUF file. `float32` says that
    the weights will be dequantised to float32, as on the CPU; `chunk` is the number
    of prompt tokens read in one step, `cache_types` say how keys and values are stored
    (`cachetypes.TYPES`), `kind` what it runs on (a key of `pacing.PACINGS`; left out it
    goes by `float32`). Raises `Refused` for a path that is missing, files that are
    damaged, and models that the engine cannot run.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        what = "there is no such file or directory"
        if not isinstance(error, FileNotFoundError):
            what = f"cannot be read: {error.strerror}"
        hint = "give a GGUF file or a directory with config.json and weights"
        raise _refused(path, what, hint) from None
    run = _Run(float32, chunk, cache_types, kind or ("cpu" if float32 else "cuda"))
    if S_ISDIR(mode):
        return _of_directory(path, run)
    header = read_header(path)
    check_gguf(path, header)
    return _of_gguf(path, header, run)


def kv_bytes_per_token(
    shape: Shape,
    width: int,
    types: tuple[str, str] = (cachetypes.AUTO, cachetypes.AUTO),
) -> int:
    """Bytes of keys and values that one token takes, over all layers that keep it.

    A latent counts as keys.
    """
    layers = growing_layers(shape)
    key, value = (cachetypes.width(kind, width) for kind in types)
    if shape.latent:
        return round(layers * shape.latent * key)
    both = shape.key_dim * key + shape.value_dim * value
    return round(layers * shape.kv_heads * both)


def fixed_bytes_per_slot(shape: Shape, width: int) -> int:
    """Bytes of one slot that do not grow with its text: windows and states."""
    windows = shape.sliding_layers * shape.window * shape.token_values
    return round(windows * width) + shape.state_values * 4


def check_gguf(path: Path, header: Header) -> None:
    """Raises `Refused` for a sound GGUF file that the engine cannot run."""
    architecture = header.metadata.get("general.architecture")
    if architecture not in GGUF_ARCHITECTURES:
        raise _refused(
            path,
            f"GGUF architecture `{architecture}` is not supported, only "
            + ", ".join(f"`{name}`" for name in GGUF_ARCHITECTURES),
            "use the same model in MLX's format",
        )
    if header.metadata.get("split.count", 1) not in (0, 1):
        raise _refused(
            path,
            "the model is split over several GGUF files, which is not supported",
            "join them with `llama-gguf-split --merge`",
        )
    if header.metadata.get(f"{architecture}.expert_count", 0):
        raise _refused(
            path,
            "GGUF models with experts are not supported",
            "use the same model in MLX's format",
        )
    for tensor in header.tensors:
        if tensor.kind not in GGUF_KINDS:
            raise _refused(
                path,
                f"tensor {tensor.name} is stored as {tensor.kind}, which is not "
                "supported (" + ", ".join(sorted(GGUF_KINDS)) + " are)",
                "convert the model to Q8_0 or Q4_1",
            )


def _of_gguf(path: Path, header: Header, run: _Run) -> Geometry:
    fields = header.metadata
    arch = fields["general.architecture"]

    def field(name: str, default: float = 0) -> float:
        value = fields.get(f"{arch}.{name}", default)
        numbers = value if isinstance(value, list) else [value]
        if not all(isinstance(n, int | float) and isfinite(n) for n in numbers or [""]):
            hint = "the file is damaged: get it again"
            raise _refused(path, f"{arch}.{name} is {value!r}, no number", hint)
        # Some models give a number for each layer.
        return sum(numbers) / len(numbers)

    layers, hidden = int(field("block_count")), int(field("embedding_length"))
    heads = field("attention.head_count")
    kv_heads = field("attention.head_count_kv", heads)
    head_dim = int(hidden / heads) if heads else 0
    tokens = fields.get("tokenizer.ggml.tokens", ())
    if not isinstance(tokens, Skipped):
        tokens = Skipped(len(tokens) if isinstance(tokens, list) else 0)
    shape = Shape(
        layers=layers,
        hidden=hidden,
        heads=round(heads),
        kv_heads=kv_heads,
        key_dim=int(field("attention.key_length", head_dim)),
        value_dim=int(field("attention.value_length", head_dim)),
        inner=round(field("feed_forward_length")),
        vocab=tokens.length,
    )
    weights = sum(
        t.size * 4 if run.float32 else _loaded_bytes(t.kind, t.size)
        for t in header.tensors
    )
    trained = int(field("context_length")) or None
    return _geometry(shape, weights, trained, 4 if run.float32 else 2, run)


def _loaded_bytes(kind: str, values: int) -> int:
    """Bytes of a GGUF tensor as it is held: float16, or packed in groups that have a
    float16 scale and bias each."""
    if kind in _PACKED:
        bits, group = _PACKED[kind]
        return values * bits // 8 + values // group * 4
    return values * 2


def _of_directory(path: Path, run: _Run) -> Geometry:
    config = read_config(path)
    headers = [read_safetensors_header(file) for file in weight_files(path)]
    weights = sum(_weights(header, config, run.float32) for header in headers)
    text = text_config(config)
    width = 4 if run.float32 or _mostly_float32(headers) else 2
    shape = shape_of(path, text)
    return _geometry(shape, weights, trained_length(text) or None, width, run)


def _geometry(
    shape: Shape,
    weights: int,
    trained: int | None,
    width: int,
    run: _Run,
) -> Geometry:
    chunk, kind, types = run.chunk, run.kind, run.cache_types
    return Geometry(
        n_ctx_train=trained,
        kv_bytes_per_token=kv_bytes_per_token(shape, width, types),
        fixed_bytes_per_slot=fixed_bytes_per_slot(shape, width),
        weight_bytes=weights,
        work_bytes=work_bytes(shape, width, chunk=chunk, kind=kind),
        work_bytes_per_cell=work_bytes_per_cell(
            shape, width, chunk=chunk, kind=kind, types=types
        ),
        work_bytes_per_slot=work_bytes_per_slot(shape, width, kind=kind),
        work_bytes_per_part=work_bytes_per_part(shape, kind=kind),
    )


def _weights(
    header: Mapping[str, Any], config: Mapping[str, Any], float32: bool
) -> int:
    """Bytes that the tensors of one weight file take once they are loaded."""
    if float32:
        return _float32_bytes(header, config)
    return sum(_nbytes(entry) for entry in header.values())


def _mostly_float32(headers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the model computes in float32, by the type of most of its floats."""
    by_type: dict[str, int] = {}
    for header in headers:
        for entry in header.values():
            if entry["dtype"] in ("F32", "F16", "BF16"):
                count = by_type.get(entry["dtype"], 0)
                by_type[entry["dtype"]] = count + _values(entry["shape"])
    return bool(by_type) and max(by_type, key=by_type.__getitem__) == "F32"


def _float32_bytes(header: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """Bytes of a file's tensors as float32; packed words count as what they hold."""
    quantization = config.get("quantization") or config.get("quantization_config")
    if not isinstance(quantization, dict):
        quantization = {}
    total = 0
    for name, entry in header.items():
        base, _, part = name.rpartition(".")
        scales = header.get(f"{base}.scales")
        if scales is None:
            total += _values(entry["shape"]) * 4
        elif part == "weight":
            own = quantization.get(base)
            group = (own if isinstance(own, dict) else quantization).get(
                "group_size", 64
            )
            total += _values(scales["shape"]) * int(group) * 4
    return total


def _nbytes(entry: Mapping[str, Any]) -> int:
    begin, end = entry["data_offsets"]
    return int(end) - int(begin)


def _values(shape: list[int]) -> int:
    total = 1
    for axis in shape:
        total *= int(axis)
    return total


def _refused(path: Path, what: str, hint: str) -> Refused:
    return Refused([Problem(what, where=str(path), hint=hint)])
