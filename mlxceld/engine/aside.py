"""Work that is done beside the thread that owns MLX, such as reading a vocabulary.

A thread that nobody has to wait for: where the model cannot be loaded, what was read
beside it is of no use, and must not keep the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start(work: Callable[[], T], name: str) -> Future[T]:
    """Do `work` in a thread of its own; what it gives or raises is in the future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
