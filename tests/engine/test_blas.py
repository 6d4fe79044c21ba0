"""The system's BLAS is loaded in time, or its absence is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlxceld.engine import blas


def _in_a_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_loading_again_gives_the_same_answer() -> None:
    assert blas.load_blas() == blas.load_blas()


def test_it_does_not_import_mlx() -> None:
    code = (
        "import sys; from mlxceld.engine import blas; blas.load_blas();"
        "print('mlx.core' in sys.modules)"
    )
    assert _in_a_process(code) == "False"


def test_after_mlx_it_is_too_late_and_there_is_nothing_to_advise() -> None:
    code = (
        "import mlx.core; from mlxceld.engine import blas;"
        "print(blas.load_blas(), blas.advice())"
    )
    assert _in_a_process(code) == "None None"


def test_without_any_openblas_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blas, "CANDIDATES", ("libno-such-blas.so",))
    monkeypatch.setattr(blas, "_loaded", None)
    monkeypatch.setattr(blas, "_missing", False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "mlx.core", raising=False)
    assert blas.load_blas() is None
    assert "libopenblas0-pthread" in (blas.advice() or "")


def test_on_macos_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_loaded", None)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert blas.load_blas() is None
