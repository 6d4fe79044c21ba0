"""Whether log lines go to systemd's journal, and how it learns their priority.

The journal takes the level of a line from a number in angle brackets before it, which
it does not keep, so that `journalctl --priority=warning` finds the warnings.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TextIO

_ERROR, _WARNING, _INFO, _DEBUG = 3, 4, 6, 7
"""Of syslog(3)."""


def connected(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether `stream` is the one that `$JOURNAL_STREAM` speaks of.

    The variable alone is no proof: it is inherited by whatever a service starts, with
    its output sent elsewhere. systemd.exec(5) asks for this comparison.
    """
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    if not (device.isascii() and device.isdigit() and inode.isdigit()):
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (found.st_dev, found.st_ino) == (int(device), int(inode))


def priority(level: int) -> int:
    """The number of syslog for a level of `logging`."""
    if level >= logging.ERROR:
        return _ERROR
    if level >= logging.WARNING:
        return _WARNING
    return _INFO if level >= logging.INFO else _DEBUG


class WithPriority(logging.Formatter):
    """Puts the priority before each line that another formatter writes."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """The text with its numbers: every line is an entry of its own there."""
        mark = f"<{priority(record.levelno)}>"
        return mark + self._inner.format(record).replace("\n", f"\n{mark}")
