"""The project's CUDA kernels as functions of the host, to be tried without a GPU.

Their sources are compiled by the host's compiler behind hostcuda.h, with the arguments
and constants that MLX puts before them. What that cannot show is what only a GPU does:
the order in which blocks that run at the same time see each other's writes, and speed.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.documents.tools import have
from tests.engine.real import tiny_model  # noqa: F401  (loads MLX in the right order)

# isort: split
import mlx.core as mx

needs_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="threads of a block are contexts of Linux"
)

TYPES = {
    mx.float32: "float",
    mx.float16: "__half",
    mx.bfloat16: "__nv_bfloat16",
    mx.int32: "int",
    mx.uint32: "uint32_t",
}

_MARGIN = 4096
"""Bytes around each array, which stay as they are; read as numbers they are none."""


def source(
    name: str, body: str, arguments: Mapping[str, str], constants: Mapping[str, Any]
) -> str:
    """One kernel; the types of `arguments` are as MLX declares them.

    An argument with the type `shape` is an array of numbers.
    """
    takes, gives = [], []
    for index, (argument, type_) in enumerate(arguments.items()):
        kind = "const int*" if type_ == "shape" else f"{type_}*"
        takes.append(f"{kind} {argument}")
        gives.append(f"({kind})arrays[{index}]")
    fixed = [f"constexpr int {key} = {value};" for key, value in constants.items()]
    return "\n".join(
        [
            f"static void {name}_body({', '.join(takes)}) {{",
            *fixed,
            body,
            "}",
            f'extern "C" bool {name}(',
            "    void** arrays, const unsigned* grid, int threads, const int* order,",
            "    bool backwards) {",
            f"  auto run = [=] {{ {name}_body({', '.join(gives)}); }};",
            "  dim3 wanted{grid[0], grid[1], grid[2]};",
            "  return host::launch(run, wanted, threads, order, backwards);",
            "}",
        ]
    )


def build(folder: Path, header: str, kernels: Sequence[str]) -> ctypes.CDLL:
    """A library of kernels that share a header."""
    shim = Path(__file__).with_name("hostcuda.h")
    text = "\n".join([f'#include "{shim}"', header, *kernels])
    code, library = folder / "kernels.cpp", folder / "kernels.so"
    code.write_text(text)
    options = ["-std=gnu++17", "-O1", "-w", "-fno-strict-aliasing", "-fPIC", "-shared"]
    compiler = have("g++")
    if not _knows_half_precision(compiler) and os.environ.get("CI") != "true":
        pytest.skip("g++ knows no _Float16: 12 on x86, 13 on ARM")
    command = [compiler, *options, "-o", str(library), str(code)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def _knows_half_precision(compiler: str) -> bool:
    command = [compiler, "-x", "c++", "-fsyntax-only", "-"]
    tried = subprocess.run(command, input=b"_Float16 x;", capture_output=True)
    return tried.returncode == 0


class Held:
    """An array in memory that the kernel may write to."""

    def __init__(self, array: mx.array) -> None:
        self.dtype = array.dtype
        plain = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array
        content = np.array(plain)
        self._n = content.nbytes
        self._memory = np.full(self._n + 3 * _MARGIN, 0xFF, np.uint8)
        # Where MLX's allocator puts arrays: at a multiple of any alignment asked for.
        self._at = _MARGIN + -self._memory.ctypes.data % _MARGIN
        inside = self._memory[self._at : self._at + self._n]
        self._view = inside.view(content.dtype).reshape(content.shape)
        self._view[...] = content

    @property
    def address(self) -> int:
        return self._memory.ctypes.data + self._at

    @property
    def unharmed(self) -> bool:
        """Whether nothing around it has been written to."""
        around = self._memory[: self._at], self._memory[self._at + self._n :]
        return all(bool((part == 0xFF).all()) for part in around)

    def read(self) -> mx.array:
        found = mx.array(self._view)
        return found.view(mx.bfloat16) if self.dtype == mx.bfloat16 else found


def launch(
    kernel: Any,
    arrays: Sequence[Held | Sequence[int]],
    grid: tuple[int, int, int],
    threads: int,
    *,
    seed: int = 0,
) -> None:
    """Run all blocks of a grid, in an order that depends on the seed.

    Sequences of numbers stand for shapes.
    """
    shapes = [None if isinstance(a, Held) else (ctypes.c_int * 10)(*a) for a in arrays]
    addresses = [
        held.address if isinstance(held, Held) else ctypes.addressof(shape or kernel)
        for held, shape in zip(arrays, shapes, strict=True)
    ]
    blocks = np.random.default_rng(seed).permutation(int(np.prod(grid)))
    order = np.ascontiguousarray(blocks, np.int32)
    kernel.restype = ctypes.c_bool
    done = kernel(
        (ctypes.c_void_p * len(arrays))(*addresses),
        (ctypes.c_uint * 3)(*grid),
        threads,
        order.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_bool(seed % 2 == 1),
    )
    assert done, "threads wait for each other"
    assert all(held.unharmed for held in arrays if isinstance(held, Held))
