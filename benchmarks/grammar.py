"""What one constrained answer costs the free answers beside it.

    python -m benchmarks.grammar --model SmolLM2-135M-Instruct.Q4_1.gguf --out out.json

Four answers run at once in the daemon's own engine. In one half of the runs all are
free; in the other one of them has to match a JSON schema. Both halves are run in
turns, `--pairs` times; what counts is the speed of the same three free answers, and a
ratio is the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine import _has_gpu, _machine
from mlxceld.engine.engine import Engine
from mlxceld.engine.load import load
from mlxceld.engine.messages import (
    Delta,
    Done,
    Failed,
    Generate,
    GrammarSpec,
    Load,
    ModelSource,
    Sampling,
    Up,
)
from mlxceld.engine.scheduler import Scheduler
from mlxceld.plan import Wish

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


@dataclass
class Run:
    """One run of four answers; times in seconds."""

    constrained: bool
    tokens: int
    """Of the free answers, while all four ran."""
    beside: int
    """Of the fourth answer in that time."""
    seconds: float
    masks: int = 0
    mask_seconds: float = 0.0
    """Spent on the masks in that time."""

    @property
    def rate(self) -> float:
        """Tokens per second of each free answer."""
        return self.tokens / FREE / self.seconds if self.seconds else 0.0


@dataclass
class _Heard:
    """Counts the tokens that the front would be told of."""

    counts: dict[int, int] = field(default_factory=dict)
    ended: int = 0

    def __call__(self, message: Up) -> None:
        if isinstance(message, Failed):
            raise RuntimeError(message.message)
        if isinstance(message, Delta | Done):
            known = self.counts.get(message.id, 0)
            self.counts[message.id] = known + len(message.tokens)
        self.ended += isinstance(message, Done)


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


def serve(engine: Engine, n_predict: int, *, constrained: bool) -> Run:
    """Run the four answers until the first of them ends."""
    heard = _Heard()
    scheduler = Scheduler(engine.plan, engine.vocabulary, engine.runner, heard)
    assert engine.grammars is not None
    spec = GrammarSpec("json_schema", json.dumps(SCHEMA))
    matcher = _Timed(engine.grammars.compile(spec))
    for number, text in enumerate(PROMPTS):
        prompt = engine.vocabulary.encode([text], add_special=True, parse_special=True)
        asked = Generate(
            number,
            list(prompt),
            Sampling(seed=number, ignore_eos=True),
            n_predict=n_predict,
            cache_prompt=False,
        )
        last = number == FREE
        scheduler.submit(asked, prompt, matcher if constrained and last else None)
    while len(heard.counts) < len(PROMPTS):
        scheduler.advance()
        scheduler.read_chunk()
    before, masked, spent = dict(heard.counts), matcher.masks, matcher.seconds
    begin = time.perf_counter()
    while not heard.ended:
        scheduler.advance()
    seconds = time.perf_counter() - begin
    gained = [heard.counts[number] - before[number] for number in range(len(PROMPTS))]
    for number in range(len(PROMPTS)):
        scheduler.cancel(number)
    while scheduler.busy:
        scheduler.advance()
    return Run(
        constrained,
        sum(gained[:FREE]),
        gained[FREE],
        seconds,
        matcher.masks - masked,
        matcher.seconds - spent,
    )


def measure(engine: Engine, n_predict: int, pairs: int) -> list[tuple[Run, Run]]:
    """Pairs of a free and a constrained run, the order changing from pair to pair."""
    found = []
    for turn in range(pairs):
        order = (False, True) if turn % 2 else (True, False)
        runs = [serve(engine, n_predict, constrained=bound) for bound in order]
        free, bound = sorted(runs, key=lambda run: run.constrained)
        found.append((free, bound))
    return found


def loss_of(pairs: Sequence[tuple[Run, Run]]) -> float:
    """The share of their speed that the free answers lose, the median of all pairs."""
    return 1 - statistics.median(bound.rate / free.rate for free, bound in pairs)


def load_engine(model: str, device: str, n_predict: int) -> Engine:
    """The daemon's engine with a slot for each of the answers."""
    slots = len(PROMPTS)
    wish = Wish("llama-compat", (n_predict + 512) * slots, slots)
    order = Load(ModelSource(path=model), wish, device=device)
    return load(order, lambda progress: None)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.grammar",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="PATH", help="a GGUF file or an MLX folder")
    add("--device", choices=["cpu", "gpu"], default="gpu" if _has_gpu() else "cpu")
    add("--pairs", type=int, default=5, help="runs of each half (default: 5)")
    add("--tokens", type=int, default=96, help="length of an answer (default: 96)")
    add("--out", type=Path, metavar="FILE", help="write every run as JSON")
    args = parser.parse_args(argv)
    engine = load_engine(args.model, args.device, args.tokens)
    # Grammars are compiled and kernels tuned before anything is timed.
    serve(engine, 16, constrained=True)
    pairs = measure(engine, args.tokens, args.pairs)
    loss = loss_of(pairs)
    machine = _machine(args.device)
    print(f"# {machine}, {Path(args.model).name}")
    print("| pair | free tok/s | beside a schema tok/s | loss | mask ms | 4th tok/s |")
    print("| --- " * 6 + "|")
    for number, (free, bound) in enumerate(pairs, 1):
        mask = 1e3 * bound.mask_seconds / max(bound.masks, 1)
        cells = [
            f"{number}",
            f"{free.rate:.1f}",
            f"{bound.rate:.1f}",
            f"{1 - bound.rate / free.rate:.1%}",
            f"{mask:.2f}",
            f"{bound.beside / bound.seconds:.1f}",
        ]
        print(f"| {' | '.join(cells)} |")
    fine = loss < MOST_LOSS
    words = "within" if fine else "more than"
    print(f"\nloss of the free answers: {loss:.1%}, {words} {MOST_LOSS:.0%}")
    if args.out:
        report = {
            "machine": machine,
            "model": Path(args.model).name,
            "loss": loss,
            "pairs": [[asdict(run) | {"rate": run.rate} for run in p] for p in pairs],
        }
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
