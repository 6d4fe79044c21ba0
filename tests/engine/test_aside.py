from __future__ import annotations

import threading

import pytest

from mlxceld.engine import aside


def test_work_is_done_by_a_thread_that_keeps_no_process() -> None:
    future = aside.start(threading.current_thread, "beside")
    thread = future.result(10)
    assert thread is not threading.current_thread()
    assert (thread.name, thread.daemon) == ("beside", True)


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    def fail() -> int:
        raise KeyError("x")

    future = aside.start(fail, "beside")
    with pytest.raises(KeyError):
        future.result(10)
