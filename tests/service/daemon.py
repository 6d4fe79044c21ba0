"""A real daemon around the scripted engine: `python -m tests.service.daemon JSON`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mlxceld import config, logs
from mlxceld.engine import client
from mlxceld.service import lifecycle, startup
from mlxceld.settings import EngineSettings, ServerSettings, Settings


def main() -> int:
    """Serve what the JSON says: `script`, `server`, `engine`, or a whole `command`.

    With `argv` the configuration is that of a command line, read again on SIGHUP.
    `backoff` is the pause in seconds before a crashed engine is started again.
    """
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    server = {"host": ["127.0.0.1"], "port": 0, **wanted.get("server", {})}
    engine = {"ctx_size": 1000, **wanted.get("engine", {})}
    settings = Settings(
        engine=EngineSettings(**engine), server=ServerSettings(**server)
    )
    argv, environ = wanted.get("argv"), dict(os.environ)
    if argv is not None:
        settings = config.resolve(argv, environ).settings
    logs.set_up("debug" if argv is None else settings.logging.level, "json")
    # As `fake.command`, whose module would bring what only the engine needs.
    scripted = [
        sys.executable,
        "-m",
        "tests.fake",
        json.dumps(wanted.get("script", {})),
    ]
    command = wanted.get("command") or scripted
    client._FIRST_BACKOFF = wanted.get("backoff", client._FIRST_BACKOFF)
    client._LONGEST_BACKOFF = wanted.get("backoff", client._LONGEST_BACKOFF)
    load = startup.load_message(settings)
    read = None if argv is None else lambda: config.resolve(argv, environ)
    return asyncio.run(lifecycle.serve(settings, load, command, read=read))


if __name__ == "__main__":
    sys.exit(main())
