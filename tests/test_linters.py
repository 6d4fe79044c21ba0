"""House rules that no linter knows."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = sorted(
    file for top in ("mlxceld", "migrate") for file in (ROOT / top).rglob("*.py")
)

PURE = [
    "config",
    "exits",
    "flips",
    "generate",
    "kinds",
    "options",
    "paths",
    "plan",
    "problems",
    "settings",
    "toml_lines",
]
"""Modules that must work, and answer at once, on a machine without MLX."""

LINES = 480
"""No module is much over 400 lines."""

MAY_BE_LONG = {"mlxceld/options.py"}
"""The option table grows with the options, and is read by the entry."""


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_imports_neither_mlx_nor_a_web_server(module: str) -> None:
    code = (
        f"import sys, mlxceld.{module}\n"
        "heavy = {'mlx', 'mlx_lm', 'litestar', 'uvicorn', 'numpy', 'transformers'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_the_modules_that_are_checked_strictly_exist() -> None:
    strict = PROJECT["tool"]["mypy"]["overrides"][0]["module"]
    for name in strict:
        if not name.endswith(".*"):
            assert (ROOT / (name.replace(".", "/") + ".py")).exists(), name


def test_modules_can_be_read_in_one_sitting() -> None:
    long = {
        str(file.relative_to(ROOT)): count
        for file in MODULES
        if (count := len(file.read_text().splitlines())) > LINES
    }
    assert set(long) <= MAY_BE_LONG, long


def test_nothing_is_left_for_later() -> None:
    words = ("TODO", "FIXME", "XXX", "NotImplementedError")
    for file in MODULES:
        text = file.read_text()
        assert not [word for word in words if word in text], file


def test_only_the_engine_touches_mlx() -> None:
    for file in MODULES:
        if "engine" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not [n for n in names if n.split(".")[0] in {"mlx", "mlx_lm"}], file
