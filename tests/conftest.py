"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The real model of the demo, a GGUF file of 98 MB."""
    path = ROOT / ".demo" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.exists():
        reason = f"`make test` fetches {path.relative_to(ROOT)}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture(scope="session", autouse=True)
def _no_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """HTTP clients trust nobody but whom a test names.

    Else each of them, and there are thousands, reads all certificates of the web at its
    start, which takes as long as a dozen requests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@pytest.fixture
def log_put_back() -> Iterator[None]:
    """Afterwards the log is as it was before a test set it up."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in [h for h in root.handlers if h not in before]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.fixture(scope="session", autouse=True)
def _no_log_lines() -> None:
    """Apps that a test runs in its own process have nobody to log to.

    Tests of the log set it up themselves.
    """
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see the environment they make, not that of whoever runs them."""
    for name in list(os.environ):
        if name.startswith(("LLAMA_", "MLXCELD_")):
            monkeypatch.delenv(name)
