"""What those who watch the monitor page cost those who generate.

`python -m benchmarks.watchers`: a daemon around a scripted engine, so that the model
takes no time and the front all of it, or a step of `--step` seconds. Streams run all
the time; windows with and without watchers take turns, so that whatever else the
machine does meets both alike. The token rate and the front's time on the processor for
each token are compared within each pair of windows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from pathlib import Path

from tests.service.running import daemon

TICKS = os.sysconf("SC_CLK_TCK")


class Counter:
    """Tokens that the streams have brought."""

    def __init__(self) -> None:
        self.tokens = 0


async def request(port: int, head: str, body: bytes = b"") -> asyncio.StreamReader:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    writer.write(f"{head} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}\r\n".encode() + body)
    await writer.drain()
    # The writer lives as long as somebody reads.
    reader.writer = writer  # type: ignore[attr-defined]
    return reader


async def stream(port: int, counter: Counter) -> None:
    """One request after the other, each as long as its slot allows."""
    body = json.dumps({"prompt": "go", "n_predict": -1, "stream": True}).encode()
    while True:
        reader = await request(port, "POST /completion", body)
        while line := await reader.readline():
            if line.startswith(b"data: "):
                counter.tokens += 1
            elif line == b"0\r\n":
                break


async def watch(port: int) -> None:
    reader = await request(port, "GET /monitor/events")
    while await reader.read(1 << 16):
        pass


def busy(pid: int) -> float:
    """Seconds that the process was on a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def window(pid: int, counter: Counter, seconds: float) -> tuple[float, float]:
    """Tokens per second, and the front's microseconds for each."""
    tokens, used, began = counter.tokens, busy(pid), time.monotonic()
    await asyncio.sleep(seconds)
    tokens = counter.tokens - tokens
    rate = tokens / (time.monotonic() - began)
    return rate, 1e6 * (busy(pid) - used) / max(1, tokens)


async def measure(port: int, pid: int, given: argparse.Namespace) -> None:
    counter = Counter()
    streams = [asyncio.create_task(stream(port, counter)) for _ in range(given.streams)]
    await asyncio.sleep(2)
    rates, costs = [], []
    for pair in range(given.pairs):
        found = {}
        for watched in (pair % 2 == 0, pair % 2 == 1):
            watchers = [
                asyncio.create_task(watch(port))
                for _ in range(given.watchers if watched else 0)
            ]
            await asyncio.sleep(0.3)
            found[watched] = await window(pid, counter, given.seconds)
            for task in watchers:
                task.cancel()
        (rate, cost), (alone, cost_alone) = found[True], found[False]
        rates.append(rate / alone - 1)
        costs.append(cost / cost_alone - 1)
        print(f"{alone:8.0f} tokens/s alone, {rate:8.0f} watched")
    for task in streams:
        task.cancel()
    for what, values in (("token rate", rates), ("front's time a token", costs)):
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{what}: {middle:+.1%} (middle half {low:+.1%} to {high:+.1%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--watchers", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each window")
    parser.add_argument("--step", type=float, default=0.0, help="seconds of a step")
    given = parser.parse_args()
    engine = {"ctx_size": 100_000, "parallel": given.streams}
    script = {"step_seconds": given.step, "n_train": 100_000}
    with daemon(script=script, engine=engine) as running:
        port = int(running.ready().rpartition(":")[2])
        asyncio.run(measure(port, running.process.pid, given))


if __name__ == "__main__":
    main()
