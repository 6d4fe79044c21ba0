"""Guesses what MLX will compute on, without importing it."""

from __future__ import annotations

import platform


def will_be_float32(
    device: str, dequantize: str, *, system: str = "", installed: str = ""
) -> bool:
    """Whether the engine will unpack the weights to float32, as it does on the CPU.

    `system` and `installed` (names of mlx's backend packages) are looked up when they
    are empty.
    """
    if dequantize != "auto":
        return dequantize == "on"
    if device != "auto":
        return device == "cpu"
    system = system or platform.system()
    return system != "Darwin" and "cuda" not in (installed or _backends())


def _backends() -> str:
    """Names of the installed packages of mlx's backends."""
    from importlib import metadata

    found = []
    for name in ("mlx-cpu", "mlx-cuda-12", "mlx-cuda-13", "mlx-metal"):
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found.append(name)
    return " ".join(found) or "none"
