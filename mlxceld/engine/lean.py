"""Imports mlx-lm without what a server of one model never uses.

`import mlx_lm` alone brings its converters, its generation loop, transformers and the
Hub: well over a second of Python before the first byte of a model is read. Here the
package comes up empty and fills itself when somebody asks it for one of its own names;
modules inside it are imported as ever. Its loader of models is brought up beside the
tokenizers, so that both sides of a model can be read at the same time.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_PACKAGE = "mlx_lm"
_TOKENIZERS = "mlx_lm.tokenizer_utils"
_lock = threading.RLock()


def install() -> None:
    """Bring up the empty package; does nothing once mlx-lm has been imported."""
    with _lock:
        if _PACKAGE in sys.modules:
            return
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None or spec.loader is None:
            return
        package = importlib.util.module_from_spec(spec)
        # Asked for whatever the package does not have (PEP 562).
        vars(package)["__getattr__"] = _fill
        sys.modules[_PACKAGE] = package


def _fill(name: str) -> Any:
    """One of the package's own names, for which its `__init__` has to run."""
    package = sys.modules[_PACKAGE]
    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    with _lock:
        if vars(package).pop("__getattr__", None) is not None:
            assert package.__spec__ is not None
            assert package.__spec__.loader is not None
            package.__spec__.loader.exec_module(package)
    return getattr(package, name)


def model_loader() -> Any:
    """`mlx_lm.utils`, whose `load_tokenizer` imports transformers when it is called."""
    with _lock:
        if {"mlx_lm.utils", _TOKENIZERS}.isdisjoint(sys.modules):
            install()
            sys.modules[_TOKENIZERS] = _stand_in()
            try:
                importlib.import_module("mlx_lm.utils")
            except ImportError:
                # It wants more of them than there was to know of: then the real one.
                sys.modules.pop("mlx_lm.utils", None)
            finally:
                del sys.modules[_TOKENIZERS]
        return importlib.import_module("mlx_lm.utils")


def _stand_in() -> ModuleType:
    module = ModuleType(_TOKENIZERS)
    vars(module).update(TokenizerWrapper=object, load=_load_tokenizer)
    return module


def _load_tokenizer(*args: Any, **kwargs: Any) -> Any:
    return importlib.import_module(_TOKENIZERS).load(*args, **kwargs)
