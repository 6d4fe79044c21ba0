"""Our engine loop against mlx-lm's BatchGenerator, in one process, on random weights.

    python -m benchmarks.engine --model 1.2b --work 8x1024 16384+7x512 --out out.json

Both serve the same requests in turns, `--pairs` times; each number is the median, and
a ratio is the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import models, ours, peer
from benchmarks.machine import has_gpu, this_machine
from benchmarks.measured import Measured
from benchmarks.models import mx
from benchmarks.workloads import Workload, explain, named

_USUAL = ("1x1024", "8x1024", "16x2048", "16384+7x512", "joins", "shared")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", choices=sorted(models.SHAPES), nargs="+", default=["tiny"])
    add("--work", nargs="+", default=list(_USUAL), metavar="WORK", help=explain())
    add("--device", choices=["cpu", "gpu"], default="gpu" if has_gpu() else "cpu")
    add("--pairs", type=int, default=3, help="runs of each side (default: 3)")
    add("--tokens", type=int, default=128, help="length of an answer (default: 128)")
    add("--chunk", type=int, default=2048, help="our prompt chunk (default: 2048)")
    add("--only", choices=["ours", "peer"], help="run one side alone")
    add("--out", type=Path, metavar="FILE", help="write every run as JSON")
    args = parser.parse_args(argv)
    device = mx.gpu if args.device == "gpu" else mx.cpu
    report: dict[str, Any] = {"machine": this_machine(args.device), "runs": []}
    print(f"# {report['machine']}")
    print(_HEAD)
    for name in args.model:
        model = models.build(name, mx.Device(device))
        n_vocab = models.SHAPES[name].n_vocab
        # Kernels are compiled and tuned before anything is timed.
        warm = named("2x64", n_vocab, 16)
        _sides(model, n_vocab, warm, args, 0)
        for spelling in args.work:
            work = named(spelling, n_vocab, args.tokens)
            pairs = [_sides(model, n_vocab, work, args, i) for i in range(args.pairs)]
            print(_line(name, work, pairs), flush=True)
            report["runs"].append(_json(name, work, pairs))
            if args.out:
                args.out.write_text(json.dumps(report, indent=1) + "\n")
        del model
        mx.clear_cache()


_HEAD = (
    "| model, prompts | ours tok/s | mlx-lm tok/s | ratio | ours GiB | mlx-lm GiB | "
    "ratio | host ms | wait ms | prompts tok/s | same tokens |\n" + "| --- " * 11 + "|"
)


def _sides(
    model: Any, n_vocab: int, work: Workload, args: argparse.Namespace, turn: int
) -> dict[str, Measured]:
    """One run of each side, the order changing from pair to pair."""
    sides = {
        "ours": lambda: ours.run(model, n_vocab, work, chunk=args.chunk),
        "peer": lambda: peer.run(model, work),
    }
    order = [args.only] if args.only else ["ours", "peer"]
    return {side: sides[side]() for side in (order if turn % 2 else order[::-1])}


def _line(name: str, work: Workload, pairs: Sequence[dict[str, Measured]]) -> str:
    gib = 1 << 30

    def median(side: str, field: str) -> float:
        values = [getattr(pair[side], field) for pair in pairs if side in pair]
        return statistics.median(values) if values else float("nan")

    def ratio(field: str) -> float:
        both = [pair for pair in pairs if len(pair) == 2]
        found = [
            getattr(pair["ours"], field) / getattr(pair["peer"], field) for pair in both
        ]
        return statistics.median(found) if found else float("nan")

    same = all(
        pair["ours"].answers == pair["peer"].answers for pair in pairs if len(pair) == 2
    )
    cells = [
        f"{name}, {work.name}",
        f"{median('ours', 'rate'):.0f}",
        f"{median('peer', 'rate'):.0f}",
        f"{ratio('rate'):.2f}",
        f"{median('ours', 'peak_bytes') / gib:.2f}",
        f"{median('peer', 'peak_bytes') / gib:.2f}",
        f"{ratio('peak_bytes'):.2f}",
        f"{median('ours', 'host_ms'):.2f}",
        f"{median('ours', 'wait_ms'):.2f}",
        f"{median('ours', 'prompt_rate'):.0f} / {median('peer', 'prompt_rate'):.0f}",
        "yes" if same else "no",
    ]
    return f"| {' | '.join(cells)} |"


def _json(
    name: str, work: Workload, pairs: Sequence[dict[str, Measured]]
) -> dict[str, Any]:
    def plain(run: Measured) -> dict[str, Any]:
        skipped = {"answers"}
        return {k: v for k, v in vars(run).items() if k not in skipped} | {
            "rate": run.rate
        }

    return {
        "model": name,
        "work": work.name,
        "pairs": [{side: plain(run) for side, run in pair.items()} for pair in pairs],
    }


if __name__ == "__main__":
    main()
