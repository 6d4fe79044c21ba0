"""Real models in the test's own process: tiny ones, run by scheduler and runner.

Beside them stands the independent answer: mlx-lm's model and caches in a plain loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# isort: off
from mlxceld.engine import blas

blas.load_blas()
import mlx.core as mx  # noqa: E402
# isort: on

from mlxceld.engine import attention  # noqa: E402

attention.install()
mx.set_default_device(mx.cpu)

from mlx_lm.models.cache import make_prompt_cache  # noqa: E402
from mlx_lm.utils import load_model  # noqa: E402

from mlxceld.engine import caches  # noqa: E402
from mlxceld.engine.batch import ModelRunner  # noqa: E402
from mlxceld.engine.messages import (  # noqa: E402
    Delta,
    Done,
    Failed,
    Fault,
    Generate,
    Sampling,
    Up,
)
from mlxceld.engine.runner import Part, Row  # noqa: E402
from mlxceld.engine.sampling import Sampler  # noqa: E402
from mlxceld.engine.scheduler import Limits, Scheduler  # noqa: E402
from mlxceld.engine.slot import Request  # noqa: E402
from mlxceld.engine.text import Text  # noqa: E402
from mlxceld.plan import Geometry, Plan, Wish, make_plan  # noqa: E402
from tests.tiny import VOCAB_SIZE, tiny_model_dir  # noqa: E402

EOS = 2
WORDS = Text(
    [f"<{i}>".encode() for i in range(VOCAB_SIZE)],
    lambda text, special: [],
    eos_ids=[EOS],
)
"""A vocabulary whose texts show the tokens: token 7 is `<7>`."""


@dataclass
class Model:
    """A loaded model and what its caches were measured to be."""

    path: Path
    model: Any
    map: caches.CacheMap
    batched: bool = True

    def runner(
        self,
        slots: int,
        cells: int,
        *,
        cell_major: bool = False,
        pipelined: bool = False,
        grain: int = 1,
    ) -> ModelRunner:
        return ModelRunner(
            self.model,
            self.map,
            Sampler(VOCAB_SIZE, [EOS]),
            slots=slots,
            cells=cells,
            cell_major=cell_major,
            batched=self.batched,
            pipelined=pipelined,
            grain=grain,
        )

    def plan(self, wish: Wish) -> Plan:
        geometry = Geometry(
            n_ctx_train=16384,
            kv_bytes_per_token=self.map.bytes_per_token,
            fixed_bytes_per_slot=self.map.fixed_bytes_per_slot,
            measured=True,
        )
        return make_plan(wish, geometry)


def tiny_model(where: Any, model_type: str = "llama", **overrides: Any) -> Model:
    """A tiny random model of a family, loaded by mlx-lm onto the CPU."""
    path = tiny_model_dir(where, model_type=model_type, **overrides)
    model, _ = load_model(path)
    return Model(path, model, caches.measure(model))


@dataclass
class Answer:
    """What the front is told about one request."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    stop_type: str = ""
    n_cached: int = 0


@dataclass
class Run:
    """What a whole run gave: an answer for each request, and what it took."""

    answers: dict[int, Answer]
    preempted: int
    moves: int
    most_live: int
    most_kv_bytes: int
    most_rows: int
    along: int
    """Steps that took a prompt chunk along."""


def serve(
    model: Model,
    requests: Sequence[tuple[Any, ...]],
    wish: Wish,
    *,
    every: int = 1,
    chunk: int = 64,
    cell_major: bool = False,
    pipelined: bool = False,
) -> Run:
    """Serve the requests, one more arriving at every `every`-th turn of the loop.

    Each is what `Scheduler.submit` takes.
    An AssertionError tells of a request that failed.
    """
    plan = model.plan(wish)
    runner = model.runner(
        plan.slots, plan.cells, cell_major=cell_major, pipelined=pipelined
    )
    seen = _Watched(runner)
    out: list[Up] = []
    limits = Limits(prefill_chunk=chunk)
    scheduler = Scheduler(plan, WORDS, seen, out.append, limits=limits)
    coming = list(requests)
    most_live = most_kv_bytes = turn = 0
    while coming or scheduler.busy:
        if coming and turn % every == 0:
            scheduler.submit(*coming.pop(0))
        scheduler.advance()
        scheduler.read_chunk()
        snapshot = scheduler.snapshot()
        most_live = max(most_live, snapshot.n_live)
        most_kv_bytes = max(most_kv_bytes, snapshot.kv_bytes)
        turn += 1
    return Run(
        answers=collect(out),
        preempted=scheduler.tally.preempted,
        moves=seen.moves,
        most_live=most_live,
        most_kv_bytes=most_kv_bytes,
        most_rows=seen.most_rows,
        along=seen.along,
    )


class _Watched:
    """A runner that counts what it is asked."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.pipelined = runner.pipelined
        self.reads_together = runner.reads_together
        self.moves = 0
        self.along = 0
        self.most_rows = 0

    @property
    def kv_bytes(self) -> int:
        return self._runner.kv_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    @property
    def takes_along(self) -> bool:
        return self._runner.takes_along

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Any:
        self.most_rows = max(self.most_rows, len(rows))
        self.along += part is not None
        return self._runner.step(rows, part)

    def move(self, moves: Sequence[Any]) -> None:
        self.moves += len(moves)
        self._runner.move(moves)


def collect(out: Sequence[Up]) -> dict[int, Answer]:
    """The answer of each request, from the messages for the front."""
    answers: dict[int, Answer] = {}
    for message in out:
        assert not isinstance(message, Failed), message.message
        assert not isinstance(message, Fault), message.trace
        if isinstance(message, Delta | Done):
            answer = answers.setdefault(message.id, Answer())
            answer.tokens += message.tokens
            answer.text += message.text
        if isinstance(message, Done):
            answer.stop_type = message.stop_type
            answer.n_cached = message.n_cached
    return answers


def greedy(
    model: Any, prompt: Sequence[int], n: int, ends: Iterable[int] = (EOS,)
) -> list[int]:
    """The `n` likeliest tokens after a prompt, by mlx-lm's own caches, one text alone.

    The ends of text are never taken.
    """
    own = make_prompt_cache(model)
    if len(prompt) > 1:
        model(mx.array([prompt[:-1]]), cache=own)
    token = prompt[-1]
    found = []
    for _ in range(n):
        logits = np.array(model(mx.array([[token]]), cache=own)[0, -1])
        logits[list(ends)] = -np.inf
        token = int(logits.argmax())
        found.append(token)
    return found


def ask(
    id_: int, prompt: list[int], n_predict: int = -1, **sampling: Any
) -> tuple[Generate, list[int]]:
    """A greedy request that no end of text stops, unless `sampling` says otherwise."""
    stop = sampling.pop("stop", [])
    cache_prompt = sampling.pop("cache_prompt", False)
    rules = Sampling(**({"temperature": 0.0, "ignore_eos": True} | sampling))
    message = Generate(
        id_, [], rules, n_predict=n_predict, stop=stop, cache_prompt=cache_prompt
    )
    return message, prompt


def row(
    sampling: Sampling | None = None,
    *,
    slot: int = 0,
    start: int = 0,
    position: int = 0,
    token: int | None = 5,
    uniform: float = 0.5,
    prompt: Sequence[int] = (5,),
    output: Sequence[int] = (),
    id_: int = 0,
) -> Row:
    """A line of a decode step, as the scheduler would make it."""
    rules = sampling or Sampling(temperature=0.0, ignore_eos=True)
    request = Request.create(
        Generate(id_, [], rules), list(prompt), 4096, WORDS, arrived=0.0, serial=id_
    )
    request.output.extend(output)
    return Row(slot, start, position, token, uniform, request)


def peak_of(action: Any) -> int:
    """Bytes by which MLX's memory rises above its level while `action` runs."""
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    action()
    mx.synchronize()
    return int(mx.get_peak_memory() - before)
