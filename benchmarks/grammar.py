"""What one constrained answer costs the free answers beside it.

    python -m benchmarks.grammar --model SmolLM2-135M-Instruct.Q4_1.gguf --out out.json

Two sides share one model, each with an engine loop and four answers of its own: on one
side all are free, on the other one has to match a JSON schema. The sides take turns of
a few steps, so that a machine with other work to do disturbs both alike. What counts
is the speed of the same three free answers: the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import has_gpu, this_machine
from benchmarks.models import mx
from mlxceld.engine import caches, linear
from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.grammar import Grammars
from mlxceld.engine.messages import (
    Delta,
    Done,
    Failed,
    Generate,
    GrammarSpec,
    ModelSource,
    Sampling,
    Up,
)
from mlxceld.engine.model import Loaded, load_model
from mlxceld.engine.sampling import Sampler
from mlxceld.engine.scheduler import Scheduler
from mlxceld.plan import Geometry, Wish, make_plan

FREE = 3
"""Answers whose speed is measured; one more runs beside them."""

MOST_LOSS = 0.10
"""The share of their speed that free answers may lose."""

SCHEMA = {
    "type": "array",
    "minItems": 1000,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 24},
            "kind": {"enum": ["river", "mountain", "lake", "forest"]},
            "height": {"type": "integer", "minimum": 0, "maximum": 9000},
            "open": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        },
        "required": ["name", "kind", "height", "open", "tags"],
        "additionalProperties": False,
    },
}
"""Names, choices, numbers and lists, and no end before the free answers have theirs."""

PROMPTS = (
    "Write a long story about a fox that crosses a river.",
    "Explain how bread is made, step by step and in detail.",
    "Describe a walk through an old town by the sea.",
    "List mountains and rivers of the world as JSON.",
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Some steps of one side; times in seconds."""

    tokens: int
    """Of the free answers."""
    beside: int
    """Of the fourth answer."""
    seconds: float
    masks: int
    mask_seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second of each free answer."""
        return self.tokens / FREE / self.seconds


@dataclass
class _Heard:
    """Counts the tokens that the front would be told of."""

    counts: list[int] = field(default_factory=lambda: [0] * len(PROMPTS))

    def __call__(self, message: Up) -> None:
        if isinstance(message, Failed):
            raise RuntimeError(message.message)
        if isinstance(message, Delta | Done):
            self.counts[message.id] += len(message.tokens)


class _Timed:
    """A matcher with a clock."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self.seconds = 0.0
        self.masks = 0

    def mask(self) -> Any:
        begin = time.perf_counter()
        mask = self._matcher.mask()
        self.seconds += time.perf_counter() - begin
        self.masks += 1
        return mask

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matcher, name)


class Side:
    """An engine loop with four answers; the last one may be constrained."""

    def __init__(
        self, loaded: Loaded, grammars: Grammars, n: int, *, constrained: bool
    ) -> None:
        """`n` is the most tokens of an answer."""
        gpu = loaded.device.type == mx.DeviceType.gpu
        map_ = caches.measure(loaded.model)
        slots = len(PROMPTS)
        plan = make_plan(
            Wish("llama-compat", (n + 512) * slots, slots),
            Geometry(131072, map_.bytes_per_token, map_.fixed_bytes_per_slot),
        )
        text, info = loaded.text, loaded.info
        runner = ModelRunner(
            loaded.model,
            map_,
            Sampler(info.n_vocab, sorted(text.eos_ids), text),
            slots=slots,
            cells=plan.cells,
            cell_major=gpu and not mx.metal.is_available(),
            batched=True,
            pipelined=gpu,
        )
        self._heard = _Heard()
        self._scheduler = Scheduler(plan, text, runner, self._heard)
        spec = GrammarSpec("json_schema", json.dumps(SCHEMA))
        self._matcher = _Timed(grammars.compile(spec))
        for number, words in enumerate(PROMPTS):
            prompt = text.encode([words], add_special=True, parse_special=True)
            rules = Sampling(seed=number, ignore_eos=True)
            bound = self._matcher if constrained and number == FREE else None
            asked = Generate(number, list(prompt), rules, n_predict=n)
            self._scheduler.submit(asked, prompt, bound)
        while not all(self._heard.counts):
            self._scheduler.advance()
            self._scheduler.read_chunk()

    def turn(self, steps: int) -> Turn:
        """Take some steps."""
        matcher = self._matcher
        before, masks, spent = list(self._heard.counts), matcher.masks, matcher.seconds
        begin = time.perf_counter()
        for _ in range(steps):
            self._scheduler.advance()
        seconds = time.perf_counter() - begin
        gained = [
            now - then for now, then in zip(self._heard.counts, before, strict=True)
        ]
        return Turn(
            sum(gained[:FREE]),
            gained[FREE],
            seconds,
            matcher.masks - masks,
            matcher.seconds - spent,
        )


def measure(loaded: Loaded, steps: int, pairs: int) -> Iterator[tuple[Turn, Turn]]:
    """Pairs of a free and a constrained turn, the order changing from pair to pair."""
    grammars = Grammars(loaded.text, loaded.info.n_vocab)
    most = (pairs + 2) * steps
    free = Side(loaded, grammars, most, constrained=False)
    bound = Side(loaded, grammars, most, constrained=True)
    for side in (free, bound):
        side.turn(steps)
    for number in range(pairs):
        if number % 2:
            first = free.turn(steps)
            yield first, bound.turn(steps)
        else:
            second = bound.turn(steps)
            yield free.turn(steps), second


def loss_of(pairs: Sequence[tuple[Turn, Turn]]) -> float:
    """The share of their speed that the free answers lose, the median of all pairs."""
    return 1 - statistics.median(bound.rate / free.rate for free, bound in pairs)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.grammar",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="PATH", help="a GGUF file or an MLX folder")
    add("--device", choices=["cpu", "gpu"], default="gpu" if has_gpu() else "cpu")
    add("--pairs", type=int, default=40, help="turns of each side (default: 40)")
    add("--steps", type=int, default=4, help="steps in a turn (default: 4)")
    add("--out", type=Path, metavar="FILE", help="write every turn as JSON")
    args = parser.parse_args(argv)
    loaded = load_model(
        ModelSource(path=args.model),
        device=args.device,
        dequantize="auto",
        progress=lambda *_: None,
    )
    if loaded.device.type == mx.DeviceType.gpu and not mx.metal.is_available():
        # As the daemon does at load.
        linear.join_rows(loaded.model)
    machine, name = this_machine(args.device), Path(args.model).name
    print(f"# {machine}, {name}, {args.steps} steps in a turn")
    pairs = list(measure(loaded, args.steps, args.pairs))
    loss = loss_of(pairs)
    print("| of a turn | free | beside a schema |\n| --- | --- | --- |")
    for what, of in (
        ("tokens/s of a free answer", lambda turn: turn.rate),
        ("tokens/s of the fourth", lambda turn: turn.beside / turn.seconds),
        ("ms of a step", lambda turn: 1e3 * turn.seconds / args.steps),
        ("ms of a mask", lambda turn: 1e3 * turn.mask_seconds / (turn.masks or 1)),
    ):
        sides = [statistics.median(map(of, side)) for side in zip(*pairs, strict=True)]
        print(f"| {what} | {sides[0]:.2f} | {sides[1]:.2f} |")
    fine = loss < MOST_LOSS
    words = "less" if fine else "not less"
    print(f"\nThe free answers lose {loss:.1%}, {words} than {MOST_LOSS:.0%}")
    if args.out:
        turns = [[asdict(turn) | {"rate": turn.rate} for turn in p] for p in pairs]
        report = {"machine": machine, "model": name, "loss": loss, "pairs": turns}
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
