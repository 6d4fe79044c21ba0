"""The threads of the event loop, which do not hold up the end of the process.

A configuration file may lie on a network disk that does not answer, and a large body
may take seconds to read. Python waits for the threads of its own pools before it ends,
for ever if need be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_AT_ONCE = 8
"""Threads that work at the same time; the others wait for their turn."""

P = ParamSpec("P")
T = TypeVar("T")


class Helpers(ThreadPoolExecutor):
    """A pool by its type alone, which the event loop insists on."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        super().__init__(max_workers=at_once)
        self._turns = threading.Semaphore(at_once)

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Do `fn` in a thread of its own, when it is its turn."""
        future: Future[T] = Future()

        def work() -> None:
            with self._turns:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)

        threading.Thread(target=work, name="helper", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing: what still runs ends with the process."""
