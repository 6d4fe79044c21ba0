"""What the engine does while it loads: phases for the log, bytes for who watches.

Weights of a large model take minutes to come from a disk. On a terminal one line below
the log counts them; a log that is read later would only be filled by it.
"""

from __future__ import annotations

import logging
import os

from mlxceld import logs
from mlxceld.engine.messages import Loading
from mlxceld.logs import Event
from mlxceld.plan import size

_log = logs.get("mlxceld.service")

_COLUMNS = 80
"""Of a terminal that does not know its width."""


class Progress:
    """Tells of one load after another."""

    def __init__(self) -> None:
        self._last: Loading | None = None

    def tell(self, loading: Loading | None) -> None:
        """Say what is new in `loading`, the last thing heard; None: nothing loads.

        A message that was told already is what an engine said before it crashed.
        """
        again, last = loading is self._last, self._last
        self._last = loading
        if loading is not None and (last is None or loading.doing != last.doing):
            _log.info(Event.LOADING, message=loading.doing)
        terminal = logs.terminal()
        # The line is a form of an event that a higher level leaves out.
        if terminal is None or not _log.isEnabledFor(logging.INFO):
            return
        line = "" if loading is None or again else _line(loading)
        columns = _columns(terminal)
        terminal.below(line[: columns - 1] if columns else "")


def _line(loading: Loading) -> str:
    """Such as `loading weights: 283.6 MiB of 513.1 MiB`; nothing without bytes."""
    if not loading.total:
        return ""
    return f"{loading.doing}: {size(loading.done)} of {size(loading.total)}"


def _columns(terminal: logs.Terminal) -> int:
    """Width of the terminal; 0 where it is in the hands of another program.

    A line that is written over would take what somebody types to their shell with it,
    where the daemon runs in its background.
    """
    try:
        fd = terminal.stream.fileno()
        columns = os.get_terminal_size(fd).columns or _COLUMNS
    except (OSError, ValueError):
        return 0
    try:
        ours = os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        # Not the terminal of our session, so no shell of it reads there.
        ours = True
    return columns if ours else 0
