"""Looking at processes that a test has started."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], bool], seconds: float = 10.0) -> float:
    """Wait for a condition; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "did not happen in time"
        time.sleep(0.01)
    return time.monotonic() - began


def gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked for its status yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return Path("/proc/self").exists()
    except ProcessLookupError:
        return True  # Just now, with the file open.
    return stat.rpartition(")")[2].split()[0] == "Z"
