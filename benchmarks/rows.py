"""What a decode step costs as rows, held tokens, slots and waiting requests grow.

    python -m benchmarks.rows --model 1.2b --held 512 2048 --out rows.json

Three tables: a step by the number of rows, their held lengths equal or spread around
the same mean; memory by the number of slots that one context is divided or shared by;
a step of the most rows while `--queue` requests wait, and while none does. Times are
medians of single steps. *Host* is building and queueing a step, *wait* is what the
host then waits for its tokens, *rest* is everything else in the engine's loop.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import models, ours
from benchmarks.machine import has_gpu, this_machine
from benchmarks.models import mx
from mlxceld.plan import Mode, Wish, make_plan

ROWS = (1, 2, 4, 8, 16, 32)

WARM = 8
"""Steps before the first that counts: kernels are compiled in them."""

QUEUED_PROMPT = 64
"""Tokens of a request that waits."""


@dataclass(frozen=True, slots=True)
class Step:
    """A decode step of `rows` rows; times in milliseconds, sizes in bytes."""

    model: str
    rows: int
    held: int
    """Mean length of the rows when they began to decode."""
    lengths: str
    step_ms: float
    host_ms: float
    wait_ms: float
    rest_ms: float
    active_bytes: int
    peak_bytes: int
    """The most that MLX held while decoding, weights included."""

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return 1e3 * self.rows / self.step_ms


@dataclass(frozen=True, slots=True)
class Memory:
    """What `slots` slots of one context take; sizes in bytes."""

    model: str
    slots: int
    how: str
    context: int
    plan_kv_bytes: int
    kv_bytes: int
    active_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A loop's turn beside `waiting` requests; times in milliseconds."""

    model: str
    rows: int
    waiting: int
    step_ms: float
    step_ms_alone: float
    loop_ms: float
    """The turn without waiting for the device."""
    loop_ms_alone: float
    rest_ms: float
    """Without building and queueing the step as well: what the queue could cost."""
    rest_ms_alone: float
    snapshot_ms: float
    snapshot_ms_alone: float
    submit_us: float
    """One request into the queue, microseconds."""
    cancel_us: float


def lengths(rows: int, held: int, how: str) -> list[int]:
    """Prompt tokens of each row: `equal`, or `spread` evenly around the same mean."""
    if how == "equal" or rows == 1:
        return [held] * rows
    # From a quarter of the mean to seven quarters.
    half = 0.75 * held
    return [round(held - half + 2 * half * row / (rows - 1)) for row in range(rows)]


def step_cost(
    name: str, model: Any, rows: int, held: int, how: str, *, steps: int, chunk: int
) -> Step:
    """Let `rows` rows decode `steps` tokens each and time every step."""
    loop = _filled(name, model, lengths(rows, held, how), WARM + steps, chunk=chunk)
    times = Times(loop)
    for _ in range(steps):
        times.turn()
    return Step(
        name,
        rows,
        held,
        how,
        times.step_ms,
        1e3 * median(loop.runner.queued),
        1e3 * median(loop.runner.waited),
        times.rest_ms,
        mx.get_active_memory(),
        mx.get_peak_memory(),
    )


def memory(
    name: str, model: Any, slots: int, context: int, how: str, *, chunk: int
) -> Memory:
    """Let every slot of a context that is `split` or `shared` decode a little."""
    mode: Mode = "llama-compat"
    wish = Wish(mode, context, slots, kv_unified=how == "shared", min_slot_ctx=1)
    plan = make_plan(wish, ours.geometry(model))
    models.afresh()
    n_vocab = models.SHAPES[name].n_vocab
    loop = ours.build(model, n_vocab, plan, chunk=chunk)
    n = min(64, context // slots // 2)
    loop.fill([n] * slots, n)
    while loop.scheduler.busy:
        loop.turn()
    return Memory(
        name,
        slots,
        how,
        context,
        plan.kv_bytes,
        loop.runner.kv_bytes,
        mx.get_active_memory(),
        mx.get_peak_memory(),
    )


def queue_cost(
    name: str, model: Any, rows: int, waiting: int, *, steps: int, chunk: int
) -> Queue:
    """Blocks of `steps` steps in turns: with `waiting` requests in the queue, without.

    A third of those who wait want slot 0, which is busy, and all have a deadline.
    """
    blocks = 6
    n_predict = WARM + steps * blocks
    loop = _filled(name, model, [64] * rows, n_predict, chunk=chunk, queue=waiting)
    scheduler = loop.scheduler
    scheduler.limits = replace(scheduler.limits, queue_timeout=3600.0)
    text = list(range(4, 4 + QUEUED_PROMPT))
    with_, without = Times(loop), Times(loop)
    submitted, cancelled = [], []
    for block in range(blocks):
        crowded = block % 2 == 1
        asked = range(rows, rows + waiting) if crowded else range(0)
        begin = time.perf_counter()
        for number in asked:
            loop.ask(number, text, 1, id_slot=-1 if number % 3 else 0)
        submitted.append(time.perf_counter() - begin)
        for _ in range(steps):
            (with_ if crowded else without).turn()
        assert len(scheduler.waiting) == len(asked)
        begin = time.perf_counter()
        for number in asked:
            scheduler.cancel(number)
        cancelled.append(time.perf_counter() - begin)
    return Queue(
        name,
        rows,
        waiting,
        with_.step_ms,
        without.step_ms,
        with_.loop_ms,
        without.loop_ms,
        with_.rest_ms,
        without.rest_ms,
        with_.snapshot_ms,
        without.snapshot_ms,
        1e6 * median(submitted[1::2]) / waiting,
        1e6 * median(cancelled[1::2]) / waiting,
    )


class Times:
    """Turns of a loop, each with its own time."""

    def __init__(self, loop: ours.Loop) -> None:
        self._loop = loop
        self._turns: list[float] = []
        self._busy: list[float] = []
        self._rest: list[float] = []
        self._snapshots: list[float] = []

    def turn(self) -> None:
        """One turn of the loop and a look at its state."""
        runner = self._loop.runner
        waited, queued = sum(runner.waited), sum(runner.queued)
        begin = time.perf_counter()
        self._loop.turn()
        end = time.perf_counter()
        self._loop.scheduler.snapshot()
        self._snapshots.append(time.perf_counter() - end)
        self._turns.append(end - begin)
        self._busy.append(end - begin - (sum(runner.waited) - waited))
        self._rest.append(self._busy[-1] - (sum(runner.queued) - queued))

    @property
    def step_ms(self) -> float:
        return 1e3 * median(self._turns)

    @property
    def loop_ms(self) -> float:
        """Without waiting for the device."""
        return 1e3 * median(self._busy)

    @property
    def rest_ms(self) -> float:
        """Without building and queueing steps either."""
        return 1e3 * median(self._rest)

    @property
    def snapshot_ms(self) -> float:
        return 1e3 * median(self._snapshots)


def _filled(
    name: str,
    model: Any,
    prompts: Sequence[int],
    n_predict: int,
    *,
    chunk: int,
    queue: int = 0,
) -> ours.Loop:
    """A loop whose rows all decode; what was measured up to here does not count."""
    # The last row to start decides, and the first must not have ended before.
    most = n_predict + 2 * len(prompts) + 2
    pool = sum(prompts) + (most + 256) * len(prompts)
    wish = Wish("llama-compat", pool, len(prompts), kv_unified=True)
    plan = make_plan(wish, ours.geometry(model))
    models.afresh()
    n_vocab = models.SHAPES[name].n_vocab
    loop = ours.build(model, n_vocab, plan, chunk=chunk, queue=queue + len(prompts))
    loop.fill(prompts, most)
    for _ in range(WARM):
        loop.turn()
    mx.reset_peak_memory()
    loop.runner.reset()
    return loop


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rows",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", choices=sorted(models.SHAPES), nargs="+", default=["tiny"])
    add("--rows", type=int, nargs="+", default=list(ROWS), metavar="N")
    add("--held", type=int, nargs="+", default=[512], metavar="TOKENS")
    add("--context", type=int, default=32768, help="of all slots (default: 32768)")
    add("--queue", type=int, default=10000, metavar="N", help="0 leaves it out")
    add("--steps", type=int, default=128, help="that are timed (default: 128)")
    add("--chunk", type=int, default=512, help="prompt chunk (default: 512)")
    add("--device", choices=["cpu", "gpu"], default="gpu" if has_gpu() else "cpu")
    add("--out", type=Path, metavar="FILE", help="write all numbers as JSON")
    args = parser.parse_args(argv)
    report: dict[str, Any] = {"machine": this_machine(args.device)}
    report |= {"steps": [], "slots": [], "queue": []}
    print(f"# {report['machine']}")
    for name in args.model:
        device = mx.gpu if args.device == "gpu" else mx.cpu
        model = models.build(name, mx.Device(device))
        with ours.prepared(model):
            for kind, head, found in (
                ("steps", _STEPS, _steps(name, model, args)),
                ("slots", _SLOTS, _slots(name, model, args)),
                ("queue", _QUEUE, _queues(name, model, args)),
            ):
                _table(report[kind], head, found)
                if args.out:
                    args.out.write_text(json.dumps(report, indent=1) + "\n")
        del model
        mx.clear_cache()


def _steps(name: str, model: Any, args: argparse.Namespace) -> Iterator[Any]:
    for held in args.held:
        for how in ("equal", "spread"):
            for rows in args.rows:
                if how == "equal" or rows > 1:
                    costs = {"steps": args.steps, "chunk": args.chunk}
                    yield step_cost(name, model, rows, held, how, **costs)


def _slots(name: str, model: Any, args: argparse.Namespace) -> Iterator[Any]:
    for how in ("split", "shared"):
        for slots in args.rows:
            yield memory(name, model, slots, args.context, how, chunk=args.chunk)


def _queues(name: str, model: Any, args: argparse.Namespace) -> Iterator[Any]:
    if args.queue:
        costs = {"steps": max(8, args.steps // 3), "chunk": args.chunk}
        yield queue_cost(name, model, min(8, max(args.rows)), args.queue, **costs)


_STEPS = (
    "| model, held | rows | step ms | host ms | wait ms | rest ms | tokens/s | "
    "step ms of a row | active GiB | peak GiB |"
)
_SLOTS = "| model, context | slots | plan KV GiB | KV GiB | active GiB | peak GiB |"
_QUEUE = (
    "| model, rows | waiting | step ms | alone | loop ms | alone | rest ms | alone | "
    "snapshot ms | alone | submit us | cancel us |"
)


def _table(numbers: list[dict[str, Any]], head: str, found: Iterator[Any]) -> None:
    print(f"\n{head}\n{'| --- ' * (head.count('|') - 1)}|")
    for one in found:
        numbers.append(asdict(one))
        if isinstance(one, Step):
            numbers[-1]["rate"] = one.rate
        print(f"| {' | '.join(_cells(one))} |", flush=True)


def _cells(one: Step | Memory | Queue) -> list[str]:
    def gib(n: int) -> str:
        return f"{n / (1 << 30):.3f}"

    match one:
        case Step():
            times = one.step_ms, one.host_ms, one.wait_ms, one.rest_ms
            return [
                f"{one.model}, {one.held} {one.lengths}",
                f"{one.rows}",
                *(f"{value:.2f}" for value in times),
                f"{one.rate:.0f}",
                f"{one.step_ms / one.rows:.3f}",
                gib(one.active_bytes),
                gib(one.peak_bytes),
            ]
        case Memory():
            sizes = one.plan_kv_bytes, one.kv_bytes, one.active_bytes, one.peak_bytes
            what = f"{one.model}, {one.context} {one.how}"
            return [what, f"{one.slots}", *map(gib, sizes)]
    times = one.step_ms, one.step_ms_alone, one.loop_ms, one.loop_ms_alone
    looks = one.rest_ms, one.rest_ms_alone, one.snapshot_ms, one.snapshot_ms_alone
    return [
        f"{one.model}, {one.rows}",
        f"{one.waiting}",
        *(f"{value:.3f}" for value in (*times, *looks)),
        f"{one.submit_us:.1f}",
        f"{one.cancel_us:.1f}",
    ]


if __name__ == "__main__":
    main()
