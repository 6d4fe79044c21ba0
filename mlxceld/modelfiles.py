"""Reads what a model directory says of itself: config.json and the weights' headers.

Both the estimate before loading and the loader look here, so that a directory that is
incomplete or damaged is refused with the same words by `--check-config` and by the
engine.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlxceld.problems import Problem, Refused


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a model directory. Raises `Refused` when it is no model's."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        ggufs = sorted(path.glob("*.gguf"))
        hint = "give a GGUF file or a directory with config.json and weights"
        if ggufs:
            hint = f"give the GGUF file itself: `{ggufs[0]}`"
        raise _refused(path, "there is no config.json in it", hint) from None
    except OSError as error:
        raise _refused(file, f"cannot be read: {error.strerror}", "") from None
    except (ValueError, RecursionError) as error:
        raise _refused(
            file, f"is not valid JSON: {error}", "get the model again"
        ) from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise _refused(
            file, "has no `model_type`", "this is not the config of a language model"
        )
    return config


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the language model inside a multimodal one, or the config."""
    nested = config.get("text_config") or config.get("llm_config")
    if not isinstance(nested, dict):
        return dict(config)
    return dict(config) | nested


def trained_length(config: Mapping[str, Any]) -> int:
    """Tokens the model was trained on at once, 0 where its config does not say."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = config.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return 0


def weight_files(path: Path) -> list[Path]:
    """The weight files of a model directory, in order.

    Raises `Refused` when there are none, or when the index names others.
    """
    files = sorted(path.glob("model*.safetensors"))
    missing = _named_in_index(path) - {file.name for file in files}
    if files and not missing:
        return files
    what = "there are no weights (model*.safetensors)"
    if missing:
        what = f"weights are missing: {', '.join(sorted(missing))}"
    raise _refused(path, what, "the directory is incomplete: get the model again")


def _named_in_index(path: Path) -> set[str]:
    try:
        text = (path / "model.safetensors.index.json").read_text(encoding="utf-8")
        return {str(name) for name in json.loads(text)["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def read_safetensors_header(file: Path) -> dict[str, Any]:
    """Names, types and shapes of a safetensors file.

    Raises `Refused` when the file is cut or is none.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as data:
            (length,) = struct.unpack("<Q", data.read(8))
            if length > size - 8:
                raise ValueError("its header is longer than the file")
            header = json.loads(data.read(length))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = map(int, entry["data_offsets"])
            if begin > end or not isinstance(entry["dtype"], str):
                raise ValueError(f"tensor {name} makes no sense")
            [int(axis) for axis in entry["shape"]]
        end = max((int(e["data_offsets"][1]) for e in header.values()), default=0)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refused(
            file, f"is no whole safetensors file: {error}", "get the file again"
        ) from None
    except OSError as error:
        raise _refused(file, f"cannot be read: {error.strerror}", "") from None
    if 8 + length + end > size:
        raise _refused(
            file,
            f"the file is cut: it has {size} of {8 + length + end} bytes",
            "get the file again",
        )
    return dict(header)


def _refused(path: Path, what: str, hint: str) -> Refused:
    return Refused([Problem(what, where=str(path), hint=hint)])
