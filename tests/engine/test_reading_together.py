"""Several prompts read as one batch: who joins, what it gives, and what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.runner import Part
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.pacing import PACINGS
from mlxceld.plan import Wish
from tests.engine import real
from tests.engine.driving import Timed, shared, solo, split
from tests.engine.families import FAMILIES, READ_TOGETHER
from tests.tiny import VOCAB_SIZE

LIMITS = Limits(512, pacing=replace(PACINGS["cpu"], together=512))


def tokens(n: int, first: int = 100) -> list[int]:
    return [first + i for i in range(n)]


def read(runner: Timed) -> list[int]:
    """The lengths of the chunks so far."""
    return [n for _, n in runner.prefilled]


def test_short_prompts_that_wait_are_read_as_one() -> None:
    runner = Timed(4000)
    bench = runner.bench(split(4, 1000), LIMITS)
    prompts = [tokens(n, 1000 * i) for i, n in enumerate((61, 64, 50, 65), 1)]
    asked = [bench.ask(prompt, n_predict=20) for prompt in prompts]
    bench.turn()
    assert runner.batches == [[(0, 60), (1, 63), (2, 49), (3, 64)]]
    bench.run()
    for request, prompt in zip(asked, prompts, strict=True):
        assert bench.tokens(request) == solo(prompt, 20)
        told = [e for e in bench.of(request) if isinstance(e, m.Progress)]
        n = len(prompt)
        assert [(e.processed, e.total) for e in told] == [(0, n), (n - 1, n), (n, n)]
    totals = bench.scheduler.tally.totals()
    assert totals.prompt_tokens == 61 + 64 + 50 + 65
    assert totals.prompt_ms == pytest.approx(60 + 63 + 49 + 64)


def test_the_beginning_of_a_long_prompt_is_read_beside_a_short_one() -> None:
    runner = Timed(8000)
    bench = runner.bench(split(2, 4000), LIMITS)
    short, long = tokens(101), tokens(1501, 3000)
    asked = [bench.ask(short, n_predict=5), bench.ask(long, n_predict=5)]
    bench.turn()
    assert runner.batches == [[(0, 100), (1, 100)]]
    bench.run()
    assert bench.tokens(asked[0]) == solo(short, 5)
    assert bench.tokens(asked[1]) == solo(long, 5)
    assert sum(read(runner)) == 1600


def test_a_batch_is_bounded_by_time_as_a_chunk_is() -> None:
    """A tenth of a second less 40 milliseconds of a step: sixty tokens."""
    runner = Timed(8000)
    bench = runner.bench(split(8, 1000), replace(LIMITS, token_gap=0.1))
    endless = m.Sampling(ignore_eos=True)
    bench.ask(tokens(101, 9000), n_predict=500, sampling=endless)
    bench.turn(6)
    for i in range(6):
        bench.ask(tokens(21, 200 * i), n_predict=1)
    bench.turn()
    assert [len(batch) for batch in runner.batches] == [3]


def test_a_batch_is_no_larger_than_pays_on_the_device() -> None:
    runner = Timed(8000)
    bench = runner.bench(split(8, 1000), Limits(512, pacing=PACINGS["cpu"]))
    for i in range(6):
        bench.ask(tokens(41, 200 * i), n_predict=1)
    bench.ask(tokens(401, 5000), n_predict=1)
    bench.turn(3)
    assert runner.batches == [[(0, 40), (1, 40), (2, 40)], [(3, 40), (4, 40), (5, 40)]]
    # One alone still gets a whole chunk.
    assert runner.prefilled[-1] == (6, 400)


def test_a_prompt_that_begins_like_an_older_one_waits_and_copies() -> None:
    runner = Timed(4000)
    bench = runner.bench(split(3, 1000), LIMITS)
    same = tokens(100)
    prompts = [[*same, 1, 2], [*same, 3, 4], tokens(105, 2000)]
    asked = [bench.ask(prompt, n_predict=8) for prompt in prompts]
    bench.turn(2)
    assert runner.batches == [[(0, 101), (2, 104)]]
    bench.run()
    assert [bench.done(request).n_cached for request in asked] == [0, 100, 0]
    assert [bench.tokens(r) for r in asked] == [solo(p, 8) for p in prompts]
    assert sum(read(runner)) == 101 + 104 + 1


def test_without_cache_prompt_nobody_waits_for_the_same_text() -> None:
    runner = Timed(4000)
    bench = runner.bench(split(2, 1000), LIMITS)
    for _ in range(2):
        bench.ask(tokens(101), n_predict=1, cache_prompt=False)
    bench.turn()
    assert runner.batches == [[(0, 100), (1, 100)]]


def test_a_prompt_that_another_slot_holds_is_copied_before_it_joins() -> None:
    runner = Timed(4000)
    bench = runner.bench(split(3, 1000), LIMITS)
    bench.answer(tokens(101), id_slot=2, n_predict=1)
    runner.prefilled.clear()
    first = bench.ask(tokens(31, 5000), n_predict=1, id_slot=0)
    second = bench.ask([*tokens(80), *tokens(31, 7000)], n_predict=1, id_slot=1)
    bench.turn()
    assert runner.batches == [[(0, 30), (1, 30)]]
    bench.run()
    assert [bench.done(r).n_cached for r in (first, second)] == [0, 80]


def test_where_chunks_have_a_grain_only_whole_prompts_are_read_as_one() -> None:
    """Two, four, eight of them, and none that goes on behind a copied text."""
    runner = Timed(8000)
    bench = runner.bench(split(6, 1000), Limits(512, pacing=PACINGS["cuda"]))
    bench.answer(tokens(51), id_slot=5, n_predict=1)
    for slot, n in enumerate((21, 31, 26)):
        bench.ask(tokens(n, 1000 * (slot + 1)), n_predict=1, id_slot=slot)
    bench.ask([*tokens(50), *tokens(21, 9000)], n_predict=1, id_slot=3)
    bench.turn()
    assert runner.batches == [[(0, 20), (1, 30)]]
    runner.prefilled.clear()
    bench.run()
    assert len(runner.batches) == 1
    assert runner.prefilled == [(2, 25), (3, 20)]


class Faulty(Timed):
    """A runner that cannot read several prompts at once, and not slot 1's at all."""

    def prefill_together(self, parts: Sequence[Part]) -> None:
        super().prefill_together(parts[:1])
        raise RuntimeError("not together")

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        if slot == 1:
            raise RuntimeError("not this one")
        super().prefill(slot, start, position, tokens)


def test_a_fault_in_a_batch_ends_only_the_prompt_that_cannot_be_read_alone() -> None:
    bench = Faulty(4000).bench(split(3, 1000), LIMITS)
    prompts = [tokens(41, 1000 * i) for i in range(1, 4)]
    asked = [bench.ask(prompt, n_predict=5) for prompt in prompts]
    bench.run()
    assert bench.failed(asked[1]).message == "not this one"
    faults = [e.where for e in bench.said if isinstance(e, m.Fault)]
    assert len(faults) == 2
    assert faults[0] == "reading prompts together"
    for index in (0, 2):
        assert bench.tokens(asked[index]) == solo(prompts[index], 5)


def test_in_a_pool_that_is_full_the_oldest_is_read_at_the_cost_of_the_youngest() -> (
    None
):
    """Room for what all hold and no more: nobody loses a cell to a neighbour."""
    runner = Timed(160)
    bench = runner.bench(shared(4, 160), LIMITS)
    prompts = [tokens(37, 1000 * i) for i in range(1, 5)]
    asked = [bench.ask(prompt, n_predict=30) for prompt in prompts]
    bench.run()
    for request, prompt in zip(asked, prompts, strict=True):
        assert bench.tokens(request) == solo(prompt, 30)


def test_idle_text_gives_way_to_prompts_that_are_read_together() -> None:
    runner = Timed(200)
    bench = runner.bench(shared(4, 200), LIMITS)
    bench.answer(tokens(90), id_slot=3, n_predict=1)
    prompts = [tokens(41, 1000 * i) for i in range(1, 4)]
    asked = [bench.ask(p, n_predict=5, id_slot=i) for i, p in enumerate(prompts)]
    bench.turn()
    assert runner.batches == [[(0, 40), (1, 40), (2, 40)]]
    bench.run()
    assert [bench.tokens(r) for r in asked] == [solo(p, 5) for p in prompts]


@pytest.mark.parametrize("family", READ_TOGETHER)
def test_answers_are_the_same_whether_prompts_are_read_together_or_not(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else the steps of the first answers would read the rest of the prompts.
    monkeypatch.setattr(real.ModelRunner, "takes_along", False)
    model = real.tiny_model(tmp_path, family, **FAMILIES[family])
    chance = random.Random(7)
    lengths = (9, 40, 17, 33, 90, 35)
    prompts = [[chance.randrange(3, VOCAB_SIZE) for _ in range(n)] for n in lengths]
    plan = model.plan(Wish("llama-compat", 1536, 6, min_slot_ctx=1))
    runner = model.runner(plan.slots, plan.cells)
    batches: list[list[int]] = []
    together = runner.prefill_together

    def counted(parts: Sequence[Part]) -> None:
        batches.append([len(part.tokens) for part in parts])
        together(parts)

    runner.prefill_together = counted  # type: ignore[method-assign]
    out: list[m.Up] = []
    limits = Limits(prefill_chunk=128)
    scheduler = Scheduler(plan, real.WORDS, runner, out.append, limits=limits)
    for number, prompt in enumerate(prompts):
        scheduler.submit(*real.ask(number, prompt, 12))
    while scheduler.busy:
        scheduler.advance()
        scheduler.read_chunk()
    # Rows of 128 // 6; 108 of 126 tokens are real.
    assert batches[0] == [8, 21, 16, 21, 21, 21]
    assert len(batches) >= 2
    answers = real.collect(out)
    for number, prompt in enumerate(prompts):
        assert answers[number].tokens == real.greedy(model.model, prompt, 12)


def test_what_is_no_number_in_cells_of_others_reaches_nobody(tmp_path: Path) -> None:
    """Both have read a beginning; the shorter one is filled up to the longer."""
    mx = real.mx
    model = real.tiny_model(tmp_path)
    chance = random.Random(1)
    prompts = [[chance.randrange(3, VOCAB_SIZE) for _ in range(n)] for n in (20, 13)]
    runner = model.runner(2, 160)
    for layer in runner._pool.layers:
        none = mx.full((1, 2, 160, 16), float("nan"))
        layer.write_chunk(0, none, none)
    for slot, prompt in enumerate(prompts):
        runner.prefill(slot, 80 * slot, 0, prompt[:5])
    runner.prefill_together(
        [Part(slot, 80 * slot, 5, p[5:-1]) for slot, p in enumerate(prompts)]
    )
    rows = [
        real.row(slot=slot, start=80 * slot, position=len(p) - 1, token=p[-1], id_=slot)
        for slot, p in enumerate(prompts)
    ]
    found = runner.step(rows).read()
    assert found == [real.greedy(model.model, p, 1)[0] for p in prompts]
