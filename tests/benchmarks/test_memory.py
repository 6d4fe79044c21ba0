"""Peak memory against the plan: the grid, and that a broken promise is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import memory, models, ours
from benchmarks.models import mx
from mlxceld.geometry import read_geometry
from mlxceld.plan import make_plan

TOKEN_BYTES = 4 * 4 * 16 * 2 * 4
"""Of the tiny model: layers, key heads, their size, keys and values, float32."""


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    built = models.build("tiny", mx.Device(mx.cpu))
    with ours.prepared(built):
        yield built


@pytest.mark.parametrize(
    ("way", "slot_ctx", "pool", "shared"),
    [
        ("legacy", 1000, 4000, False),
        ("llama-compat", 250, 1000, False),
        ("llama-compat unified", 1000, 1000, True),
        ("per-seq", 1000, 4000, False),
    ],
)
def test_four_slots_of_a_context_of_1000(
    model: Any, way: str, slot_ctx: int, pool: int, *, shared: bool
) -> None:
    plan = make_plan(memory.wish(way, 1000, 4), ours.geometry(model))
    assert (plan.slots, plan.slot_ctx, plan.pool, plan.shared) == (
        4,
        slot_ctx,
        pool,
        shared,
    )
    assert plan.kv_bytes == pool * TOKEN_BYTES
    assert plan.cache_ram_bytes == 0


def test_the_plan_is_made_of_files_as_the_daemon_makes_it(
    model: Any, tmp_path: Path
) -> None:
    memory.describe(model, tmp_path)
    estimate = read_geometry(tmp_path, float32=True, chunk=64)
    known = memory.planned(model, 64)
    assert estimate.kv_bytes_per_token == known.kv_bytes_per_token == TOKEN_BYTES
    assert estimate.weight_bytes == known.weight_bytes
    assert estimate.work_bytes == known.work_bytes > 0
    assert estimate.n_ctx_train == known.n_ctx_train == 131072


@pytest.mark.parametrize("way", memory.WAYS)
def test_every_cell_is_used(model: Any, way: str) -> None:
    plan = make_plan(memory.wish(way, 256, 3), ours.geometry(model))
    loop = ours.build(model, 1024, plan, chunk=64)
    memory.fill(loop, plan, 8)
    held = [slot.n_held for slot in loop.scheduler.slots]
    if plan.shared:
        # The last one took the pool, but for the cell of a token that never came.
        assert loop.scheduler.tally.max_tokens >= plan.pool - 4
        assert sum(held) <= plan.pool
    else:
        assert held == [plan.slot_ctx - 1] * 3
    assert not loop.scheduler.tally.failed


@pytest.mark.parametrize("way", memory.WAYS)
def test_the_plan_holds(model: Any, way: str) -> None:
    geometry = memory.planned(model, 64)
    found = memory.point("tiny", model, geometry, way, 256, 3, steps=8, chunk=64)
    assert found.kept
    # 256 cells divided by three leave one over.
    cells = found.slots * found.slot_ctx if way != memory.WAYS[2] else found.pool
    assert found.kv_bytes == cells * TOKEN_BYTES <= found.plan_kv_bytes
    assert 0 < found.share < 1


def test_the_grid_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "memory.json"
    grid = ["--context", "128", "256", "--slots", "1", "2", "--way", "llama-compat"]
    status = memory.main([*grid, "--device", "cpu", "--chunk", "64", "--out", str(out)])
    assert status == 0
    points = json.loads(out.read_text())["points"]
    assert [(p["context"], p["slots"], p["slot_ctx"]) for p in points] == [
        (128, 1, 128),
        (128, 2, 64),
        (256, 1, 256),
        (256, 2, 128),
    ]
    assert all(point["kept"] for point in points)
    printed = capsys.readouterr().out.splitlines()
    assert len({line.count("|") for line in printed if line.startswith("|")}) == 1


def test_a_plan_that_is_exceeded_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true = memory.planned
    monkeypatch.setattr(
        memory,
        "planned",
        lambda model, chunk: replace(
            true(model, chunk),
            work_bytes=0,
            work_bytes_per_cell=0,
            work_bytes_per_slot=0,
        ),
    )
    grid = ["--context", "256", "--slots", "2", "--way", "legacy", "--device", "cpu"]
    assert memory.main([*grid, "--chunk", "64"]) == 1
    printed = capsys.readouterr().out
    assert "| NO |" in printed
    assert "1 of 1 took more than was planned" in printed
