"""A headless Chromium, and a scripted server whose page it looks at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mlxceld.plan import Wish
from tests import fake
from tests.api.serving import Served, serve
from tests.web.browser import Browser, browsing

CANARY = """<img src=x onerror="document.title='owned'"><script>owned()</script>"""

SCRIPT = fake.Script(
    answers={"canary": [CANARY[:9], CANARY[9:]], "silence": []},
    step_seconds=0.02,
    fail_prefill="boom",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with browsing("en-US") as one:
        yield one


@pytest.fixture(scope="session")
def watched() -> Iterator[Served]:
    """Four slots that share 4096 tokens."""
    wish = Wish(mode="llama-compat", ctx_size=4096, parallel=4, kv_unified=True)
    with serve(SCRIPT, wish=wish) as running:
        yield running
