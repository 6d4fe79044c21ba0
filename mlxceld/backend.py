"""Guesses what MLX will compute on, without importing it."""

from __future__ import annotations


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
    system = system or this_system()
    return system != "Darwin" and not may_be_cuda(
        "auto", system=system, installed=installed
    )


def may_be_cuda(device: str, *, system: str = "", installed: str = "") -> bool:
    """Whether the engine may compute on a graphics card with a memory of its own."""
    if device == "cpu" or (system or this_system()) == "Darwin":
        return False
    return "cuda" in (installed or _backends())


def this_system() -> str:
    """`Linux`, `Darwin`, ..."""
    import platform  # slow for what it tells; most commands never ask

    return platform.system()


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
