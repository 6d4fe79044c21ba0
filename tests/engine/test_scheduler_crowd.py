"""Everything at once, by chance: whoever is left gets the answer that it gets alone.

Slots of all kinds of models, prompts that are copied, joined or ride with a step, full
contexts that shift, texts that are kept in RAM, saved and restored, clients that leave,
and devices that fail now and then. After every half turn each cell is where the map
says, and what a slot remembers is what its cells hold.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest

from mlxceld.engine import keeper, prefixes, prompts, spans, store
from mlxceld.engine import messages as m
from mlxceld.engine.runner import Part, Row, Saved
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.engine.slot import Slot
from mlxceld.engine.spans import Move, Spans
from mlxceld.pacing import PACINGS
from mlxceld.plan import Plan
from tests.engine.driving import Bench, CellRunner, Ready, draws, next_token
from tests.engine.driving import shared as shared_plan
from tests.engine.driving import split as split_plan
from tests.engine.test_slotactions import Shelf
from tests.fake import EOS

BROKEN, EXCEEDED = "by chance", "Context size has been exceeded."

ACTIONS: list[Literal["save", "restore", "erase"]] = [
    "save",
    "restore",
    "restore",
    "erase",
]


class Watched(CellRunner):
    """Writes into the spans of its slots alone, and fails at `risk`."""

    def __init__(
        self, plan: Plan, chance: random.Random, risk: float, kind: str
    ) -> None:
        super().__init__(
            plan.cells,
            pipelined=chance.random() < 0.5,
            trimmable=kind == "cells",
            window=12 if kind == "window" else 0,
        )
        self.reads_together = self.trimmable and chance.random() < 0.7
        # No device does both.
        along = self.trimmable and not self.pipelined
        self.takes_along = along and chance.random() < 0.7
        self.spans = Spans(plan.slots, plan.slot_ctx, plan.pool, shared=plan.shared)
        self._chance, self._risk = chance, risk

    def _maybe(self, times: int = 1) -> None:
        if self._chance.random() < self._risk * times:
            raise RuntimeError(BROKEN)

    def _write(self, slot: int, start: int, position: int, token: int) -> None:
        assert start == self.spans.start(slot, position + 1)
        super()._write(slot, start, position, token)

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        super().prefill(slot, start, position, tokens[:-1])
        self._maybe()
        super().prefill(slot, start, position + len(tokens) - 1, tokens[-1:])

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Ready:
        assert len({row.slot for row in rows} | {part and part.slot}) == len(rows) + 1
        self._maybe(5 if part else 1)
        ready = super().step(rows, part)
        self._maybe()
        return ready

    def move(self, moves: Sequence[Move]) -> None:
        for move in moves:
            assert move.target == self.spans.start(move.slot, move.n)
        super().move(moves)

    def copy(
        self, source: int, target: int, source_start: int, target_start: int, n: int
    ) -> None:
        assert source_start == self.spans.start(source, n)
        assert target_start == self.spans.start(target, n)
        self._maybe()
        super().copy(source, target, source_start, target_start, n)

    def export(self, slot: int, start: int, n: int) -> Saved:  # type: ignore[override]
        assert start == self.spans.start(slot, n)
        self._maybe()
        return super().export(slot, start, n)

    def restore(self, slot: int, start: int, saved: Saved) -> None:
        assert start == self.spans.start(slot, saved.n)
        super().restore(slot, start, saved)
        self._maybe()

    def holds(self, slot: Slot, tokens: Sequence[int]) -> bool:
        """Whether the slot can go on from these tokens, or from none of them."""
        n = self.reusable(slot.id, len(tokens))
        if self.trimmable:
            start = self.spans.start(slot.id, n)
            return self.cells[start : start + n] == tokens
        return not n or self._state_at(slot.id, n) == tokens[:n]


class Anything:
    """A grammar that allows every token, but wants to see each before the next."""

    ended = False

    def mask(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.ones(3, dtype=np.bool_)

    def accept(self, token: int) -> bool:
        return True


@dataclass(frozen=True)
class Asked:
    """A request of the crowd."""

    arrives: int
    """The turn before which it is submitted."""
    prompt: list[int]
    n_predict: int
    shift: m.Shift | None
    seed: int
    ignore_eos: bool
    stepwise: bool
    cache_prompt: bool
    id_slot: int
    leaves: int | None
    """The turn before which its client goes away."""

    @classmethod
    def by(cls, chance: random.Random, text: list[int], plan: Plan) -> Asked:
        keep, discard = chance.choice([0, 2, 5, -1, 99]), chance.choice([0, 0, 4, 99])
        return cls(
            arrives=chance.randrange(40),
            prompt=text[: chance.choice([1, 2, chance.randrange(1, plan.slot_ctx)])],
            n_predict=chance.choice([-1, 0, 1, 5, 20, 40]),
            shift=m.Shift(keep, discard) if chance.random() < 0.3 else None,
            seed=chance.randrange(4),
            ignore_eos=chance.random() < 0.7,
            stepwise=chance.random() < 0.2,
            cache_prompt=chance.random() < 0.8,
            id_slot=chance.choice([-1, -1, -1, 0, plan.slots - 1]),
            leaves=chance.choice([None, None, chance.randrange(1, 80)]),
        )

    def alone(self, n_ctx: int) -> list[int]:
        """Its answer, worked out on a list of tokens."""
        text, answer = list(self.prompt), list[int]()
        limit = n_ctx - len(text)
        if self.n_predict >= 0:
            limit = min(limit, max(1, self.n_predict))
        if self.shift is not None:
            # Twice the context is what the model was trained for.
            most = 2 * n_ctx - len(text)
            limit = most if self.n_predict < 0 else max(1, self.n_predict)
        for number in draws(self.seed, limit):
            if len(text) == n_ctx:
                assert self.shift is not None
                keep = len(self.prompt) if self.shift.keep < 0 else self.shift.keep
                keep = max(0, min(keep, n_ctx - 4, n_ctx - 2))
                left = n_ctx - 1 - keep
                go = max(1, min(self.shift.discard or left // 2, left))
                text = text[:keep] + text[keep + go :]
            answer.append(next_token(text, number))
            text.append(answer[-1])
            if answer[-1] == EOS and not self.ignore_eos:
                break
        return answer


class Crowd:
    """One plan, one runner, and what comes to them."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        pool = chance.choice([16, 24, 32, 56])
        ctx, slots = chance.choice([pool, pool, pool // 2 + 1]), chance.randrange(2, 6)
        plan = split_plan(slots, 24)
        if chance.random() < 0.8:
            plan = shared_plan(slots, pool, ctx)
        ram = chance.choice([0, 20, 80])
        self.plan = replace(plan, kv_bytes_per_token=1, cache_ram_bytes=ram)
        self.faulty = chance.random() < 0.3
        kind = chance.choice(["cells", "cells", "state", "window"])
        risk = 0.02 if self.faulty else 0.0
        self.runner = Watched(self.plan, chance, risk, kind)
        self.bench = Bench(self.plan, runner=self.runner)
        self.scheduler = self.bench.scheduler = Scheduler(
            self.plan,
            self.bench.words,
            self.runner,
            self.bench.said.append,
            limits=self._limits(),
            clock=self.bench.clock,
            files=Shelf(),
        )
        self.runner.spans = self.scheduler._room.spans
        texts = [[chance.randrange(2, 70) for _ in range(96)] for _ in range(2)]
        texts += [texts[0][:n] + texts[1] for n in (8, 20)]
        self.asked = {
            number: Asked.by(chance, chance.choice(texts), self.plan)
            for number in range(1, chance.choice([3, 6, 10]))
        }
        self.gone: set[int] = set()

    def _limits(self) -> Limits:
        chance, pacing = self.chance, PACINGS["cpu"]
        most = chance.choice([1, 5, 8, 512])
        together = chance.choice([8, 64])
        pacing = replace(
            pacing, least=4, together=together, grain=chance.choice([1, 1, 4])
        )
        overflow = chance.choice(["preempt", "preempt", "error"])
        n_train = 2 * self.plan.slot_ctx
        return Limits(most, overflow=overflow, pacing=pacing, n_train=n_train)

    def run(self) -> None:
        """Until nothing is left to do."""
        for turn in range(20_000):
            if turn > 80 and not self.scheduler.busy:
                return
            self._come(turn)
            self._act(turn)
            self._leave(turn)
            self.scheduler.advance()
            self.look()
            self.scheduler.read_chunk()
            self.look()
        raise AssertionError("the scheduler never came to rest")

    def _come(self, turn: int) -> None:
        for number, asked in self.asked.items():
            if asked.arrives == turn:
                rules = m.Sampling(seed=asked.seed, ignore_eos=asked.ignore_eos)
                message = m.Generate(
                    number,
                    [],
                    rules,
                    n_predict=asked.n_predict,
                    shift=asked.shift,
                    cache_prompt=asked.cache_prompt,
                    id_slot=asked.id_slot,
                )
                matcher = Anything() if asked.stepwise else None
                self.scheduler.submit(message, asked.prompt, matcher)

    def _act(self, turn: int) -> None:
        if turn < 60 and self.chance.random() < 0.05:
            what = self.chance.choice(ACTIONS)
            slot, name = (
                self.chance.randrange(self.plan.slots),
                self.chance.choice("ab"),
            )
            action = m.SlotAction(1000 + turn, slot, what, "/x/", name)
            self.scheduler.act(action)

    def _leave(self, turn: int) -> None:
        for number, asked in self.asked.items():
            here = asked.arrives <= turn and not self.bench.ended(number)
            if asked.leaves == turn and here:
                self.scheduler.cancel(number)
                self.gone.add(number)

    def look(self) -> None:
        """The promises about memory."""
        state, slots = self.scheduler.snapshot(), self.scheduler.slots
        assert state.n_live <= self.plan.pool
        assert state.saved_bytes <= self.plan.cache_ram_bytes
        spans = self.runner.spans
        taken = sorted((spans.start(s.id), spans.capacity(s.id)) for s in slots)
        taken = [(start, size) for start, size in taken if size]
        ends = [0, *(start + size for start, size in taken)]
        starts = [*(start for start, _ in taken), self.plan.cells]
        assert all(end <= start for end, start in zip(ends, starts, strict=True))
        for slot in slots:
            assert slot.n_held <= spans.capacity(slot.id)
            tokens, request = slot.tokens, slot.request
            if request is not None:
                tokens = request.tokens[: min(slot.n_held, request.n_tokens - 1)]
            assert request is not None or len(tokens) == slot.n_held
            assert self.runner.holds(slot, tokens)

    def judge(self) -> None:
        """Everybody has had an answer, an end for a reason, or has left."""
        for number, asked in self.asked.items():
            told, wanted = self.bench.tokens(number), asked.alone(self.plan.slot_ctx)
            ends = [
                e for e in self.bench.of(number) if isinstance(e, m.Done | m.Failed)
            ]
            assert len(ends) == (number not in self.gone)
            assert told == wanted[: len(told)]
            for end in ends:
                if isinstance(end, m.Done):
                    assert told == wanted
                    continue
                full = self.plan.shared and self.scheduler.limits.overflow == "error"
                reasons = [BROKEN] * self.faulty + [EXCEEDED] * full
                assert end.message in reasons
        state = self.scheduler.snapshot()
        assert (state.n_live, state.waiting) == (0, 0)


@pytest.mark.parametrize("block", range(6))
def test_in_any_crowd_every_answer_is_that_of_a_request_alone(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that texts of a few tokens meet what is made for long ones.
    monkeypatch.setattr(spans, "_SLACK", 0)
    monkeypatch.setattr(prefixes, "WORTH_COPYING", 2)
    monkeypatch.setattr(prompts, "COMMON", 4)
    for module in (store, keeper):
        monkeypatch.setattr(module, "LEAST_TOKENS", 4)
    for seed in range(25 * block, 25 * block + 25):
        crowd = Crowd(seed)
        crowd.run()
        crowd.judge()
