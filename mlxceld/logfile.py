"""Log handlers that a full disk or a closed terminal does not bring down.

Python's own print a traceback for every line that cannot be written, and the one that
follows a moved file raises into whoever logs. A daemon goes on serving: the lines are
lost, standard error is told once, and told again when the file can be written.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from logging.handlers import WatchedFileHandler


class LogFile(WatchedFileHandler):
    """Appends to a file, and to a new one once somebody has moved it away.

    Raises `OSError` when the file cannot be opened at first.
    """

    def __init__(self, file: str) -> None:
        self._failing = False
        self._why = ""
        super().__init__(file, encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; never raises."""
        failing, self._failing = self._failing, False
        try:
            super().emit(record)
        except Exception:
            # The library's look at where the file is now may raise.
            self.handleError(record)
        if failing and not self._failing:
            _tell(f"the log file `{self.baseFilename}` can be written again")
        elif self._failing and not failing:
            _tell(f"the log file `{self.baseFilename}` cannot be written: {self._why}")

    def handleError(self, record: logging.LogRecord) -> None:
        """Remember the failure instead of printing a traceback."""
        self._failing = True
        error = sys.exc_info()[1]
        self._why = getattr(error, "strerror", None) or str(error)

    def close(self) -> None:
        """Close the file, be it that its last lines cannot be written."""
        with contextlib.suppress(OSError):
            super().close()


class LogStream(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to a stream; a line that cannot be written is lost in silence."""

    def handleError(self, record: logging.LogRecord) -> None:
        """There is no other place to say it."""


def _tell(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"mlxcel-server: {text}\n")
