"""A real daemon around the scripted engine: `python -m tests.service.daemon JSON`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mlxceld import logs
from mlxceld.engine import client
from mlxceld.service import lifecycle, startup
from mlxceld.settings import EngineSettings, ServerSettings, Settings
from tests import fake


def main() -> int:
    """Serve what the JSON says: `script`, `server`, `engine`, or a whole `command`.

    `backoff` is the pause in seconds before a crashed engine is started again.
    """
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    server = {"host": ["127.0.0.1"], "port": 0, **wanted.get("server", {})}
    engine = {"ctx_size": 1000, **wanted.get("engine", {})}
    settings = Settings(
        engine=EngineSettings(**engine), server=ServerSettings(**server)
    )
    logs.set_up("debug", "json")
    command = wanted.get("command") or fake.command(
        fake.Script(**wanted.get("script", {}))
    )
    client._FIRST_BACKOFF = wanted.get("backoff", client._FIRST_BACKOFF)
    client._LONGEST_BACKOFF = wanted.get("backoff", client._LONGEST_BACKOFF)
    load = startup.load_message(settings)
    return asyncio.run(lifecycle.serve(settings, load, command))


if __name__ == "__main__":
    sys.exit(main())
