"""One scripted server for the tests that need no particular one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mlxceld.plan import Wish
from tests import fake
from tests.api.serving import Served, serve

SCRIPT = fake.Script(
    answers={
        "silence": [],
        "fox": ["The ", "quick br", "own f", "ox ju", "mps"],
        "lines": ["one\n", "two"],
        # The three bytes of a Korean syllable, one token each.
        "bytes": ["\xea", "\xb0", "\x80", "!"],
    },
    fail_prefill="boom",
    fail_step="later",
    step_seconds=0.001,
)


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """Four slots of 1024 tokens, mode llama-compat, alias `toy`."""
    with serve(SCRIPT) as running:
        yield running


@pytest.fixture(scope="session")
def small() -> Iterator[Served]:
    """One slot of 256 tokens."""
    with serve(wish=Wish(mode="llama-compat", ctx_size=256, parallel=1)) as running:
        yield running
