"""The types that the pool may store keys and values in, by llama-server's names.

The option, the estimates before a load and the pool itself read this one table.
"""

from __future__ import annotations

AUTO = "auto"
"""The precision that the model computes with."""

GROUP = 32
"""Values that share a scale when they are quantised, as in llama.cpp's types."""

PLAIN = {"f16": 2, "bf16": 2, "f32": 4}
"""Bytes of a value."""

BITS = {"q8_0": 8, "q4_0": 4}
"""Bits of a quantised value."""

TYPES = (AUTO, *PLAIN, *BITS)


def width(kind: str, own: int) -> float:
    """Bytes of one value; `own` are those of a value in the model's precision.

    A quantised group has a scale and an offset besides, both in the model's precision.
    """
    if kind in BITS:
        return BITS[kind] / 8 + 2 * own / GROUP
    return PLAIN.get(kind, own)
