"""Reads mlx-lm's prompt-cache files array by array, without believing what they say.

mlx would map a whole file and build whatever lists its names ask for. Here nothing is
read before it is known that it fits, and nothing is built that is large by its name.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import mlx.core as mx
import numpy as np
from mlx.utils import tree_unflatten

from mlxceld.engine.runner import Unusable

_TYPES: dict[str, tuple[Any, Any]] = {
    "F16": (np.float16, None),
    "BF16": (np.uint16, mx.bfloat16),
    "F32": (np.float32, None),
    "I32": (np.int32, None),
    "U32": (np.uint32, None),
    "BOOL": (np.bool_, None),
}
"""Types of a file: numpy's, and what MLX makes of it where numpy has none."""

NOT_OURS = "the file was not written by this server"
CUT = "the file is cut or damaged"


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where an array lies in a file: bytes `begin` to `end` of it."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self, file: BinaryIO) -> mx.array:
        kind, seen_as = _TYPES[self.dtype]
        file.seek(self.begin)
        data = file.read(self.end - self.begin)
        array = mx.array(np.frombuffer(data, dtype=kind).reshape(self.shape))
        return array if seen_as is None else array.view(seen_as)


def read_header(file: BinaryIO, size: int) -> tuple[dict[str, Tensor], list[Any]]:
    """Tensors by name, and mlx-lm's metadata: what was said, classes, scalars.

    Raises `Unusable` for what is no whole safetensors file of `size` bytes.
    """
    tensors = {}
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > size - 8:
            raise Unusable(CUT)
        header = json.loads(file.read(length))
        flat = header.pop("__metadata__")
        for key in (*header, *flat):
            # mlx's trees make lists as long as the largest index says.
            if any(part.isdigit() and len(part) > 5 for part in key.split(".")):
                raise Unusable(NOT_OURS)
        for key, one in header.items():
            begin, end = (8 + length + int(offset) for offset in one["data_offsets"])
            shape = tuple(int(axis) for axis in one["shape"])
            itemsize = np.dtype(_TYPES[one["dtype"]][0]).itemsize
            if not 8 + length <= begin <= end <= size or min(shape, default=0) < 0:
                raise Unusable(CUT)
            if end - begin != math.prod(shape) * itemsize:
                raise Unusable(CUT)
            tensors[key] = Tensor(one["dtype"], shape, begin, end)
        return tensors, list(tree_unflatten(list(flat.items())))
    except (struct.error, LookupError, TypeError, ValueError, AttributeError):
        raise Unusable(NOT_OURS) from None
    except RecursionError:
        raise Unusable(NOT_OURS) from None


def read_states(arrays: dict[str, Any], metadata: Sequence[Any]) -> list[Any]:
    """The state of each cache, as mlx-lm's `load_prompt_cache` puts it together."""
    readers: dict[str, Callable[[mx.array], Any]] = {
        "scalar": lambda array: array.item(),
        "string": lambda array: "".join(map(chr, array.tolist())),
        "none": lambda _: None,
    }
    for key, kind in metadata[2][1:]:
        arrays[key] = readers[kind](arrays[key])
    states: list[Any] = tree_unflatten(list(arrays.items()))
    return states
