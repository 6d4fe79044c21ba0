"""The least writer of GGUF version 3 that the tests of its reader need.

The quantisers here are written from the format's description with numpy, apart from
the code under test, and serve as its independent reference.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q6_K": 14, "BF16": 30}
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "BF16": 32}
ALIGNMENT = 32


class U32(int):
    """An integer that is written as uint32."""


class I32(int):
    """An integer that is written as int32."""


Blocks = tuple[bytes, npt.NDArray[np.float32]]


def quantise(array: npt.NDArray[np.float32], kind: str) -> Blocks:
    """The stored bytes of a tensor, and the float32 values they stand for."""
    if kind == "F32":
        return array.tobytes(), array
    if kind == "F16":
        half = array.astype(np.float16)
        return half.tobytes(), half.astype(np.float32)
    if kind == "BF16":
        words = (array.view(np.uint32) >> 16).astype(np.uint16)
        return words.tobytes(), (words.astype(np.uint32) << 16).view(np.float32)
    if kind == "Q6_K":
        return _q6_k(array)
    blocks = array.reshape(-1, 32)
    if kind == "Q8_0":
        scale = (np.abs(blocks).max(1) / 127).astype(np.float16)
        step = scale.astype(np.float32)[:, None]
        codes = np.rint(blocks / step).clip(-127, 127).astype(np.int8)
        raw = b"".join(
            s.tobytes() + c.tobytes() for s, c in zip(scale, codes, strict=True)
        )
        return raw, (codes * step).astype(np.float32).reshape(array.shape)
    if kind == "Q4_0":
        peak = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)[:, 0]
        scale = (peak / -8).astype(np.float16)
        low = -8 * scale.astype(np.float32)[:, None]
        head = [s.tobytes() for s in scale]
    elif kind == "Q4_1":
        scale = ((blocks.max(1) - blocks.min(1)) / 15).astype(np.float16)
        least = blocks.min(1).astype(np.float16)
        low = least.astype(np.float32)[:, None]
        head = [s.tobytes() + m.tobytes() for s, m in zip(scale, least, strict=True)]
    else:
        raise ValueError(kind)
    step = scale.astype(np.float32)[:, None]
    nibbles = np.rint((blocks - low) / step).clip(0, 15).astype(np.uint8)
    packed = nibbles[:, :16] | (nibbles[:, 16:] << 4)
    raw = b"".join(h + p.tobytes() for h, p in zip(head, packed, strict=True))
    return raw, (nibbles * step + low).astype(np.float32).reshape(array.shape)


def _q6_k(array: npt.NDArray[np.float32]) -> Blocks:
    """Super-blocks of 256: 6 bit codes, 16 scales of 8 bits, one float16 scale."""
    raw, values = b"", np.empty_like(array).reshape(-1, 256)
    for row, block in zip(values, array.reshape(-1, 256), strict=True):
        groups = block.reshape(16, 16)
        peaks = np.abs(groups).max(1)
        d = np.float16(peaks.max() / (31 * 127))
        scales = np.maximum(np.rint(peaks / (31 * np.float32(d))), 1).astype(np.int8)
        step = np.float32(d) * scales.astype(np.float32)[:, None]
        codes = np.rint(groups / step).clip(-32, 31).astype(np.int32)
        row[:] = (codes * step).reshape(256)
        low, high = b"", b""
        for half in (codes + 32).reshape(2, 4, 32):
            quarter = half & 15
            low += (quarter[0] | quarter[2] << 4).astype(np.uint8).tobytes()
            low += (quarter[1] | quarter[3] << 4).astype(np.uint8).tobytes()
            top = half >> 4
            bits = top[0] | top[1] << 2 | top[2] << 4 | top[3] << 6
            high += bits.astype(np.uint8).tobytes()
        raw += low + high + scales.tobytes() + d.tobytes()
    return raw, values.reshape(array.shape)


def write(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Sequence[tuple[str, npt.NDArray[np.float32], str]],
) -> None:
    """Write a file with these header fields and `(name, array, kind)` tensors."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _string(key) + _value(value)
    body = b""
    for name, array, kind in tensors:
        raw, _ = quantise(np.ascontiguousarray(array), kind)
        shape = array.shape[::-1]
        head += _string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", TYPES[kind], len(body))
        body += raw + bytes(-len(raw) % ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + body)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _scalar(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, U32):
        return 4, struct.pack("<I", value)
    if isinstance(value, int):
        return 5, struct.pack("<i", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 8, _string(value)


def _value(value: Any) -> bytes:
    if not isinstance(value, list):
        kind, raw = _scalar(value)
        return struct.pack("<I", kind) + raw
    items = [_scalar(item) for item in value]
    kind = items[0][0] if items else 4
    body = b"".join(raw for _, raw in items)
    return struct.pack("<IIQ", 9, kind, len(items)) + body
