"""Where MLX keeps the kernels that it compiles on CUDA, and how many plans it keeps.

Kernels are compiled when they are first used, which takes a minute or two for all that
a model needs. MLX keeps them in the folder for temporary files, and a service that has
one of its own, or a machine that is started anew, would compile them at every start.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "MLX_PTX_CACHE_DIR"

_PLANS = "MLX_CUDA_SDPA_CACHE_SIZE"
_MOST_PLANS = "1024"
"""Pairs of lengths, of a chunk and of the text so far, that attention stays prepared
for. MLX keeps 256, and a text of 32,768 tokens alone needs so many."""


def keep(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have them kept in the cache folder of the service, or of the user.

    Before MLX is imported. A folder that the user has set stays, and where none can be
    made MLX's own serves.
    """
    environment.setdefault(_PLANS, _MOST_PLANS)
    if environment.get(VARIABLE):
        return
    folder = _folder(environment)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return
    if os.access(folder, os.W_OK | os.X_OK):
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
