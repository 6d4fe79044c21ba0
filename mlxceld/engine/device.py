"""The memory of the device that serves: how much there is, and what MLX may keep of it.

Imports MLX, so only the engine may import this.
"""

from __future__ import annotations

import mlx.core as mx

from mlxceld.engine.messages import Load, MemoryUse
from mlxceld.memory import AUTO, memory_limit_bytes, physical_memory

CUDA_SHARE = 90.0
"""Percent of a graphics card's memory that `auto` stands for: nobody else lives there,
but the driver and the libraries need some."""

_LEAST_KEPT = 64 << 20
_MOST_KEPT = 1 << 30


def build() -> str | None:
    """What compiles kernels and for which kind of card, as part of a path.

    None where there is no CUDA.
    """
    if not (mx.cuda.is_available() and mx.is_available(mx.gpu)):
        return None
    info = mx.device_info(mx.Device(mx.gpu))
    major = info.get("compute_capability_major", 0)
    minor = info.get("compute_capability_minor", 0)
    return f"{mx.__version__}-sm_{major}{minor}"


def memory_limit(order: Load, device: mx.Device) -> int | None:
    """The limit of an order in bytes, for the device that serves; None for no limit.

    A share is one of the device's own memory. `auto` is 75 % of the physical memory on
    the CPU and on Metal, there also no more than Metal recommends, and 90 % of the
    card's memory on CUDA. None as well where the size of that memory is not told.
    """
    if not order.memory_share:
        return order.memory_limit
    auto = order.memory_share == AUTO
    if device.type == mx.DeviceType.cpu:
        return memory_limit_bytes(order.memory_share)
    info = mx.device_info(device)
    if mx.metal.is_available():
        limit = memory_limit_bytes(order.memory_share, physical_memory())
        most = int(info.get("max_recommended_working_set_size", 0))
        return min(limit or most, most) if auto and most else limit
    total = int(info.get("total_memory", 0))
    if not total:
        return None
    return memory_limit_bytes(f"{CUDA_SHARE}%" if auto else order.memory_share, total)


def bound_cache(limit: int | None, work_bytes: int) -> int:
    """Bound what MLX keeps of freed buffers; returns the bound in bytes.

    A step reuses the buffers of the one before, so one step's working memory is kept
    in any case; beyond that a sixteenth of the limit, from 64 MiB to 1 GiB. MLX's own
    bound is its whole memory limit.
    """
    share = _MOST_KEPT if limit is None else limit // 16
    kept = max(work_bytes, min(max(share, _LEAST_KEPT), _MOST_KEPT))
    mx.set_cache_limit(kept)
    return kept


def bound_memory(limit: int | None, needed: int) -> None:
    """Have MLX give freed buffers back before it goes above the limit.

    MLX refuses nothing there, but waits for running work when it is above: a plan
    that was let through although it needs more must not be slowed down by that.
    """
    if limit is not None:
        mx.set_memory_limit(max(limit, needed))


def memory_use() -> MemoryUse:
    """What MLX holds now."""
    return MemoryUse(
        mx.get_active_memory(), mx.get_cache_memory(), mx.get_peak_memory()
    )
