"""Drives a scheduler turn by turn, with a clock that only the model moves.

`CellRunner` is a model whose every token depends on all cells of its span, so that a
token comes out wrong as soon as a single cell was lost, mixed up or not moved along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from mlxceld.engine import messages as m
from mlxceld.engine.runner import Part, Probability, Row, Runner, Saved
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.engine.spans import Move
from mlxceld.engine.text import Text
from mlxceld.plan import Plan
from tests.fake import EOS, Script, ScriptedRunner, Words

Ended = TypeVar("Ended", m.Done, m.Failed)


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def split(slots: int, slot_ctx: int) -> Plan:
    """A plan of fixed partitions."""
    return Plan("llama-compat", slots, slot_ctx, slots * slot_ctx, shared=False)


def shared(slots: int, pool: int, slot_ctx: int | None = None) -> Plan:
    """A plan of slots that draw on one pool."""
    return Plan("llama-compat", slots, slot_ctx or pool, pool, shared=True)


def words(n: int, name: str = "w") -> str:
    """A prompt of `n` tokens that shares none with one of another name."""
    return " ".join(f"{name}{i}" for i in range(n))


def next_token(context: Sequence[int], uniform: float) -> int:
    """The token after `context`: each cell and its place count; 0, the end, is rare."""
    total = int(uniform * 1e6)
    for place, token in enumerate(context):
        total = (total * 31 + token * (place + 7)) % 1_000_003
    return total % 61


class CellRunner:
    """Computes `next_token` over a list of cells, as a device does it: in order."""

    def __init__(
        self, cells: int, *, pipelined: bool, trimmable: bool = True, window: int = 0
    ) -> None:
        """What cannot be trimmed is state of the slots; with a `window` that begins
        only when a text is as long."""
        self.pipelined = pipelined
        self.trimmable = self.reads_together = trimmable
        self._window = window
        self.takes_along = False
        self.kv_bytes = cells
        self.cells = [-1] * cells
        self.prefilled: list[tuple[int, int]] = []
        """Slot and number of tokens of each chunk."""
        self.batches: list[list[tuple[int, int]]] = []
        """The same of those that were read as one."""
        self.along: list[tuple[int, int, int]] = []
        """Rows of a step that took a chunk along, its slot and number of tokens."""
        self._last: dict[int, int] = {}
        self._state: dict[int, list[int]] = {}
        self._marks: dict[int, list[int]] = {}

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        self.prefilled.append((slot, len(tokens)))
        for offset, token in enumerate(tokens):
            self._write(slot, start, position + offset, token)

    def prefill_together(self, parts: Sequence[Part]) -> None:
        self.batches.append([(part.slot, len(part.tokens)) for part in parts])
        for part in parts:
            self.prefill(part.slot, part.start, part.position, part.tokens)

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Ready:
        if part is not None:
            self.along.append((len(rows), part.slot, len(part.tokens)))
            self.prefill(part.slot, part.start, part.position, part.tokens)
        tokens = []
        for row in rows:
            read = self._last[row.slot] if row.token is None else row.token
            self._write(row.slot, row.start, row.position, read)
        for row in rows:
            context = self._context(row)
            self._last[row.slot] = next_token(context, row.uniform)
            tokens.append(self._last[row.slot])
        return Ready(tokens)

    def move(self, moves: Sequence[Move]) -> None:
        for move in moves:
            held = self.cells[move.source : move.source + move.n]
            self.cells[move.target : move.target + move.n] = held

    def reusable(self, slot: int, n: int) -> int:
        if self.trimmable or self._short(slot):
            return n
        marked = len(self._marks.get(slot, []))
        return marked if marked <= n else 0

    def rewind(self, slot: int, n: int) -> None:
        if not self.trimmable:
            self._state[slot] = self._state_at(slot, n)
            if len(self._marks[slot]) > n:
                self._marks[slot] = []

    def mark(self, slot: int, n: int) -> None:
        if not self.trimmable:
            assert len(self._state[slot]) == n
            self._marks[slot] = list(self._state[slot])

    def copy(
        self, source: int, target: int, source_start: int, target_start: int, n: int
    ) -> None:
        if self.trimmable:
            held = self.cells[source_start : source_start + n]
            self.cells[target_start : target_start + n] = held
        else:
            self._state[target] = self._state_at(source, n)
            self._marks[target] = list(self._state[target])

    def export(self, slot: int, start: int, n: int) -> Kept:
        if not self.trimmable:
            return Kept(self._state_at(slot, n))
        return Kept(self.cells[start : start + n])

    def forget(self, slot: int) -> None:
        self._state[slot] = []
        self._marks[slot] = []

    def restore(self, slot: int, start: int, saved: Saved) -> None:
        assert isinstance(saved, Kept)
        if self.trimmable:
            self.cells[start : start + saved.n] = saved.tokens
        else:
            self._state[slot] = list(saved.tokens)
            self._marks[slot] = list(saved.tokens)

    def _short(self, slot: int) -> bool:
        return len(self._state.get(slot, [])) < self._window

    def _state_at(self, slot: int, n: int) -> list[int]:
        held = self._state[slot] if self._short(slot) else self._marks[slot]
        assert len(held) == n or (self._short(slot) and len(held) > n)
        return held[:n]

    def _write(self, slot: int, start: int, position: int, token: int) -> None:
        if self.trimmable:
            self.cells[start + position] = token
            return
        # State that can only go on, or begin anew.
        if position == 0:
            self._state[slot] = []
            self._marks[slot] = []
        assert len(self._state[slot]) == position
        self._state[slot].append(token)

    def _context(self, row: Row) -> list[int]:
        if not self.trimmable:
            return self._state[row.slot]
        return self.cells[row.start : row.start + row.position + 1]


@dataclass(frozen=True)
class Kept:
    """Tokens outside the cells; a byte each."""

    tokens: list[int]

    @property
    def n(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        return len(self.tokens)


@dataclass
class Ready:
    """A step that is done."""

    tokens: list[int]

    def read(self) -> list[int]:
        return self.tokens

    def probabilities(self) -> dict[int, Probability]:
        return {}


def draws(seed: int, n: int = 200) -> list[float]:
    """The random numbers of a request with this seed."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    numbers: list[float] = generator.random(n).tolist()
    return numbers


def solo(
    prompt: Sequence[int], limit: int, *, seed: int = 0, ignore_eos: bool = False
) -> list[int]:
    """What `CellRunner` answers to a prompt when nobody else is there."""
    numbers = draws(seed, limit)
    answer: list[int] = []
    while len(answer) < limit:
        answer.append(next_token([*prompt, *answer], numbers[len(answer)]))
        if answer[-1] == EOS and not ignore_eos:
            break
    return answer


class Slow(ScriptedRunner):
    """A scripted runner whose prompts take time on the clock, not on the wall."""

    def __init__(self, script: Script, words: Words, clock: Clock) -> None:
        super().__init__(script, words)
        self._clock = clock
        self.seconds_per_token = 0.0

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        super().prefill(slot, start, position, tokens)
        self._clock.pass_(self.seconds_per_token * len(tokens))


class Bench:
    """A scheduler and everything it said."""

    def __init__(
        self,
        plan: Plan,
        *,
        runner: Runner | None = None,
        script: Script | None = None,
        limits: Limits | None = None,
        vocabulary: Text | None = None,
    ) -> None:
        self.clock = Clock()
        self.words = Words(script or Script())
        self.scripted = Slow(script or Script(), self.words, self.clock)
        self.said: list[m.Up] = []
        self.scheduler = Scheduler(
            plan,
            vocabulary or self.words,
            runner or self.scripted,
            self.said.append,
            limits=limits,
            clock=self.clock,
        )
        self._ids = 0

    def ask(self, prompt: str | Sequence[int], **fields: Any) -> int:
        """Submit a request; its id."""
        self._ids += 1
        if isinstance(prompt, str):
            prompt = self.words.encode([prompt], add_special=False)
        fields.setdefault("sampling", m.Sampling())
        message = m.Generate(id=self._ids, prompt=[], **fields)
        self.scheduler.submit(message, list(prompt))
        return self._ids

    def turn(self, n: int = 1) -> None:
        """What the engine's loop does between two looks at its inbox, `n` times."""
        for _ in range(n):
            self.scheduler.advance()
            self.scheduler.read_chunk()

    def run(self, watch: Callable[[], None] = lambda: None) -> None:
        """Turn until nothing is left to do."""
        for _ in range(20_000):
            if not self.scheduler.busy:
                return
            self.turn()
            watch()
        raise AssertionError("the scheduler never came to rest")

    def answer(self, prompt: str | Sequence[int], **fields: Any) -> m.Done:
        """Ask and wait for the end."""
        request = self.ask(prompt, **fields)
        self.run()
        return self.done(request)

    def of(self, request: int) -> list[Any]:
        """Everything said about one request."""
        return [event for event in self.said if getattr(event, "id", None) == request]

    def done(self, request: int) -> m.Done:
        return self._end(request, m.Done)

    def failed(self, request: int) -> m.Failed:
        return self._end(request, m.Failed)

    def _end(self, request: int, kind: type[Ended]) -> Ended:
        [end] = [e for e in self.of(request) if isinstance(e, m.Done | m.Failed)]
        assert isinstance(end, kind), end
        return end

    def ended(self, request: int) -> bool:
        return any(isinstance(e, m.Done | m.Failed) for e in self.of(request))

    def started(self, request: int) -> m.Started | None:
        found = [e for e in self.of(request) if isinstance(e, m.Started)]
        assert len(found) <= 1
        return found[0] if found else None

    def tokens(self, request: int) -> list[int]:
        """The tokens of an answer, in the order in which they were told."""
        told: list[int] = []
        for event in self.of(request):
            if isinstance(event, m.Delta | m.Done):
                told += event.tokens
                assert event.n_decoded == len(told)
        return told

    def text(self, request: int) -> str:
        return "".join(e.text for e in self.of(request) if hasattr(e, "text"))


class Timed(CellRunner):
    """A runner whose chunks and steps take time on the clock."""

    def __init__(self, cells: int) -> None:
        super().__init__(cells, pipelined=False)
        self.clock = Clock()
        self.token = 0.001
        """Seconds of a prompt's token."""
        self.token_held = 0.0
        """Seconds that each token held adds to a token's time."""
        self.seconds = 0.04
        """Seconds of a step."""

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        super().prefill(slot, start, position, tokens)
        self.wait_for_steps()
        held = position + len(tokens) / 2
        self.clock.pass_(len(tokens) * (self.token + held * self.token_held))

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Ready:
        self.clock.pass_(self.seconds)
        return super().step(rows, part)

    def bench(self, plan: Plan, limits: Limits | None = None) -> Bench:
        """A bench whose clock this runner moves."""
        bench = Bench(plan, runner=self, limits=limits)
        self.clock = bench.clock
        return bench

    def wait_for_steps(self) -> None:
        """Steps are done when they are queued."""
