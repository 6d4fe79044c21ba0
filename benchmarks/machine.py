"""What the numbers were measured on: the first line of every table."""

from __future__ import annotations

import platform
import time
from importlib.metadata import version

from benchmarks.models import mx


def has_gpu() -> bool:
    return bool(mx.metal.is_available() or mx.cuda.is_available())


def this_machine(device: str) -> str:
    """Day, processor (`device` is cpu or gpu), libraries and Python."""
    name = platform.processor() or platform.machine()
    if device == "gpu":
        name = str(mx.device_info().get("device_name", name))
    day = time.strftime("%Y-%m-%d")
    libraries = ", ".join(f"{lib} {version(lib)}" for lib in ("mlx", "mlx-lm"))
    return f"{day}, {name}, {libraries}, Python {platform.python_version()}"
