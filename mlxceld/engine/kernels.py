"""Where MLX keeps the kernels that it compiles on CUDA, and how many plans it keeps.

Kernels are compiled when they are first used, which takes a minute or two for all that
a model needs. MLX keeps them in the folder for temporary files, and a service that has
one of its own, or a machine that is started anew, would compile them at every start.
"""

from __future__ import annotations

import os
import struct
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "MLX_PTX_CACHE_DIR"

_PLANS = "MLX_CUDA_SDPA_CACHE_SIZE"
_MOST_PLANS = "1024"
"""Pairs of lengths, of a chunk and of the text so far, that attention stays prepared
for. MLX keeps 256, and a text of 32,768 tokens alone needs so many."""

_HEAD = 64
"""Bytes at the beginning of an ELF file, which say where its two tables lie."""


def keep_plans(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have plans kept for longer texts. Before MLX is imported."""
    environment.setdefault(_PLANS, _MOST_PLANS)


def keep(build: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Have kernels kept in the cache folder of the service, or of the user.

    Before the first one is needed. A folder that the user has set stays, and where none
    can be made MLX's own serves. `build` says what compiles them and for which kind of
    card: the names by which MLX finds them do not, and one that another MLX has left
    there need not fit.
    """
    if environment.get(VARIABLE):
        return
    base = _folder(environment)
    if base is None:
        return
    folder = base / build
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return
    if os.access(folder, os.W_OK | os.X_OK):
        _drop_torn(folder)
        environment[VARIABLE] = str(folder)


def _folder(environment: MutableMapping[str, str]) -> Path | None:
    # systemd sets this to the folders of CacheDirectory=, separated by colons.
    service = environment.get("CACHE_DIRECTORY", "").split(":")[0]
    if service:
        return Path(service, "kernels")
    # The specification of base directories ignores a path that is not absolute.
    base = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base, "mlxcel", "kernels")
    home = environment.get("HOME", "")
    return Path(home, ".cache", "mlxcel", "kernels") if os.path.isabs(home) else None


def _drop_torn(folder: Path) -> None:
    """Remove kernels that were not written whole, as when the disk was full.

    MLX does not see that it could not write one, and fails with what it finds at every
    start to come.
    """
    for kernel in folder.rglob("*.ptx"):
        try:
            if _torn(kernel):
                kernel.unlink()
        except OSError:
            continue


def _torn(kernel: Path) -> bool:
    names = kernel.with_suffix(".txt")
    if not (names.exists() and names.read_bytes().endswith(b"\n")):
        return True
    size = kernel.stat().st_size
    with kernel.open("rb") as file:
        head = file.read(_HEAD)
    if not head.startswith(b"\x7fELF"):
        # As text, for a card that the compiler knows no machine code of.
        return not head
    if len(head) < _HEAD:
        return True
    tables = struct.unpack_from("<QQ", head, 32)
    sizes = struct.unpack_from("<HHHH", head, 54)
    ends = (
        start + one * n
        for start, one, n in zip(tables, sizes[::2], sizes[1::2], strict=True)
    )
    return max(ends) > size
