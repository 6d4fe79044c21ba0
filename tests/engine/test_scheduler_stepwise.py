"""Rows that need every token before the next one, beside rows that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mlxceld.engine.messages import Done, Sampling
from mlxceld.engine.runner import Part, Row
from mlxceld.engine.slot import Request
from tests.engine.driving import (
    Bench,
    CellRunner,
    Ready,
    draws,
    next_token,
    shared,
    split,
)
from tests.engine.driving import solo as free_solo

VOCABULARY = 61
"""What `next_token` counts modulo."""

FREE = Sampling(ignore_eos=True)
DRY = Sampling(dry_multiplier=0.8, ignore_eos=True)


def allowed_token(token: int, allowed: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
    """The first allowed token from `token` on, around the vocabulary."""
    return next(
        t % VOCABULARY
        for t in range(token, token + VOCABULARY)
        if allowed[t % VOCABULARY]
    )


class Masked(CellRunner):
    """Keeps to what a row allows; remembers which slots each step had."""

    def __init__(self, cells: int, *, pipelined: bool) -> None:
        super().__init__(cells, pipelined=pipelined)
        self.steps: list[list[int]] = []

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Ready:
        self.steps.append([row.slot for row in rows])
        sampled = super().step(rows, part).tokens
        for index, row in enumerate(rows):
            if row.allowed is not None:
                assert row.token is not None
                sampled[index] = allowed_token(sampled[index], row.allowed)
                self._last[row.slot] = sampled[index]
        return Ready(sampled)


class Residues:
    """A grammar: token number i has rest i mod 3 by 3; ends after `n` tokens."""

    def __init__(self, n: int, *, refuses: int = -1) -> None:
        self.n = n
        self.seen: list[int] = []
        self._refuses = refuses

    def mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.arange(VOCABULARY) % 3 == len(self.seen) % 3

    def accept(self, token: int) -> bool:
        if len(self.seen) == self._refuses or not self.mask()[token]:
            return False
        self.seen.append(token)
        return True

    @property
    def ended(self) -> bool:
        return len(self.seen) >= self.n


def grammar_solo(prompt: Sequence[int], n: int, seed: int = 0) -> list[int]:
    """What a lone request with `Residues(n)` answers."""
    numbers = draws(seed, n)
    grammar = Residues(n)
    while not grammar.ended:
        token = next_token([*prompt, *grammar.seen], numbers[len(grammar.seen)])
        assert grammar.accept(allowed_token(token, grammar.mask()))
    return grammar.seen


def bench(pipelined: bool, *, slots: int = 3, slot_ctx: int = 64) -> Bench:
    plan = split(slots, slot_ctx)
    return Bench(plan, runner=Masked(plan.pool, pipelined=pipelined))


def steps_of(b: Bench) -> list[list[int]]:
    runner = b.scheduler._runner
    assert isinstance(runner, Masked)
    return runner.steps


def match(b: Bench, prompt: list[int], matcher: Residues, **fields: Any) -> int:
    """Ask for an answer that a grammar governs."""
    request = b.ask(prompt, **fields)
    [*b.scheduler.waiting][-1].matcher = matcher
    return request


def slot_of(b: Bench, request: int) -> int:
    started = b.started(request)
    assert started is not None
    return started.slot


both = pytest.mark.parametrize("pipelined", [True, False])


def test_what_makes_a_request_stepwise() -> None:
    b = bench(True)
    for sampling, stepwise in [
        (Sampling(), False),
        (Sampling(mirostat=2), False),
        (Sampling(xtc_probability=0.5), False),
        (Sampling(repeat_penalty=1.2), False),
        (Sampling(dry_multiplier=0.8), True),
        (Sampling(dry_multiplier=-0.8), True),
        (Sampling(dry_multiplier=0.8, dry_penalty_last_n=0), False),
        (Sampling(dry_multiplier=0.8, samplers=("top_k",)), False),
        (Sampling(dry_multiplier=0.8, mirostat=1), False),
    ]:
        b.ask([1], sampling=sampling)
        request: Request = [*b.scheduler.waiting][-1]
        assert request.stepwise is stepwise, sampling
        request.matcher = Residues(1)
        assert request.stepwise


def test_a_stepwise_row_takes_every_other_step_and_free_rows_take_all() -> None:
    b = bench(True)
    free = b.ask([1, 2, 3], n_predict=20, sampling=FREE)
    dry = b.ask([4, 5, 6], n_predict=8, sampling=DRY)
    b.run()
    steps = steps_of(b)
    with_free = [step for step in steps if slot_of(b, free) in step]
    assert len(with_free) == 20
    places = [n for n, step in enumerate(steps) if slot_of(b, dry) in step]
    assert [later - one for one, later in zip(places, places[1:], strict=False)] == (
        [2] * 7
    )
    assert b.tokens(free) == free_solo([1, 2, 3], 20, ignore_eos=True)
    assert b.tokens(dry) == free_solo([4, 5, 6], 8, ignore_eos=True)


def test_without_a_pipeline_a_stepwise_row_takes_every_step() -> None:
    b = bench(False)
    b.ask([1, 2, 3], n_predict=9, sampling=FREE)
    dry = b.ask([4, 5, 6], n_predict=9, sampling=DRY)
    b.run()
    places = [n for n, step in enumerate(steps_of(b)) if slot_of(b, dry) in step]
    assert places == list(range(places[0], places[0] + 9))


@both
def test_stepwise_rows_alone_come_to_their_end(pipelined: bool) -> None:
    b = bench(pipelined)
    asked = [b.ask([n, 7], n_predict=5, sampling=DRY) for n in range(1, 6)]
    b.run()
    for n, request in enumerate(asked, 1):
        assert b.tokens(request) == free_solo([n, 7], 5, ignore_eos=True)


@both
def test_the_mask_of_a_row_is_that_of_its_last_token(pipelined: bool) -> None:
    b = bench(pipelined)
    free = b.ask([1, 2, 3], n_predict=30, sampling=FREE)
    matched = match(b, [9, 8], Residues(6), sampling=FREE)
    b.run()
    assert b.tokens(matched) == grammar_solo([9, 8], 6)
    assert [token % 3 for token in b.tokens(matched)] == [0, 1, 2, 0, 1, 2]
    assert b.tokens(free) == free_solo([1, 2, 3], 30, ignore_eos=True)


@both
def test_the_end_of_the_grammar_ends_the_answer(pipelined: bool) -> None:
    b = bench(pipelined)
    matched = match(b, [9, 8], Residues(3), sampling=FREE)
    b.run()
    end = b.done(matched)
    assert (end.stop_type, end.truncated, end.n_decoded) == ("eos", False, 3)
    again = b.answer([5], n_predict=1)
    assert again.stop_type in ("limit", "eos")


@both
def test_a_grammar_that_refuses_a_token_fails_its_request_alone(
    pipelined: bool,
) -> None:
    b = bench(pipelined)
    free = b.ask([1, 2, 3], n_predict=12, sampling=FREE)
    bad = match(b, [9, 8], Residues(6, refuses=2), sampling=FREE)
    good = match(b, [7], Residues(6), sampling=FREE)
    b.run()
    failed = b.failed(bad)
    assert (failed.code, failed.type) == (500, "server_error")
    assert "grammar" in failed.message
    assert b.tokens(bad) == grammar_solo([9, 8], 6)[:2]
    assert b.tokens(good) == grammar_solo([7], 6)
    assert b.tokens(free) == free_solo([1, 2, 3], 12, ignore_eos=True)
    assert b.scheduler.tally.failed == 1


@both
def test_a_stepwise_row_can_be_cancelled_at_any_time(pipelined: bool) -> None:
    for turns in range(1, 8):
        b = bench(pipelined)
        free = b.ask([1, 2, 3], n_predict=10, sampling=FREE)
        gone = match(b, [9, 8], Residues(20), sampling=FREE)
        b.turn(turns)
        told = len(b.of(gone))
        b.scheduler.cancel(gone)
        b.run()
        assert len(b.of(gone)) == told
        assert b.tokens(free) == free_solo([1, 2, 3], 10, ignore_eos=True)
        assert all(slot.request is None for slot in b.scheduler.slots)


@both
def test_stepwise_rows_that_had_to_give_way_answer_as_if_alone(
    pipelined: bool,
) -> None:
    """Four texts of up to 40 tokens in a pool of 64 cells."""
    plan = shared(4, 64)
    b = Bench(plan, runner=Masked(plan.pool, pipelined=pipelined))
    asked: list[tuple[int, list[int]]] = []
    for n in range(2):
        dry = b.ask([n + 1, 2, 3], n_predict=36, sampling=DRY)
        asked.append((dry, free_solo([n + 1, 2, 3], 36, ignore_eos=True)))
        matched = match(b, [n + 9, 8], Residues(30), sampling=FREE)
        asked.append((matched, grammar_solo([n + 9, 8], 30)))
    b.run()
    assert b.scheduler.tally.preempted > 0
    for request, expected in asked:
        assert isinstance(b.done(request), Done)
        assert b.tokens(request) == expected


class _Read(Ready):
    """A step that says when it was read."""

    def __init__(self, tokens: list[int], log: list[str]) -> None:
        super().__init__(tokens)
        self._log = log

    def read(self) -> list[int]:
        self._log.append("read")
        return super().read()


class Logged(Masked):
    """Writes down when steps are queued and read."""

    def __init__(self, cells: int, log: list[str]) -> None:
        super().__init__(cells, pipelined=True)
        self._log = log

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Ready:
        self._log.append("queued")
        return _Read(super().step(rows, part).tokens, self._log)


class Noted(Residues):
    """A grammar that writes down when its masks are made."""

    def __init__(self, n: int, log: list[str]) -> None:
        super().__init__(n)
        self._log = log

    def mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        self._log.append("mask")
        return super().mask()

    def accept(self, token: int) -> bool:
        self.seen.append(token)
        return True


def test_masks_are_made_while_the_device_has_a_step_to_do() -> None:
    """Free rows wait for no mask: a step is queued and not yet read at each of them."""
    log: list[str] = []
    plan = split(3, 64)
    b = Bench(plan, runner=Logged(plan.pool, log))
    free = b.ask([1, 2, 3], n_predict=30, sampling=FREE)
    b.turn(4)
    match(b, [4, 5, 6], Noted(8, log))
    b.run()
    masks = [n for n, what in enumerate(log) if what == "mask"]
    assert len(masks) == 8
    for n in masks:
        assert log[:n].count("queued") == log[:n].count("read") + 1
    assert len(b.tokens(free)) == 30
