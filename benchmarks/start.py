"""How long a start takes, from the first instruction to READY, phase by phase.

    python -m benchmarks.start --model SmolLM2-135M-Instruct.Q4_1.gguf --runs 5
    python -m benchmarks.start --model model-8b --cold -- --ctx-size 4096 --parallel 8

The daemon is started again and again, warm and (with `--cold`) after the system has
been asked to forget the model's files. It tells the phases itself, in the event
`started` of its log; the times outside of it are those of the whole process and its
engine. What follows `--` are options of the daemon. Close to the same numbers are in
/metrics as `mlxcel_start_seconds`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WALL, CPU = "process to log line", "CPU of front and engine"

PATIENCE = 20.0
"""Seconds in which a daemon that is told to stop does so."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start: what the daemon told, and what was seen from outside."""

    cold: bool
    phases: dict[str, float]
    """Seconds, in order; `total` is the last."""
    wall: float
    """Seconds from the start of the process to the line that tells the phases."""
    cpu: float
    """Seconds of all cores until the daemon had ended again."""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.start",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="a GGUF file or a model directory")
    add("--runs", type=int, default=5, help="counted starts of each kind (default 5)")
    add("--cold", action="store_true", help="also with the model's files forgotten")
    add("--out", type=Path, metavar="FILE", help="write all starts as JSON")
    args = parser.parse_args(words[:at])
    options = words[at + 1 :]
    command = [sys.executable, "-m", "mlxceld.cli", "--model", str(args.model)]
    command += ["--port", "0", "--log-format", "json", *options]
    start(command)  # compiles what is to be compiled, and is not counted
    starts = []
    for _ in range(args.runs):
        starts.append(start(command))
        if args.cold:
            forget(args.model)
            starts.append(start(command, cold=True))
    print(f"{' '.join(command[1:])}\n")
    print(table(starts))
    if args.out:
        args.out.write_text(
            json.dumps(
                {
                    "command": command,
                    "python": sys.version.split()[0],
                    "starts": [asdict(one) for one in starts],
                },
                indent=1,
            )
            + "\n"
        )
    return 0


def start(command: Sequence[str], *, cold: bool = False) -> Start:
    """Start the daemon, wait until it serves, and end it again.

    Raises RuntimeError with what it said when it ends before.
    """
    begun = time.monotonic()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        phases: dict[str, float] = {}
        said = []
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            event = _event(line)
            if event.get("event") == "started":
                phases = event["seconds"]
                break
        wall = time.monotonic() - begun
        if not phases:
            process.kill()
            raise RuntimeError("the daemon did not start:\n" + "".join(said[-20:]))
        process.send_signal(signal.SIGTERM)
        for _ in process.stderr:
            pass
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return Start(cold, phases, wall, usage.ru_utime + usage.ru_stime)


def _event(line: str) -> dict[str, Any]:
    """A line of the log; a warning of a library is none."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def forget(model: Path) -> None:
    """Have the system drop the model's files from its page cache, as far as it will."""
    if not hasattr(os, "posix_fadvise"):
        raise SystemExit("`--cold` needs posix_fadvise, which this system has not")
    files = [model] if model.is_file() else sorted(p for p in model.iterdir())
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def table(starts: Sequence[Start]) -> str:
    """Medians of each phase as a table in Markdown, with the range of the whole."""
    kinds = {
        kind: [_row(one) for one in starts if one.cold == cold]
        for kind, cold in (("warm", False), ("cold", True))
    }
    kinds = {kind: rows for kind, rows in kinds.items() if rows}
    names = list(dict.fromkeys(name for rows in kinds.values() for name in rows[0]))
    lines = [
        "| phase, seconds | "
        + " | ".join(f"{kind}, {len(rows)} starts" for kind, rows in kinds.items())
        + " |",
        "| --- |" + " ---: |" * len(kinds),
    ]
    for name in names:
        cells = (_cell(name, rows) for rows in kinds.values())
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _row(one: Start) -> Mapping[str, float]:
    return {**one.phases, WALL: one.wall, CPU: one.cpu}


def _cell(name: str, rows: Sequence[Mapping[str, float]]) -> str:
    """The median; with least and most for what is the sum of others."""
    found = [row.get(name, 0.0) for row in rows]
    middle = f"{statistics.median(found):.2f}"
    if name in ("total", WALL, CPU):
        return f"{middle} ({min(found):.2f} to {max(found):.2f})"
    return middle


if __name__ == "__main__":
    sys.exit(main())
