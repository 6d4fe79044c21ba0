"""The command lines as they answer on the machine of the pages: a Mac with 16 GiB.

`python -m tests.documents.machine mlxcel-server FLAGS` is `mlxcel-server FLAGS` there,
as far as it looks at the machine without MLX; the same for `mlxcel-migrate`.
"""

from __future__ import annotations

import importlib
import platform
import sys

from mlxceld import memory

MEMORY = 16 << 30

PROGRAMS = {
    "mlxcel-server": "mlxceld.cli",
    "mlxcel-migrate": "mlxceld.migrate.cli",
    "mlxcel-verify": "mlxceld.verify.cli",
}


def main() -> int:
    platform.system = lambda: "Darwin"
    memory.physical_memory = lambda: MEMORY
    program = importlib.import_module(PROGRAMS[sys.argv[1]])
    status: int = program.main(sys.argv[2:])
    return status


if __name__ == "__main__":
    sys.exit(main())
