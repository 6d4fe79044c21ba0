"""What answers a question and ends does so at once: it imports little.

Time alone would be a poor guard where others use the same cores: the modules that a
command imports are counted out, and its CPU time only has a bound that is far above
what it takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

HEAVY = frozenset(
    {
        *("mlx", "mlx_lm", "numpy", "tokenizers", "transformers", "llguidance"),
        *("litestar", "uvicorn", "h11", "structlog", "msgspec", "jinja2", "yaml"),
        *("asyncio", "concurrent", "http", "socket", "ssl", "email", "logging"),
        *("multiprocessing", "subprocess", "importlib.metadata", "unittest"),
        *("difflib", "platform", "textwrap", "uuid"),
    }
)
"""What no question needs; `textwrap` is argparse's, for helps that it formats."""

CONFIGURATION = frozenset(
    {"mlxceld.config", "mlxceld.layers", "mlxceld.settings", "mlxceld.plan", "tomllib"}
)
"""What only reading a configuration needs."""

SERVER, MIGRATE, VERIFY = "mlxceld.cli", "mlxceld.migrate.cli", "mlxceld.verify.cli"

QUESTIONS = [
    pytest.param([SERVER, "--version"], CONFIGURATION | {"mlxceld.help"}, id="version"),
    # The help names the defaults that will change, which are data beside the plan.
    pytest.param([SERVER, "--help"], CONFIGURATION - {"mlxceld.plan"}, id="help"),
    pytest.param([SERVER, "--check-config"], set(), id="check-config"),
    pytest.param([SERVER, "--check-config", "--config", "FILE"], set(), id="with-file"),
    pytest.param([MIGRATE, "--help"], CONFIGURATION - {"tomllib"}, id="migrate"),
    pytest.param([VERIFY, "--help"], CONFIGURATION - {"tomllib"}, id="verify"),
]

MOST_SECONDS = 0.5
"""CPU seconds of a command, the interpreter's own included; on a quiet machine all
take less than 0.15."""

SCRIPT = """
import importlib, sys
main = importlib.import_module(sys.argv[1]).main
try:
    status = main(sys.argv[2:])
except SystemExit as exit:
    status = exit.code
print("\\nMODULES", *sys.modules)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home without configurations, and a place for what Python compiles."""
    home = tmp_path_factory.mktemp("home")
    kept = {
        key: os.environ[key] for key in ("PATH", "VIRTUAL_ENV") if key in os.environ
    }
    return kept | {
        "HOME": str(home),
        "CONFIGURATION_DIRECTORY": str(home),
        "PYTHONPYCACHEPREFIX": str(home / "compiled"),
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("etc") / "mlxcel.toml"
    path.write_text("[engine]\nctx_size = 4096\nparallel = 2\n[server]\nport = 8090\n")
    return path


@pytest.mark.parametrize(("words", "needless"), QUESTIONS)
def test_a_question_is_answered_with_few_imports(
    words: list[str], needless: set[str], environment: dict[str, str], file: Path
) -> None:
    words = [str(file) if word == "FILE" else word for word in words]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.rpartition("MODULES ")[2].split())
    allowed = {"textwrap"} if words[0] != SERVER else set()
    assert modules & (HEAVY | needless) <= allowed


@pytest.mark.parametrize(("words", "needless"), QUESTIONS)
def test_a_question_takes_little_cpu_time(
    words: list[str], needless: set[str], environment: dict[str, str], file: Path
) -> None:
    words = [str(file) if word == "FILE" else word for word in words]
    command = [sys.executable, "-m", *words]
    best = min(_cpu_seconds(command, environment) for _ in range(4))
    assert best < MOST_SECONDS


def _cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
