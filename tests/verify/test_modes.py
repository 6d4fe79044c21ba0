"""Our own daemon passes in every mode, with its own numbers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from mlxceld.verify.cli import main
from tests.service.running import daemon

MODES: dict[str, dict[str, Any]] = {
    "legacy": {"mode": "legacy", "ctx_size": 640, "parallel": 3},
    "split": {"mode": "llama-compat", "ctx_size": 2048, "parallel": 4},
    "shared": {"mode": "llama-compat", "ctx_size": 700},
    "per-seq": {"mode": "per-seq", "ctx_size_per_seq": 520, "parallel": 2},
}

# Slots, the window of one request, and the pool of all.
PLANS = {
    "legacy": (3, 640, 1920),
    "split": (4, 512, 2048),
    "shared": (4, 700, 700),
    "per-seq": (2, 520, 1040),
}


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """A daemon for every mode, all of them started together."""
    with contextlib.ExitStack() as stack:
        started = {
            name: stack.enter_context(
                daemon(engine=engine, script={"step_seconds": 0.002})
            )
            for name, engine in MODES.items()
        }
        yield {name: one.ready() for name, one in started.items()}


@pytest.mark.parametrize("mode", MODES)
def test_our_daemon_is_as_it_says(
    mode: str, urls: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["--json", "--fill", "together", urls[mode]], {})
    found = json.loads(capsys.readouterr().out)
    slots, window, pool = PLANS[mode]
    verdicts = {one["name"]: one["state"] for one in found["verdicts"]}
    # A busy machine may find no time to look at /slots often enough.
    assert verdicts.pop("slots") in ("ok", "unknown")
    assert set(verdicts.values()) == {"ok"}, found["verdicts"]
    assert status == 0
    assert found["most_at_once"] == slots
    assert found["server"]["slots"] == slots
    assert found["server"]["pool"] == pool
    assert found["server"]["mode"] == MODES[mode]["mode"]
    assert set(map(tuple, found["n_ctx"].values())) == {(window,)}
    assert len(found["n_ctx"]) == 5
    # Even where windows share a pool every request gets all of its own in the end.
    assert [fill["measured"] for fill in found["fills"]] == [window] * slots
