"""Chunks that ride with a step: how long they are, and that nothing else changes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.runner import Part, Row
from mlxceld.engine.scheduler import Limits
from mlxceld.engine.slot import Slot
from mlxceld.engine.spans import Spans
from mlxceld.pacing import PACINGS
from mlxceld.plan import Wish
from tests.engine import real
from tests.engine.driving import Bench, Ready, Timed, shared, solo, split
from tests.tiny import VOCAB_SIZE

LIMITS = Limits(512, token_gap=0.1, pacing=replace(PACINGS["cpu"], least=16))
"""A step of `Timed` takes 40 milliseconds, a token of a prompt one: what is left of the
gap are 60 tokens."""


class Taking(Timed):
    """A runner whose steps take chunks along."""

    def __init__(self, cells: int) -> None:
        super().__init__(cells)
        self.takes_along = True


def tokens(n: int, first: int = 100) -> list[int]:
    return [first + i for i in range(n)]


def streaming(runner: Timed, slots: int = 2) -> tuple[Bench, int]:
    """A bench with a running stream whose answer does not end."""
    bench = runner.bench(split(slots, 10_000), LIMITS)
    endless = m.Sampling(ignore_eos=True)
    stream = bench.ask(tokens(101, 9000), n_predict=5000, sampling=endless)
    bench.turn(6)
    runner.prefilled.clear()
    return bench, stream


def test_a_prompt_is_read_by_the_steps_of_a_stream() -> None:
    runner = Taking(20_000)
    bench, stream = streaming(runner)
    began, said = bench.clock.now, len(bench.tokens(stream))
    asked = bench.ask(tokens(301), n_predict=8)
    bench.turn(5)
    # 300 tokens at 60 a step; each turn is one step of 40 and a chunk of 60
    # milliseconds, and the stream has a token of each.
    assert runner.along == [(1, 1, 60)] * 5
    assert bench.clock.now - began == pytest.approx(5 * 0.1)
    assert len(bench.tokens(stream)) == said + 5
    bench.turn(10)
    assert bench.tokens(asked) == solo(tokens(301), 8)
    assert bench.tokens(stream) == solo(tokens(101, 9000), 21 - 1, ignore_eos=True)


def test_nobody_reads_more_in_a_turn_that_took_a_chunk_along() -> None:
    runner = Taking(40_000)
    bench, _ = streaming(runner, slots=4)
    for first in (1000, 2000):
        bench.ask(tokens(61, first), n_predict=1)
    bench.turn()
    assert runner.prefilled == [(1, 60)]
    bench.turn()
    assert runner.prefilled == [(1, 60), (2, 60)]
    # The first one's row is there by then.
    assert runner.along == [(1, 1, 60), (2, 2, 60)]


def test_without_a_stream_prompts_are_read_as_ever() -> None:
    runner = Taking(4000)
    bench = runner.bench(split(1, 2000), LIMITS)
    asked = bench.ask(tokens(701), n_predict=3)
    bench.run()
    assert [n for _, n in runner.prefilled] == [512, 188]
    assert not runner.along
    assert bench.tokens(asked) == solo(tokens(701), 3)


def test_where_the_pool_is_short_both_still_get_their_answers() -> None:
    """A pool of 128 cells for 121 and 45 tokens: one gives way for a while."""
    runner = Taking(128)
    bench = runner.bench(shared(2, 128), replace(LIMITS, overflow="preempt"))
    endless = m.Sampling(ignore_eos=True)
    stream = bench.ask(tokens(61, 9000), n_predict=60, sampling=endless)
    bench.turn(20)
    asked = bench.ask(tokens(41), n_predict=40, sampling=endless)
    bench.run()
    assert runner.along
    assert bench.tokens(stream) == solo(tokens(61, 9000), 60, ignore_eos=True)
    assert bench.tokens(asked) == solo(tokens(41), 40, ignore_eos=True)
    assert bench.scheduler.tally.preempted


@pytest.mark.parametrize("pool", range(92, 102))
def test_a_prompt_that_is_copied_whole_has_a_cell_for_its_first_row(pool: int) -> None:
    """Its row is in the very step before which the prompt was copied.

    A stream takes the cells that were left when the two that ask the same came in,
    in pools of 92 (the least that lets both in) cells and more.
    """
    runner = Taking(pool)
    limits = replace(LIMITS, overflow="preempt", prefill_chunk=8)
    bench = runner.bench(shared(3, pool), limits)
    endless = m.Sampling(ignore_eos=True)
    stream = bench.ask(tokens(4, 9000), n_predict=30, sampling=endless)
    bench.turn(4)
    asked = [bench.ask(tokens(41), n_predict=8, sampling=endless) for _ in range(2)]
    spans, slots = bench.scheduler._room.spans, bench.scheduler.slots
    bench.run(lambda: _has_cells(spans, slots))
    assert bench.tokens(stream) == solo(tokens(4, 9000), 30, ignore_eos=True)
    for request in asked:
        assert bench.tokens(request) == solo(tokens(41), 8, ignore_eos=True)
        assert bench.started(request) is not None


def _has_cells(spans: Spans, slots: Sequence[Slot]) -> None:
    assert all(slot.n_held <= spans.capacity(slot.id) for slot in slots)


def test_a_chunk_that_fails_leaves_the_step_alone() -> None:
    class Failing(Taking):
        def step(self, rows: Sequence[Row], part: Part | None = None) -> Ready:
            if part is not None:
                raise RuntimeError("too wide")
            return super().step(rows)

    runner = Failing(20_000)
    bench, stream = streaming(runner)
    said = len(bench.tokens(stream))
    asked = bench.ask(tokens(61), n_predict=3)
    bench.turn(6)
    assert len(bench.tokens(stream)) == said + 6
    # It was read by itself.
    assert bench.tokens(asked) == solo(tokens(61), 3)
    where = {e.where for e in bench.said if isinstance(e, m.Fault)}
    assert where == {"reading a prompt beside a step"}


@pytest.mark.parametrize(
    "wish",
    [
        Wish("llama-compat", 600, 3, min_slot_ctx=1),
        Wish("llama-compat", 200, 3, kv_unified=True),
    ],
    ids=["split", "shared"],
)
def test_answers_are_those_of_mlx_lm_alone(wish: Wish, tmp_path: Path) -> None:
    """Eight requests that arrive while others decode, on a real model."""
    loaded = real.tiny_model(tmp_path)
    assert loaded.runner(1, 8).takes_along
    chance = random.Random(3)
    prompts = {
        i: [chance.randrange(3, VOCAB_SIZE) for _ in range(chance.randrange(1, 50))]
        for i in range(8)
    }
    asked = [real.ask(i, prompt, 10) for i, prompt in prompts.items()]
    run = real.serve(loaded, asked, wish, every=3, chunk=8)
    assert run.along
    for i, prompt in prompts.items():
        assert run.answers[i].tokens == real.greedy(loaded.model, prompt, 10)
