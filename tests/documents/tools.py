"""Programs that look at what was generated: they may be absent here, never in CI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MAN = sorted((ROOT / "man").iterdir())


def have(name: str, *, always: bool = True) -> str:
    """The program `name`; without it a test is skipped, or fails in CI if `always`."""
    found = shutil.which(name)
    if found is None:
        assert not (always and os.environ.get("CI") == "true"), f"{name} is missing"
        pytest.skip(f"{name} is not installed")
    return found


def run(command: Sequence[str | Path], **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command from the top of the source tree."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(page: Path) -> str:
    """The words of a page as a reader sees them, with one blank between."""
    done = run([have("mandoc"), "-T", "utf8", page])
    assert done.returncode == 0, done.stderr
    return " ".join(re.sub(".\b", "", done.stdout).split())


def words(text: str) -> str:
    """The words of a text of the table, as a page shows them."""
    return " ".join(text.replace("`", "").split())
