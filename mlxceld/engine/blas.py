"""Makes matrix products on the CPU fast, where the system can.

On Linux the CPU build of MLX resolves BLAS symbols against the reference library it
brings along, one and a half orders of magnitude slower than OpenBLAS. A system
OpenBLAS that is loaded globally before `mlx.core` answers those symbols instead.
"""

from __future__ import annotations

import ctypes
import sys

CANDIDATES = ("libopenblas.so.0", "libopenblas.so", "libopenblasp.so.0")
"""Sonames of OpenBLAS as Debian, Fedora and Arch package it, in order of trial."""

ADVICE = (
    "no OpenBLAS found: matrix products on the CPU are many times slower without it; "
    "install `libopenblas0-pthread` (Debian, Ubuntu) or `openblas` (Fedora, Arch)"
)
_loaded: str | None = None
_missing = False


def load_blas() -> str | None:
    """Load the system's OpenBLAS for the whole process; the name of what was loaded.

    Must run before the first import of `mlx.core`, and never fails: None means that
    there is none, or that MLX has been imported already. On macOS MLX uses
    Accelerate, and this does nothing.
    """
    global _loaded, _missing
    if _loaded is not None or not wanted():
        return _loaded
    if "mlx.core" in sys.modules:
        return None
    for name in CANDIDATES:
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        _loaded = name
        return name
    _missing = True
    return None


def advice() -> str | None:
    """What to install, when `load_blas` looked for an OpenBLAS and found none."""
    return ADVICE if _missing else None


def wanted() -> bool:
    """Whether this system's MLX gains from an OpenBLAS at all."""
    return sys.platform.startswith("linux")
