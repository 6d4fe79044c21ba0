"""Exit statuses: what a shell, systemd or launchd may rely on."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Status of `mlxcel-server`; the numbers above 63 are those of sysexits.h."""

    OK = 0
    """Stopped as asked, or the checked configuration is good."""
    FAILURE = 1
    """The model was not loaded, an address not bound, or told to stop twice."""
    USAGE = 2
    """The command line is wrong."""
    SOFTWARE = 70
    """The engine kept crashing."""
    CONFIG = 78
    """The configuration is wrong, names no usable model, or does not fit memory."""
