"""What HTTP costs: the tokens of a daemon's streams against the bare engine loop.

`python -m benchmarks.front` runs the scheduler of the engine alone, without processes
and sockets, in turns with a whole daemon whose answers a client in a third process
reads. The model is a metronome (`--beat 0.005`: a step takes 5 ms; 0 shows the most
that the front can do), or a real one (`--model FILE`). It prints tokens per second of
both, what is lost, and the time that each process spends on a processor for a token.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from benchmarks import metronome
from benchmarks.streams import ROUTES
from mlxceld.engine import messages as m
from mlxceld.engine.engine import Engine
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.plan import Wish

PATIENCE = 120.0
"""Seconds for a daemon to load its model."""


@dataclass(frozen=True, slots=True)
class Round:
    """A round of answers. Times are microseconds on a processor for each token."""

    rate: float
    """Tokens per second while every row ran."""
    engine: float
    front: float = 0.0
    client: float = 0.0


def prompts(rows: int) -> list[str]:
    return [f"Story {row}: a boat, the sea and an old man who" for row in range(rows)]


def bare(engine: Engine, texts: Sequence[str], n: int) -> Round:
    """One answer of `n` tokens to each text, from the loop of the engine alone."""
    out: list[m.Up] = []
    limits = Limits(n_train=engine.info.n_ctx_train)
    scheduler = Scheduler(
        engine.plan, engine.vocabulary, engine.runner, out.append, limits=limits
    )
    for number, text in enumerate(texts):
        asked = m.Generate(
            id=number,
            prompt=[text],
            sampling=m.Sampling(seed=number, temperature=0.0, ignore_eos=True),
            n_predict=n,
            cache_prompt=False,
        )
        tokens = engine.vocabulary.encode([text], add_special=True)
        scheduler.submit(asked, tokens)
    running: set[int] = set()
    over = False
    began: float | None = None
    first = counted = 0
    ended, used = 0.0, time.process_time()
    while scheduler.busy:
        scheduler.advance()
        scheduler.read_chunk()
        for message in out:
            if isinstance(message, m.Failed):
                raise RuntimeError(message.message)
            if isinstance(message, m.Delta):
                running.add(message.id)
            over = over or isinstance(message, m.Done)
        out.clear()
        told = scheduler.tally.predicted_tokens
        if began is None and len(running) == len(texts):
            began, first = time.perf_counter(), told
        elif not over:
            ended, counted = time.perf_counter(), told - first
    used = time.process_time() - used
    if began is None:
        raise RuntimeError("the answers are too short")
    every = scheduler.tally.predicted_tokens
    return Round(counted / (ended - began), 1e6 * used / every)


def busy(pid: int) -> float:
    """Seconds that a process was on a processor, all its threads; Linux only."""
    # What clock_getcpuclockid makes of a process id: exact, where /proc counts ticks.
    return time.clock_gettime((~pid << 3) | 2)


class Served:
    """A daemon, and a client that reads from it."""

    def __init__(self, command: Sequence[str], route: str) -> None:
        """`command` are a module and its arguments; it logs JSON."""
        python = (sys.executable, "-m")
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "log"
        with self._log.open("w") as log:
            self._daemon = subprocess.Popen([*python, *command], stderr=log)
        try:
            port = self._listening()
            self._client = subprocess.Popen(
                [*python, "benchmarks.streams", str(port), route],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        except BaseException:
            self._stop(self._daemon)
            raise
        children = f"/proc/{self._daemon.pid}/task/{self._daemon.pid}/children"
        engine = int(Path(children).read_text().split()[0])
        self._pids = (engine, self._daemon.pid, self._client.pid)

    def _listening(self) -> int:
        """The port, once the model is loaded."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._daemon.poll() is None:
            for line in self._log.read_text().splitlines():
                told = json.loads(line) if line.startswith("{") else {}
                if told.get("event") == "listening":
                    return int(told["url"].rpartition(":")[2])
            time.sleep(0.1)
        raise RuntimeError(f"no daemon: {self._log.read_text()}")

    def round(self, texts: Sequence[str], n: int) -> Round:
        """One answer of `n` tokens to each text."""
        before = [busy(pid) for pid in self._pids]
        found = json.loads(self._ask({"prompts": texts, "n": n}))
        used = [busy(pid) - was for pid, was in zip(self._pids, before, strict=True)]
        every = len(texts) * n
        costs = [1e6 * seconds / every for seconds in used]
        return Round(found["tokens"] / found["seconds"], *costs)

    def _ask(self, wanted: object) -> str:
        put, got = self._client.stdin, self._client.stdout
        assert put is not None
        assert got is not None
        put.write(json.dumps(wanted) + "\n")
        put.flush()
        return got.readline()

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in (self._client, self._daemon):
            self._stop(process)
        self._folder.cleanup()

    @staticmethod
    def _stop(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
        process.terminate()
        process.wait(PATIENCE)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured."""

    engine: Engine
    command: tuple[str, ...]
    """Of the daemon: a module and its arguments."""


def with_metronome(beat: float, rows: int) -> Setting:
    wish = Wish(ctx_size=metronome.WINDOW, parallel=rows)
    order = m.Load(m.ModelSource(), wish)
    engine = metronome.load(order, lambda _loading: None, beat=beat)
    words = ("benchmarks.metronome", "--beat", str(beat), "--rows", str(rows))
    return Setting(engine, words)


def with_model(path: str, device: str, rows: int, context: int) -> Setting:
    """The same model in this process and in a daemon."""
    from mlxceld.engine.load import load

    wish = Wish(ctx_size=context, parallel=rows)
    order = m.Load(m.ModelSource(path), wish, device=device)
    engine = load(order, lambda _loading: None)
    flags = {"model": path, "device": device, "ctx-size": context, "parallel": rows}
    more = {"port": 0, "log-format": "json", "host": "127.0.0.1"}
    words = [f"--{name}={value}" for name, value in {**flags, **more}.items()]
    return Setting(engine, ("mlxceld.cli", *words))


def measure(
    setting: Setting, route: str, rows: int, n: int, pairs: int, out: IO[str]
) -> list[tuple[Round, Round]]:
    """Pairs of rounds, bare and served, in turns; prints each."""
    texts = prompts(rows)
    found = []
    print("| bare tok/s | HTTP tok/s | loss | engine | front | client |", file=out)
    print("| --- | --- | --- | --- | --- | --- |", file=out)
    with Served(setting.command, route) as served:
        served.round(texts, min(n, 50))
        for pair in range(pairs):
            alone = functools.partial(bare, setting.engine, texts, n)
            over_http = functools.partial(served.round, texts, n)
            if pair % 2:
                other = over_http()
                one = alone()
            else:
                one = alone()
                other = over_http()
            found.append((one, other))
            print(_line(one, other), file=out, flush=True)
    return found


def _line(one: Round, other: Round) -> str:
    return (
        f"| {one.rate:.1f} | {other.rate:.1f} | {1 - other.rate / one.rate:+.1%} "
        f"| {one.engine:.1f} / {other.engine:.1f} | {other.front:.1f} "
        f"| {other.client:.1f} |"
    )


def summary(found: Sequence[tuple[Round, Round]]) -> str:
    """The medians of all pairs."""
    middle = statistics.median
    loss = middle(1 - other.rate / one.rate for one, other in found)
    return (
        f"medians of {len(found)} pairs: loss {loss:+.1%}, HTTP "
        f"{middle(o.rate for _, o in found):.0f} tokens/s; microseconds a token: "
        f"engine {middle(o.engine for _, o in found):.1f} (bare "
        f"{middle(b.engine for b, _ in found):.1f}), front "
        f"{middle(o.front for _, o in found):.1f}, client "
        f"{middle(o.client for _, o in found):.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beat", type=float, default=0.005, help="seconds of a step")
    parser.add_argument("--model", help="a real model in the metronome's place")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "gpu"))
    parser.add_argument("--context", type=int, default=1024, help="of each slot")
    parser.add_argument("--route", default="chat", choices=tuple(ROUTES))
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1000, help="of each answer")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path, help="JSON of every round")
    given = parser.parse_args()
    if given.model is not None:
        setting = with_model(given.model, given.device, given.rows, given.context)
    else:
        setting = with_metronome(given.beat, given.rows)
    found = measure(
        setting, given.route, given.rows, given.tokens, given.pairs, sys.stdout
    )
    print(summary(found))
    if given.out is not None:
        asked = {key: str(value) for key, value in vars(given).items()}
        rounds = [{"bare": asdict(one), "http": asdict(two)} for one, two in found]
        given.out.write_text(json.dumps({"asked": asked, "rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
