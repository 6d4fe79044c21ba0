"""Two servers side by side over HTTP: ours, and another one that speaks OpenAI's API.

    python -m benchmarks.export --model 1.2b --out model-1.2b
    python -m benchmarks.server --model model-1.2b --clients 1 8 --out http.json
    python -m benchmarks.server --model model-1.2b --gap

Each side is a URL or a command. A command is started on a free port for every run, one
side at a time, so that speed and memory are its own; in it `{port}`, `{model}`,
`{clients}`, `{window}` (tokens of one request at most), `{context}` (those of all
clients) and `{python}` are replaced. The sides take turns, `--pairs` times, with the
same prompts; a number is the median of the runs, a ratio that of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import children, clients
from benchmarks.clients import Failure, Prompt, Prompts, Target
from benchmarks.sides import SIDES, Run, gap_table, plain, remarks, table

OURS = (
    "{python} -m mlxceld.cli --config /dev/null --model {model} --port {port} "
    "--mode llama-compat --kv-unified --parallel {clients} --ctx-size {context}"
)
PEER = (
    # With the BLAS that we load ourselves: MLX's own is many times slower on the CPU.
    '{python} -c "from mlxceld.engine import blas; blas.load_blas(); '
    'from mlx_lm.server import main; main()" --model {model} --port {port}'
)
_STREAM = 2048
"""Tokens of the stream beside which a long prompt is read; it is cut off after that."""
_SETTINGS = (
    "shortest",
    "longest",
    "tokens",
    "requests",
    "pairs",
    "seed",
    "gap",
    "keep",
)
_SPARE = 64
"""Tokens of a window beyond prompt and answer: for a BOS, and for how others count."""
_WARM = 512
"""The longest prompt of the warm-up."""


class Bench:
    """What is measured, and the prompts for it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.gpu = children.gpu()
        file = args.tokenizer or (args.model / "tokenizer.json" if args.model else None)
        words = clients.words_of(file) if file else clients.PLAIN_WORDS
        self._prompts = Prompts(words, args.seed)
        self.logs = args.logs or Path(tempfile.mkdtemp(prefix="benchmarks-server-"))
        self.logs.mkdir(parents=True, exist_ok=True)
        self.commands: dict[str, list[str]] = {}

    def run(self) -> Iterator[Run]:
        """All runs, the sides in turns and the order changing from pair to pair."""
        args = self.args
        sides = [args.only] if args.only else list(SIDES)
        levels = [2] if args.gap else args.clients
        for pair in range(args.pairs):
            for group in [levels] if args.keep else [[level] for level in levels]:
                work = {level: self._work(level) for level in group}
                warm = self._prompts.mixed(
                    2 * max(group), min(32, args.shortest), min(_WARM, args.longest)
                )
                for side in sides if pair % 2 else sides[::-1]:
                    with self._serving(side, max(group), warm) as (target, watch):
                        for level, prompts in work.items():
                            yield self._one(side, pair, level, prompts, target, watch)

    def _work(self, level: int) -> list[Prompt]:
        args = self.args
        if args.gap:
            return [self._prompts.make(args.shortest), self._prompts.make(args.gap)]
        return self._prompts.mixed(level * args.requests, args.shortest, args.longest)

    @contextmanager
    def _serving(
        self, side: str, level: int, warm: Sequence[Prompt]
    ) -> Iterator[tuple[Target, children.Watch | None]]:
        """The side, up and warm, and a watch over its memory if it is started here."""
        args = self.args
        spec = getattr(args, side)
        body = {"max_tokens": args.tokens, **getattr(args, f"{side}_body")}
        if spec.startswith(("http://", "https://")):
            url = urlsplit(spec)
            path = f"{url.path.rstrip('/')}/v1/completions".replace("/v1/v1/", "/v1/")
            host, port = url.hostname or "127.0.0.1", url.port or 80
            target = Target(host, port, body, path, args.patience)
            self.commands[side] = [spec]
            asyncio.run(_warm(target, warm, level))
            yield target, None
            return
        longest = max(args.longest, args.gap or 0)
        window = longest + args.tokens + _SPARE + (_STREAM if args.gap else 0)
        values = {
            "model": args.model,
            "clients": level,
            "window": window,
            "context": level * window,
        }
        before = children.settled(self.gpu)
        child = children.Child(spec, values, self.logs / f"{side}.log")
        self.commands[side] = child.argv
        watch = children.Watch(child.pid, self.gpu, before)
        try:
            target = Target("127.0.0.1", child.port, body, patience=args.patience)
            try:
                asyncio.run(_ready(target, child))
                asyncio.run(_warm(target, warm, level))
            except Failure as failure:
                sys.exit(f"{side}: {failure}\n{child.last_words()}")
            yield target, watch
        finally:
            watch.stop()
            child.stop()

    def _one(
        self,
        side: str,
        pair: int,
        level: int,
        prompts: list[Prompt],
        target: Target,
        watch: children.Watch | None,
    ) -> Run:
        if self.args.gap:
            endless = replace(target, body={**target.body, "max_tokens": _STREAM})
            short, long = prompts
            gap = asyncio.run(clients.gap(endless, short, long))
            return Run(side, pair, level, {}, gap=gap)
        if watch:
            watch.reset()
        answers, seconds = asyncio.run(clients.load(target, prompts, level))
        measures = clients.measures(answers, seconds, target.body["max_tokens"])
        if watch:
            watch.look()
            measures["host_bytes"] = watch.host
            measures["device_bytes"] = watch.device
            measures["device_bytes_of_processes"] = watch.of_processes
            measures["device_bytes_above_start"] = watch.of_devices
        return Run(side, pair, level, measures, answers)


async def _ready(target: Target, child: children.Child) -> None:
    """Wait until the server answers and does not say that it is loading."""
    end = time.monotonic() + target.patience
    while time.monotonic() < end:
        if child.ended is not None:
            raise Failure(f"ended with status {child.ended} before it was ready")
        try:
            async for _ in clients.request(target, "GET", "/health"):
                pass
        except (OSError, ValueError, EOFError):
            pass
        except Failure as failure:
            if " 503" not in str(failure):
                return
        else:
            return
        await asyncio.sleep(0.1)
    raise Failure("did not become ready")


async def _warm(target: Target, prompts: Sequence[Prompt], level: int) -> None:
    """Kernels are compiled and buffers made before anything is timed."""
    brief = replace(target, body={**target.body, "max_tokens": 8})
    answers, _ = await clients.load(brief, prompts, level)
    for answer in answers:
        if answer.failure:
            raise Failure(answer.failure)


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    # Whoever ends this ends the servers it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(args)
    runs: list[Run] = []
    print(f"# {_machine(bench.gpu)}", flush=True)
    for run in bench.run():
        runs.append(run)
        rate = run.measures.get("tokens_per_second")
        said = f"{rate:.1f} tok/s" if rate is not None else run.gap
        print(f"{run.side}, {run.clients} clients: {said}", file=sys.stderr, flush=True)
        if args.out:
            report = json.dumps(_report(bench, runs), indent=1)
            args.out.write_text(report + "\n")
    print(gap_table(runs) if args.gap else table(runs))
    for remark in remarks(runs):
        print(f"\n{remark}")
    return int(any(run.measures.get("failures") for run in runs))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", type=Path, metavar="DIR", help="what `{model}` stands for")
    add("--ours", default=OURS, metavar="URL|COMMAND", help=_said(OURS))
    add("--peer", default=PEER, metavar="URL|COMMAND", help=_said(PEER))
    add("--only", choices=SIDES, help="run one side alone")
    add("--tokenizer", type=Path, metavar="FILE", help="default: MODEL/tokenizer.json")
    add("--clients", type=int, nargs="+", default=[1, 2, 4, 8, 16], metavar="N")
    add("--requests", type=int, default=4, help="for each client (default: 4)")
    add("--shortest", type=int, default=64, help="prompt, in tokens (default: 64)")
    add("--longest", type=int, default=8192, help="likewise (default: 8192)")
    add("--tokens", type=int, default=128, help="length of an answer (default: 128)")
    add("--pairs", type=int, default=3, help="runs of each side (default: 3)")
    add("--seed", type=int, default=1)
    add("--keep", action="store_true", help="one start for all numbers of clients")
    add(
        "--gap",
        type=int,
        nargs="?",
        const=8192,
        metavar="TOKENS",
        help="measure the gaps of a stream beside a prompt of so many tokens instead",
    )
    for side in SIDES:
        add(
            f"--{side}-body",
            type=json.loads,
            default={},
            metavar="JSON",
            help="more fields of the requests to that side",
        )
    add("--patience", type=float, default=600.0, help="seconds for an answer")
    add("--logs", type=Path, metavar="DIR", help="where the servers' logs go")
    add("--out", type=Path, metavar="FILE", help="write every run as JSON")
    args = parser.parse_args(argv)
    if not 0 < args.shortest <= args.longest:
        parser.error("--shortest must be at least 1 and at most --longest")
    if args.model is None and any("{model}" in getattr(args, s) for s in SIDES):
        parser.error("--model is needed by a command with {model}")
    return args


def _said(command: str) -> str:
    return f"default: {command}"


def _report(bench: Bench, runs: Sequence[Run]) -> dict[str, Any]:
    args = bench.args
    return {
        "machine": _machine(bench.gpu),
        "commands": bench.commands,
        "settings": {name: getattr(args, name) for name in _SETTINGS},
        "runs": [plain(run) for run in runs],
    }


def _machine(gpu: children.Gpu | None) -> str:
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    parts = [time.strftime("%Y-%m-%d"), f"{name}, {os.cpu_count()} cores"]
    if gpu:
        parts.append(gpu.name)
    for library in ("mlx", "mlx-lm", "mlxceld"):
        try:
            parts.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            continue
    return ", ".join([*parts, f"Python {platform.python_version()}"])


if __name__ == "__main__":
    sys.exit(main())
