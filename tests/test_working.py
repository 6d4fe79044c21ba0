"""The working memory of a step, against sums made by hand and peaks of a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlxceld.pacing import PACINGS
from mlxceld.shape import Shape
from mlxceld.working import (
    parts,
    work_bytes,
    work_bytes_per_cell,
    work_bytes_per_part,
    work_bytes_per_slot,
)

SHAPE = Shape(
    layers=12,
    hidden=256,
    heads=8,
    kv_heads=2,
    key_dim=32,
    value_dim=32,
    inner=512,
    vocab=1000,
)
VALUES = 6 * 256 + 3 * 512 + 5 * 8 * 32 + 2 * 2 * 64
"""Of one token in one layer: 4608."""

FILLED = 10 + PACINGS["cuda"].grain - 1
"""Tokens of a chunk of 10 on CUDA, where the most is missing to the grain."""

LIBRARIES = 64 << 20


@pytest.mark.parametrize(
    ("kind", "width", "expected"),
    [
        ("cpu", 4, 10 * VALUES * 4),
        ("cpu", 2, 10 * VALUES * 2),
        # Two layers at once, and the tokens that may fill the chunk up.
        ("cuda", 2, 2 * FILLED * VALUES * 2 + LIBRARIES),
        ("metal", 2, 2 * 10 * VALUES * 2),
    ],
)
def test_a_chunk_takes_what_layers_make_of_its_tokens(
    kind: str, width: int, expected: int
) -> None:
    assert work_bytes(SHAPE, width, chunk=10, kind=kind) == expected


@pytest.mark.parametrize(
    ("kind", "width", "more", "expected"),
    [
        # A score for each of 8 heads, and one byte of the mask.
        ("cpu", 4, {}, 10 * (8 * 4 + 1)),
        ("cpu", 2, {}, 10 * (8 * 2 + 1)),
        ("cuda", 2, {}, 0),
        ("cuda", 2, {"key_dim": 128, "value_dim": 128}, 0),
        ("cuda", 2, {"key_dim": 192}, 2 * FILLED * (8 * 2 + 1)),
        ("cuda", 4, {}, 2 * FILLED * (8 * 4 + 1)),
        ("metal", 4, {}, 0),
        ("metal", 2, {"key_dim": 256, "value_dim": 256}, 2 * 10 * (8 * 2 + 1)),
        # Latent attention holds a part of its scores a second time, as a mask.
        ("metal", 2, {"latent": 576}, 2 * 10 * (2 * 8 * 2 + 1)),
        ("cpu", 4, {"full_layers": 0}, 0),
    ],
)
def test_scores_that_are_held_whole_grow_with_the_context(
    kind: str, width: int, more: dict[str, int], expected: int
) -> None:
    shape = replace(SHAPE, **more)
    assert work_bytes_per_cell(shape, width, chunk=10, kind=kind) == expected


def test_scores_of_windows_alone_do_not_grow() -> None:
    shape = replace(SHAPE, full_layers=0, sliding_layers=12, window=100)
    scores = (100 + 10) * 10 * (8 * 4 + 1)
    expected = 10 * VALUES * 4 + scores
    assert work_bytes(shape, 4, chunk=10, kind="cpu") == expected
    assert work_bytes(shape, 2, chunk=10, kind="metal") == 2 * 10 * VALUES * 2


def test_a_row_of_a_step_takes_its_layers_and_what_samples_it() -> None:
    """On a GPU all layers of two steps may be queued; sampling takes 100 bytes."""
    on_cpu = work_bytes_per_slot(SHAPE, 4, kind="cpu")
    assert on_cpu == VALUES * 4 + 1000 * 104
    on_gpu = work_bytes_per_slot(SHAPE, 2, kind="cuda")
    assert on_gpu == 2 * 12 * VALUES * 2 + 1000 * 102
    assert work_bytes_per_slot(SHAPE, 2, kind="metal") == on_gpu


def test_a_part_of_attention_is_a_sum_of_32_values_and_two_numbers_a_head() -> None:
    assert work_bytes_per_part(SHAPE, kind="cuda") == 12 * 8 * (32 + 2) * 4
    assert work_bytes_per_part(SHAPE, kind="cpu") == 0
    assert work_bytes_per_part(SHAPE, kind="metal") == 0


@pytest.mark.parametrize(
    ("slots", "slot_ctx", "expected"),
    [
        (8, 256, 1),
        (8, 257, 2),
        # A power of two, so that rows that grow are seldom cut anew.
        (32, 1300, 8),
        (16, 16384, 64),
        (16, 131072, 64),
        # A row alone is cut into stretches of 64, to fill the device.
        (1, 64, 1),
        (1, 1024, 16),
        (4, 4096, 64),
        (4, 1, 1),
        (4, 0, 1),
    ],
)
def test_a_row_has_a_part_for_each_stretch_and_64_at_most(
    slots: int, slot_ctx: int, expected: int
) -> None:
    assert parts(slots, slot_ctx) == expected


@pytest.mark.parametrize(
    ("hidden", "layers", "inner", "weights", "held", "peak", "chunk", "slots"),
    [
        (4096, 32, 14336, 3.93, 0.17, 4.29, 512, 1),
        (4096, 32, 14336, 3.93, 1.375, 5.5, 512, 8),
        (2048, 16, 8192, 0.65, 0.34, 1.11, 512, 8),
    ],
)
def test_the_step_is_above_what_was_measured_on_an_h200(
    hidden: int,
    layers: int,
    inner: int,
    weights: float,
    held: float,
    peak: float,
    chunk: int,
    slots: int,
) -> None:
    """Sizes in GiB, of models in 4 bits with 128256 tokens and 32 heads."""
    shape = Shape(
        layers=layers,
        hidden=hidden,
        heads=32,
        kv_heads=8,
        key_dim=hidden // 32,
        value_dim=hidden // 32,
        inner=inner,
        vocab=128256,
    )
    step = work_bytes(shape, 2, chunk=chunk, kind="cuda")
    row = work_bytes_per_slot(shape, 2, kind="cuda")
    row += parts(slots, 1152) * work_bytes_per_part(shape, kind="cuda")
    step += slots * row
    assert peak < weights + held + step / (1 << 30) < peak + 0.5
