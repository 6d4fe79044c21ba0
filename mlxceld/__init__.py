"""One MLX language model behind the HTTP API of llama-server."""

import time

__version__ = "0.1.0"
__date__ = "2026-11-29"
"""The day of the release, for the man pages."""

BEGAN = time.monotonic() - time.process_time()
"""When this process began, nearly: what it computed until here, before now."""
