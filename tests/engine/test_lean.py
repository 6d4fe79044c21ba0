"""mlx-lm comes up without transformers, and is whole for whoever asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _run(script: str) -> str:
    """What a fresh interpreter prints; fails when it fails."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_model_of_mlx_lm_can_be_imported_without_transformers() -> None:
    found = _run(
        "import importlib, pkgutil, sys\n"
        "from mlxceld.engine import blas, lean\n"
        "blas.load_blas()\n"
        "lean.install()\n"
        "import mlx_lm.models\n"
        "names = [m.name for m in pkgutil.iter_modules(mlx_lm.models.__path__)]\n"
        # One of them ends the process where a package of its own is missing.
        "for name in names:\n"
        "    try:\n"
        "        importlib.import_module(f'mlx_lm.models.{name}')\n"
        "    except SystemExit:\n"
        "        assert name == 'olmo'\n"
        "print(len(names), 'transformers' in sys.modules, "
        "'mlx_lm.generate' in sys.modules)\n"
    )
    # What that one says comes first.
    number, *heavy = found.splitlines()[-1].split()
    assert int(number) > 100
    assert heavy == ["False", "False"]


def test_the_engine_never_imports_what_it_does_not_use() -> None:
    found = _run(
        "import sys\n"
        "from mlxceld.engine import blas, lean\n"
        "blas.load_blas()\n"
        "lean.install()\n"
        "from mlxceld.engine import batch, caches, gguf, model, probe, snapshots\n"
        "utils = lean.model_loader()\n"
        "print([name for name in ('transformers', 'mlx_lm.convert', 'mlx_lm.generate') "
        "if name in sys.modules], utils.load_model.__name__)\n"
    )
    assert found.split() == ["[]", "load_model"]


def test_a_name_of_the_package_itself_fills_it() -> None:
    found = _run(
        "import sys\n"
        "from mlxceld.engine import lean\n"
        "lean.install()\n"
        "import mlx_lm.models.base\n"
        "import mlx_lm\n"
        "print(hasattr(mlx_lm, '__wrapped__'), 'transformers' in sys.modules)\n"
        "print(mlx_lm.load.__module__, mlx_lm.generate.__name__, mlx_lm.__version__)\n"
        "from mlx_lm import stream_generate\n"
        "assert not hasattr(mlx_lm, 'nonsense')\n"
    )
    first, second = found.splitlines()
    assert first == "False False"
    assert second.startswith("mlx_lm.utils generate 0.")


def test_the_loader_reads_tokenizers_with_the_real_module() -> None:
    found = _run(
        "import sys\n"
        "from pathlib import Path\n"
        "from mlxceld.engine import lean\n"
        "utils = lean.model_loader()\n"
        "assert lean.model_loader() is utils\n"
        "assert 'mlx_lm.tokenizer_utils' not in sys.modules\n"
        "try:\n"
        "    utils.load_tokenizer(Path('/nonexistent'))\n"
        "except Exception as error:\n"
        "    assert not isinstance(error, (AttributeError, ImportError)), error\n"
        "import mlx_lm.tokenizer_utils as real\n"
        "print(real.TokenizerWrapper.__module__)\n"
    )
    assert found.split() == ["mlx_lm.tokenizer_utils"]


def test_a_package_that_is_imported_already_stays_as_it_is() -> None:
    found = _run(
        "import mlx_lm\n"
        "from mlxceld.engine import lean\n"
        "lean.install()\n"
        "import sys\n"
        "assert sys.modules['mlx_lm'] is mlx_lm\n"
        "assert lean.model_loader() is sys.modules['mlx_lm.utils']\n"
        "print(hasattr(mlx_lm, '__getattr__'))\n"
    )
    assert found.split() == ["False"]
