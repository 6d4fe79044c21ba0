"""What a slot has read is used again: gone back to, copied, taken out and put back.

Whatever the kind of cache, the tokens that follow are those of a run from scratch,
which are mlx-lm's own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from mlxceld.plan import Wish
from tests.engine import real
from tests.engine.families import ALL_POOLED, FAMILIES, STATE, TOGETHER, WINDOWS
from tests.tiny import VOCAB_SIZE

# isort: split
from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.messages import Up
from mlxceld.engine.scheduler import Limits, Scheduler

START, OTHER = 5, 90
"""First cells of the spans of slots 0 and 1."""

N = 29
"""Tokens of the prompt that are read before the first is sampled; more than a window
or chunk of 8."""

TYPES = ("q8_0", "q4_0", "f16")
KINDS = (*FAMILIES, "unpooled", *TYPES)


def _tokens(seed: int, n: int) -> list[int]:
    return [random.Random(seed).randrange(3, VOCAB_SIZE) for _ in range(n)]


PROMPT, MORE = _tokens(1, N + 1), _tokens(2, 12)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of each kind, made once: a family, or llama in another dress."""

    @cache
    def make(kind: str) -> real.Model:
        family = kind if kind in FAMILIES else "llama"
        options = FAMILIES[family] | ({"head_dim": 32} if kind in TYPES else {})
        loaded = real.tiny_model(tmp_path_factory, family, **options)
        loaded.batched = family in TOGETHER
        if kind in TYPES:
            loaded.map = loaded.map.stored_as(kind, kind)
        if kind == "unpooled":
            loaded.map, loaded.batched = loaded.map.unpooled(), False
        return loaded

    return make


def _runner(model: real.Model) -> ModelRunner:
    return model.runner(2, 160, cell_major=False)


def _read(
    runner: ModelRunner,
    tokens: Sequence[int],
    *,
    slot: int = 0,
    start: int = START,
    position: int = 0,
) -> None:
    """Read all of a prompt but its last token, from `position` on, and mark the end."""
    end = len(tokens) - 1
    for first in range(position, end, 11):
        chunk = tokens[first : min(first + 11, end)]
        runner.prefill(slot, start, first, chunk)
    runner.mark(slot, end)


def _follow(
    runner: ModelRunner, tokens: Sequence[int], *slots: int, n: int = 6
) -> list[list[int]]:
    """The `n` tokens after a prompt in slots that have read all of it but its last."""
    starts = (START, OTHER)
    following: list[list[int]] = [[] for _ in slots]
    for i in range(n):
        rows = [
            real.row(
                slot=slot,
                start=starts[slot],
                position=len(tokens) - 1 + i,
                token=found[-1] if found else tokens[-1],
                id_=slot,
            )
            for slot, found in zip(slots, following, strict=True)
        ]
        for found, token in zip(following, runner.step(rows).read(), strict=True):
            found.append(token)
    return following


def _scratch(model: real.Model, kind: str, prompt: list[int]) -> list[int]:
    """The tokens after a prompt without any reuse: mlx-lm's, where it can tell."""
    if kind not in TYPES:
        return real.greedy(model.model, prompt, 6)
    runner = _runner(model)
    _read(runner, prompt)
    return _follow(runner, prompt, 0)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_prompt_again_goes_on_from_its_end(kind: str, models: Any) -> None:
    model = models(kind)
    wanted = _scratch(model, kind, PROMPT)
    runner = _runner(model)
    _read(runner, PROMPT)
    for _ in range(3):
        assert _follow(runner, PROMPT, 0) == [wanted]
        assert runner.reusable(0, N) == N
        runner.rewind(0, N)


@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_prompt_reads_only_what_is_new(kind: str, models: Any) -> None:
    model = models(kind)
    longer = PROMPT + MORE
    runner = _runner(model)
    _read(runner, PROMPT)
    _follow(runner, PROMPT, 0)
    runner.rewind(0, runner.reusable(0, N))
    _read(runner, longer, position=N)
    assert _follow(runner, longer, 0) == [_scratch(model, kind, longer)]
    # The mark is now the longer prompt's.
    assert runner.reusable(0, len(longer) - 1) == len(longer) - 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_shorter_beginning_is_used_where_it_can_be_cut(
    kind: str, models: Any
) -> None:
    """A prompt that parts from the first one before its end."""
    model = models(kind)
    other = PROMPT[:20] + MORE
    runner = _runner(model)
    _read(runner, PROMPT)
    _follow(runner, PROMPT, 0)
    cut = kind in (*ALL_POOLED, *TYPES, "unpooled")
    assert runner.reusable(0, 20) == (20 if cut else 0)
    if cut:
        runner.rewind(0, 20)
    _read(runner, other, position=20 if cut else 0)
    assert _follow(runner, other, 0) == [_scratch(model, kind, other)]


@pytest.mark.parametrize("kind", [*WINDOWS, *STATE])
def test_a_window_that_is_not_full_can_be_cut_and_state_cannot(
    kind: str, models: Any
) -> None:
    model = models(kind)
    short, other = PROMPT[:6], PROMPT[:3] + MORE
    runner = _runner(model)
    _read(runner, short)
    assert runner.reusable(0, 3) == (3 if kind in WINDOWS else 0)
    assert runner.reusable(0, 5) == 5
    if kind in WINDOWS:
        runner.rewind(0, 3)
        _read(runner, other, position=3)
        assert _follow(runner, other, 0) == [_scratch(model, kind, other)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copied_text_goes_on_in_both_slots(kind: str, models: Any) -> None:
    model = models(kind)
    wanted = _scratch(model, kind, PROMPT)
    runner = _runner(model)
    _read(runner, MORE, slot=1, start=OTHER)
    _read(runner, PROMPT)
    _follow(runner, PROMPT, 0, n=2)
    runner.copy(0, 1, START, OTHER, N)
    runner.rewind(0, N)
    assert _follow(runner, PROMPT, 0, 1) == [wanted, wanted]
    assert runner.reusable(1, N) == N
    runner.rewind(1, N)
    assert _follow(runner, PROMPT, 1) == [wanted]


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_text_comes_back_in_another_slot(kind: str, models: Any) -> None:
    """Its own slot has read something else since; it may come back twice."""
    model = models(kind)
    wanted = _scratch(model, kind, PROMPT)
    runner = _runner(model)
    _read(runner, PROMPT)
    _follow(runner, PROMPT, 0)
    saved = runner.export(0, START, N)
    assert saved.n == N
    _read(runner, MORE)
    _follow(runner, MORE, 0)
    for slot, start in ((1, OTHER), (0, START)):
        runner.restore(slot, start, saved)
        assert runner.reusable(slot, N) == N
        assert _follow(runner, PROMPT, slot) == [wanted]
        runner.rewind(slot, N)
        assert _follow(runner, PROMPT, slot) == [wanted]


@pytest.mark.parametrize(
    ("kind", "nbytes"),
    [
        # Three layers, two heads, keys and values of 16 floats.
        ("llama", N * 3 * 2 * (16 + 16) * 4),
        # Without the pool no more: the spare cells of mlx-lm's cache are not saved.
        ("unpooled", N * 3 * 2 * (16 + 16) * 4),
        # Heads of 32 now, with a scale and an offset each.
        ("q8_0", N * 3 * 2 * 2 * (32 + 2 * 4)),
        ("q4_0", N * 3 * 2 * 2 * (16 + 2 * 4)),
        # One layer of keys and values, two windows of 8 tokens.
        ("gemma3_text", (N + 2 * 8) * 2 * (16 + 16) * 4),
        # Three layers of recurrent state, once.
        ("mamba2", 3 * (3 * (4 * 32 + 2 * 8) + 4 * 32 * 8) * 4),
    ],
)
def test_an_exported_text_tells_its_size(kind: str, nbytes: int, models: Any) -> None:
    runner = _runner(models(kind))
    _read(runner, PROMPT)
    _follow(runner, PROMPT, 0)
    assert runner.export(0, START, N).nbytes == nbytes


@pytest.mark.parametrize("kind", KINDS)
def test_the_scheduler_reads_a_known_prompt_from_its_end(
    kind: str, models: Any
) -> None:
    """The same prompt, then prompt and answer and more: state goes on from the mark."""
    model = models(kind)
    wish = Wish("legacy", 120, 1)
    first = real.serve(model, [real.ask(1, PROMPT, 8)], wish).answers[1].tokens
    longer = PROMPT + first + MORE
    asked = [
        real.ask(1, PROMPT, 8, cache_prompt=True),
        real.ask(2, PROMPT, 8, cache_prompt=True),
        real.ask(3, longer, 8, cache_prompt=True),
    ]
    run = real.serve(model, asked, wish)
    assert run.answers[1].tokens == run.answers[2].tokens == first
    alone = real.serve(model, [real.ask(3, longer, 8)], wish).answers[3]
    assert run.answers[3].tokens == alone.tokens
    whole = kind in (*ALL_POOLED, *TYPES, "unpooled")
    assert [run.answers[i].n_cached for i in (1, 2)] == [0, N]
    # The last token of an answer is never read.
    assert run.answers[3].n_cached == (N + 8 if whole else N)


def test_a_prompt_that_was_given_up_is_not_taken_for_a_whole_one(
    models: Any,
) -> None:
    """State is marked at the ends of prompts alone: half a prompt is read again."""
    model = models("mamba2")
    runner = _runner(model)
    runner.prefill(0, START, 0, PROMPT[:15])
    assert runner.reusable(0, 15) == 0
    _read(runner, PROMPT)
    runner.rewind(0, N)
    runner.prefill(0, START, N, [*PROMPT[N:], *MORE[:5]])
    assert runner.reusable(0, N + 6) == N


@pytest.mark.parametrize("kind", WINDOWS)
def test_what_was_marked_in_a_text_that_was_left_is_not_gone_back_to(
    kind: str, models: Any
) -> None:
    """Six tokens are marked, three of them belong to the next text, which is given up
    when its window has been full for a while. It comes again."""
    model = models(kind)
    wish, other = Wish("legacy", 120, 1), [*PROMPT[:3], *MORE, *MORE]
    plan = model.plan(wish)
    runner = model.runner(1, plan.cells)
    out: list[Up] = []
    limits = Limits(prefill_chunk=11)
    scheduler = Scheduler(plan, real.WORDS, runner, out.append, limits=limits)

    def turn(n: int) -> None:
        for _ in range(n):
            scheduler.advance()
            scheduler.read_chunk()

    scheduler.submit(*real.ask(1, PROMPT[:7], 1, cache_prompt=True))
    turn(4)
    scheduler.submit(*real.ask(2, other, 6, cache_prompt=True))
    turn(1)
    assert scheduler.slots[0].n_held == 3 + 11
    scheduler.cancel(2)
    scheduler.submit(*real.ask(3, other, 6, cache_prompt=True))
    turn(12)
    answer = real.collect(out)[3]
    assert (answer.tokens, answer.n_cached) == (_scratch(model, kind, other), 0)
