"""Reads the header of a GGUF file, without MLX and without trusting the file.

`--check-config` needs a model's geometry in a tenth of a second, and the loader needs
to know that a file is whole before native code reads it: every count and length is
checked against the size of the file before it is believed.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from mlxceld.problems import Problem, Refused

MAGIC = b"GGUF"
VERSIONS = (2, 3)
"""Version 1 has other integer widths and has not been written since 2023."""

_SCALARS = "BbHhIif?sxQqd"
"""struct codes by GGUF value type: 8 (`s`) is a string, 9 (`x`) an array."""
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
_MAX_NESTING = 4

BLOCKS: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    30: ("BF16", 1, 2),
}
"""Tensor types: name, values in a block, bytes of a block, as ggml defines them."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A long array that was not read, because only its length was of interest."""

    length: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's entry. `shape` has the fastest axis last, as in MLX and numpy."""

    name: str
    shape: tuple[int, ...]
    kind: str
    """F16, Q4_1, ...; `type 42` where the type is not known."""
    offset: int
    """Bytes from the beginning of the data."""
    nbytes: int
    """Bytes in the file; 0 where the type is not known."""

    @property
    def size(self) -> int:
        """Number of values."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """Everything before the data of a GGUF file."""

    version: int
    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    data_offset: int


def read_header(path: Path, *, arrays: bool = False) -> Header:
    """Read the header of the GGUF file at `path`.

    Arrays of more than 1024 items (the vocabulary) come as `Skipped` unless `arrays`
    is set. Raises `Refused` for a file that is missing, no GGUF, cut, or absurd.
    """
    try:
        with path.open("rb") as file:
            if not file.seek(0, 2):
                raise _refused(path, "the file is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data, arrays).header()
    except FileNotFoundError:
        raise _refused(path, "there is no such file", "") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise _refused(path, f"cannot be read: {reason}", "") from None


class _Reader:
    """A cursor over the header that refuses to go past the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap, arrays: bool) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._at = 0
        self._arrays = arrays

    def header(self) -> Header:
        magic = bytes(self._take(4))
        if magic != MAGIC:
            raise _refused(
                self._path, f"it begins with {magic!r} where a GGUF has {MAGIC!r}"
            )
        version = self._number("I")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            if swapped in VERSIONS:
                raise _refused(self._path, "it is a big-endian GGUF", "")
            raise _refused(
                self._path, f"GGUF version {version} is not supported (2 and 3 are)", ""
            )
        n_tensors, n_fields = self._number("Q"), self._number("Q")
        # The least an entry can take: a length, a type and a value; or a length, a
        # number of axes, an axis, a type and an offset.
        self._check(n_fields, 13, "header fields")
        self._check(n_tensors, 32, "tensors")
        metadata = {}
        for _ in range(n_fields):
            key = self._string()
            metadata[key] = self._value(self._number("I"))
        tensors = tuple(self._tensor() for _ in range(n_tensors))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            raise _refused(self._path, f"alignment {alignment!r} makes no sense")
        start = -(-self._at // alignment) * alignment
        for tensor in tensors:
            if start + tensor.offset + tensor.nbytes > self._size:
                missing = start + tensor.offset + tensor.nbytes - self._size
                raise _refused(
                    self._path,
                    f"the file is cut: tensor {tensor.name} ends {missing} bytes "
                    "after the end of the file",
                )
        return Header(version, metadata, tensors, start)

    def _tensor(self) -> Tensor:
        name = self._string()
        n_axes = self._number("I")
        if not 0 < n_axes <= _MAX_DIMENSIONS:
            raise _refused(self._path, f"tensor {name} has {n_axes} axes")
        shape = tuple(self._number("Q") for _ in range(n_axes))[::-1]
        kind, offset = self._number("I"), self._number("Q")
        if kind not in BLOCKS:
            return Tensor(name, shape, f"type {kind}", offset, 0)
        label, values, nbytes = BLOCKS[kind]
        if shape[-1] % values:
            raise _refused(
                self._path,
                f"tensor {name} has rows of {shape[-1]} values, not a multiple of "
                f"{values} as {label} needs",
            )
        return Tensor(name, shape, label, offset, prod(shape) // values * nbytes)

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(depth)
        if kind >= len(_SCALARS):
            raise _refused(self._path, f"value type {kind} is not known")
        return self._number(_SCALARS[kind])

    def _array(self, depth: int) -> Any:
        kind, n = self._number("I"), self._number("Q")
        if kind >= len(_SCALARS) or depth > _MAX_NESTING:
            raise _refused(self._path, f"an array of value type {kind} makes no sense")
        keep = self._arrays or n <= 1024
        if kind == _STRING:
            self._check(n, 8, "strings of an array")
            if keep:
                return self._strings(n)
            self._skip_strings(n)
            return Skipped(n)
        if kind == _ARRAY:
            self._check(n, 12, "arrays of an array")
            return [self._array(depth + 1) for _ in range(n)]
        code = _SCALARS[kind]
        self._check(n, struct.calcsize(f"<{code}"), "values of an array")
        raw = self._take(n * struct.calcsize(f"<{code}"))
        return list(struct.unpack(f"<{n}{code}", raw)) if keep else Skipped(n)

    def _skip_strings(self, n: int) -> None:
        # Vocabularies have a hundred thousand strings: this loop is the time it takes
        # to look at a model.
        length, data, at = struct.Struct("<Q").unpack_from, self._data, self._at
        last = self._size - 8
        for _ in range(n):
            if at > last:
                raise self._cut()
            at += 8 + length(data, at)[0]
        if at > self._size:
            raise self._cut()
        self._at = at

    def _strings(self, n: int) -> list[str]:
        # As `_string`, n times, in a loop of its own: see `_skip_strings`.
        length, data, at = struct.Struct("<Q").unpack_from, self._data, self._at
        found = []
        for _ in range(n):
            begin = at + 8
            if begin > self._size:
                raise self._cut()
            at = begin + length(data, begin - 8)[0]
            if at > self._size:
                raise self._cut()
            found.append(data[begin:at])
        self._at = at
        return [raw.decode("utf-8", "surrogateescape") for raw in found]

    def _string(self) -> str:
        # Vocabularies may hold tokens that are no valid UTF-8; they keep their bytes.
        return bytes(self._take(self._number("Q"))).decode("utf-8", "surrogateescape")

    def _number(self, code: str) -> Any:
        width = struct.calcsize(f"<{code}")
        if self._at + width > self._size:
            raise self._cut()
        (value,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += width
        return value

    def _take(self, n: int) -> bytes:
        if n > self._size - self._at:
            raise self._cut()
        self._at += n
        return self._data[self._at - n : self._at]

    def _check(self, n: int, least: int, what: str) -> None:
        if n * least > self._size - self._at:
            raise _refused(
                self._path,
                f"the file is cut or damaged: it announces {n} {what}, more than it "
                "can hold",
            )

    def _cut(self) -> Refused:
        return _refused(self._path, "the file is cut: it ends within its header")


def _refused(
    path: Path, what: str, hint: str = "the file is damaged or no GGUF: get it again"
) -> Refused:
    return Refused([Problem(what, where=str(path), hint=hint)])
