"""What is run before the first request."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.engine import real

# isort: split
from mlxceld.engine.probe import nobody
from mlxceld.engine.runner import Part, Row
from mlxceld.engine.warmup import warm_up
from mlxceld.pacing import PACINGS


class Watched:
    """A runner that notes what it is asked for."""

    def __init__(self) -> None:
        self.reads_together = True
        self.chunks: list[int] = []
        self.ends: list[int] = []
        self.batches: list[tuple[int, int]] = []
        self.steps: list[list[tuple[int, int, int]]] = []
        self.greedy: list[bool] = []
        self.forgotten: list[int] = []

    def prefill(self, slot: int, start: int, position: int, tokens: list[int]) -> None:
        assert (slot, start) == (0, 0)
        self.chunks.append(len(tokens))
        self.ends.append(position + len(tokens))

    def prefill_together(self, parts: Sequence[Part]) -> None:
        self.batches.append((len(parts), len(parts[0].tokens)))

    def step(self, rows: Sequence[Row]) -> Any:
        self.steps.append([(row.slot, row.start, row.position) for row in rows])
        self.greedy.append(rows[0].request.message.sampling.temperature == 0)
        return self

    def read(self) -> list[int]:
        return []

    def forget(self, slot: int) -> None:
        self.forgotten.append(slot)


def test_chunks_of_all_sizes_and_numbers_of_rows_are_run_once() -> None:
    runner: Any = Watched()
    warm_up(runner, PACINGS["metal"], slots=6, room=4096, chunk=512)
    assert runner.chunks == [16, 32, 64, 128, 512]
    assert [len(rows) for rows in runner.steps] == [1, 2, 4, 6] * 2
    assert runner.greedy == [True] * 4 + [False] * 4
    # Each row in a cell of its own.
    assert runner.steps[1] == [(0, 0, 0), (1, 1, 0)]
    assert runner.forgotten == [0, 1, 2, 3, 4, 5]


def test_on_cuda_attention_is_prepared_for_the_lengths_that_come_up() -> None:
    runner: Any = Watched()
    warm_up(runner, PACINGS["cuda"], slots=4, room=1100, chunk=512)
    # Chunks of 256 and 512 tokens which end at 256, 512, 768 and 1024.
    pairs = [*zip(runner.ends, runner.chunks, strict=True)][5:]
    assert pairs == [
        (256, 256),
        (512, 256),
        (512, 512),
        (768, 256),
        (768, 512),
        (1024, 256),
        (1024, 512),
    ]
    # Two and four prompts of no more than 512 tokens with their filling.
    wide = {2: [32, 64, 128, 256], 4: [32, 64, 128]}
    assert runner.batches == [(rows, n) for rows in wide for n in wide[rows]]


def test_preparations_end_after_ten_seconds() -> None:
    runner: Any = Watched()
    seconds = itertools.count(100.0, 2.5)
    warm_up(
        runner,
        PACINGS["cuda"],
        slots=1,
        room=100_000,
        chunk=512,
        clock=lambda: next(seconds),
    )
    # Until 110: at 102.5, 105, 107.5 and 110 another one is begun.
    assert len(runner.chunks) == 5 + 4


def test_a_model_that_is_given_no_filling_has_lengths_of_its_own() -> None:
    runner: Any = Watched()
    runner.reads_together = False
    warm_up(runner, PACINGS["cuda"], slots=4, room=1100, chunk=512)
    assert len(runner.chunks) == 5
    assert not runner.batches


def test_a_small_window_is_not_overrun() -> None:
    runner: Any = Watched()
    warm_up(runner, PACINGS["cuda"], slots=1, room=40, chunk=512)
    assert runner.chunks == [16, 32, 40]
    assert [len(rows) for rows in runner.steps] == [1, 1]


def test_rows_share_cells_where_there_are_more_slots_than_cells() -> None:
    """Eight slots that draw on a pool of three tokens."""
    runner: Any = Watched()
    warm_up(runner, PACINGS["metal"], slots=8, room=3, chunk=512)
    starts = {start for rows in runner.steps for _, start, _ in rows}
    assert [len(rows) for rows in runner.steps] == [1, 2, 4, 8] * 2
    assert starts == {0, 1, 2}


def test_nothing_is_left_behind(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = real.tiny_model(tmp_path_factory)
    runner = model.runner(2, 64)
    pacing = replace(PACINGS["cuda"], grain=8, together=64)
    warm_up(runner, pacing, slots=2, room=32, chunk=32)
    fresh = model.runner(2, 64)
    assert runner.kv_bytes == fresh.kv_bytes
    prompt = [5, 6, 7, 8, 9]
    for one in (runner, fresh):
        one.prefill(1, 32, 0, prompt[:-1])
    rows = [Row(1, 32, 4, prompt[-1], 0.0, nobody())]
    assert runner.step(rows).read() == fresh.step(rows).read()
