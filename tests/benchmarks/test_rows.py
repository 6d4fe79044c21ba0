"""Cost over rows, slots and a queue: that the right things are built and counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import models, ours, rows
from benchmarks.models import mx
from mlxceld.plan import Wish, make_plan


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    built = models.build("tiny", mx.Device(mx.cpu))
    with ours.prepared(built):
        yield built


TOKEN_BYTES = 4 * 4 * 16 * 2 * 4
"""Of the tiny model: layers, key heads, their size, keys and values, float32."""


@pytest.mark.parametrize(
    ("n", "how", "expected"),
    [
        (3, "equal", [100, 100, 100]),
        (1, "spread", [100]),
        (2, "spread", [25, 175]),
        (4, "spread", [25, 75, 125, 175]),
    ],
)
def test_lengths_are_equal_or_spread_around_the_same_mean(
    n: int, how: str, expected: list[int]
) -> None:
    assert rows.lengths(n, 100, how) == expected


def test_all_rows_decode_from_the_first_step_that_counts(model: Any) -> None:
    plan = make_plan(
        Wish("llama-compat", 1024, 3, kv_unified=True), ours.geometry(model)
    )
    loop = ours.build(model, 1024, plan, chunk=64)
    loop.fill([40, 10, 25], 30)
    assert sorted(loop.answers.tokens) == [0, 1, 2]
    before = loop.scheduler.tally.decoded_rows
    for _ in range(4):
        loop.turn()
    assert loop.scheduler.tally.decoded_rows - before == 12
    assert sorted(slot.n_held for slot in loop.scheduler.slots) > [10, 25, 40]


def test_only_the_longest_prompt_is_read_and_the_others_are_copied(model: Any) -> None:
    plan = make_plan(
        Wish("llama-compat", 1024, 3, kv_unified=True), ours.geometry(model)
    )
    loop = ours.build(model, 1024, plan, chunk=64)
    loop.fill([40, 40, 40], 4)
    assert loop.scheduler.tally.cached_tokens == 2 * 39


def test_the_loops_time_is_the_turns_without_the_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Turns of 10, 20 and 30 ms: 5 ms of each build the step, 4 ms are a wait."""
    now = 0.0
    waited: list[float] = []
    queued: list[float] = []
    turns = iter([0.010, 0.020, 0.030])

    def turn() -> None:
        nonlocal now
        now += next(turns)
        waited.append(0.004)
        queued.append(0.005)

    def snapshot() -> None:
        nonlocal now
        now += 0.001

    monkeypatch.setattr(rows.time, "perf_counter", lambda: now)
    scheduler = SimpleNamespace(snapshot=snapshot)
    runner = SimpleNamespace(waited=waited, queued=queued)
    loop = SimpleNamespace(turn=turn, scheduler=scheduler, runner=runner)
    times = rows.Times(cast(ours.Loop, loop))
    for _ in range(3):
        times.turn()
    told = (times.step_ms, times.loop_ms, times.rest_ms, times.snapshot_ms)
    assert told == pytest.approx((20, 16, 11, 1))


def test_a_step_of_two_rows_is_told_with_its_parts(model: Any) -> None:
    cost = rows.step_cost("tiny", model, 2, 32, "equal", steps=3, chunk=32)
    assert 0 < cost.host_ms < cost.step_ms
    assert cost.rate == pytest.approx(2000 / cost.step_ms)
    assert cost.peak_bytes >= cost.active_bytes > 0


@pytest.mark.parametrize("how", ["split", "shared"])
def test_memory_of_one_context_does_not_grow_with_its_slots(
    model: Any, how: str
) -> None:
    one, four = (
        rows.memory("tiny", model, slots, 256, how, chunk=64) for slots in (1, 4)
    )
    for found in (one, four):
        assert found.kv_bytes == found.plan_kv_bytes == 256 * TOKEN_BYTES
    # The former loop's pool is gone before the next one is built.
    assert four.active_bytes < one.active_bytes + 256 * TOKEN_BYTES


def test_a_queue_is_filled_and_emptied_again(model: Any) -> None:
    cost = rows.queue_cost("tiny", model, 2, 50, steps=2, chunk=64)
    assert (cost.rows, cost.waiting) == (2, 50)
    assert cost.step_ms > cost.loop_ms > 0
    assert cost.step_ms_alone > cost.loop_ms_alone > 0
    assert min(cost.submit_us, cost.cancel_us, cost.snapshot_ms) > 0


def test_every_table_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.json"
    few = ["--rows", "1", "2", "--held", "24", "--steps", "2", "--context", "256"]
    rows.main([*few, "--device", "cpu", "--queue", "20", "--out", str(out)])
    report = json.loads(out.read_text())
    assert [(s["rows"], s["lengths"]) for s in report["steps"]] == [
        (1, "equal"),
        (2, "equal"),
        (2, "spread"),
    ]
    assert [(s["slots"], s["how"]) for s in report["slots"]] == [
        (1, "split"),
        (2, "split"),
        (1, "shared"),
        (2, "shared"),
    ]
    assert [q["waiting"] for q in report["queue"]] == [20]
    printed = capsys.readouterr().out.splitlines()
    tables = [line for line in printed if line.startswith("| tiny")]
    assert len(tables) == 8
    heads = [line.count("|") for line in printed if line.startswith("| model")]
    bodies = {line.count("|") for line in tables}
    assert set(heads) == bodies
