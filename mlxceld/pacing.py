"""How much of a prompt is read at once, by the kind of device. Imports no MLX.

The plan, the checks that run without MLX and the engine take the same numbers from
here, so that the working memory that is planned is that of the chunks that are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlxceld.backend import may_be_cuda, this_system


@dataclass(frozen=True, slots=True)
class Pacing:
    """Bounds of prompt chunks on one kind of device."""

    chunk: int
    """The most tokens that are read at once."""
    least: int
    """The fewest, while others decode: a chunk has costs that do not depend on its
    length, on a GPU those of a whole decode step."""
    together: int
    """The most tokens of several prompts that are read as one. From there on one prompt
    keeps the device busy: reading the next one later costs nothing, and the first
    answer comes sooner."""
    gap: float
    """Seconds that a running stream may wait for its next token while prompts are
    read."""
    grain: int = 1
    """Chunks end at multiples of so many tokens of the text, and are filled up to them
    at its end. On CUDA attention is prepared for each pair of lengths, of a chunk and
    of the text so far, and that takes longer than to read as many tokens."""


PACINGS = {
    "cpu": Pacing(chunk=256, least=64, together=128, gap=0.25),
    "cuda": Pacing(chunk=512, least=256, together=512, gap=0.1, grain=256),
    "metal": Pacing(chunk=512, least=64, together=128, gap=0.1),
}
"""Measured on an H200 with an 8B model in 4 bits: chunks of 512 read 6,600 tokens a
second, those of 1024 and of 2048 6,650 for twice the working memory and more; a new
pair of lengths cost some 65 milliseconds, in which a 1.2B model reads 1,600 tokens. On
two CPU cores with SmolLM2 in float32, 128 to 512 read 117 to 141, 1024 read 88, and
the working memory doubles with each step. Four prompts of 16, 32, 64 and 128 tokens
took 0.57, 0.73, 0.83 and 0.94 of the time there when they were read as one. A step
that takes 64 tokens along takes 0.52 seconds there, one alone 0.13: with less than 64
streams flow more evenly, and everything takes longer. Nothing is measured on Metal
yet."""


def kind_of(device: str, *, system: str = "", installed: str = "") -> str:
    """The kind of device that `device` (auto, cpu or gpu) will be, as far as can be
    known without MLX: a key of `PACINGS`.

    `system` and `installed` are as for `backend.will_be_float32`.
    """
    if may_be_cuda(device, system=system, installed=installed):
        return "cuda"
    on_mac = (system or this_system()) == "Darwin"
    return "metal" if on_mac and device != "cpu" else "cpu"


def chunk_of(batch_size: int | None, device: str) -> int:
    """Tokens of the largest chunk: as set, or by the kind of device."""
    return PACINGS[kind_of(device)].chunk if batch_size is None else batch_size
