"""What the words of a source say, option by option, before anybody compares plans.

Keys, variables and flags are read by the daemon's own table, with the few rules of
other dialects in front of it. Everything becomes a `Saying`, so that no word is lost:
one that sets an option, or one that says why it sets none.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mlxceld.layers import Layer

from . import rules
from .entries import read_entries
from .flags import Words
from .found import Found, Program
from .saying import Meaning, Saying
from .variables import Variables


def read(
    found: Found, exists: Callable[[str], bool] = os.path.exists, *, older: bool = False
) -> Meaning:
    """What `found` says.

    `exists` tells a folder from a repository of the same name. `older` is for words of
    the mlxcel server that was there before the daemon.
    """
    program, ollama = _program(found)
    repositories = program == "mlx_lm.server" or older
    meaning = Meaning(program, ollama, repositories)
    entries = read_entries(found)
    meaning.sayings += entries.sayings
    meaning.problems += entries.problems
    meaning.removed = entries.removed
    Variables(found, meaning, exists).read()
    Words(found, meaning, exists).read()
    for remark in found.remarks:
        if remark.review:
            said = Saying("", remark.place, Layer.FILE, fate="review", why=remark.text)
            meaning.sayings.append(said)
    return meaning


def _program(found: Found) -> tuple[Program | None, bool]:
    if found.program is not None:
        return found.program, False
    if found.kind == "toml":
        return "mlxcel-server", False
    names = [v.name for v in found.environment if v.value.strip() or v.doubt]
    if any(name.startswith(("MLXCELD_", "MLXCEL_")) for name in names):
        return "mlxcel-server", False
    known = {name for rule in rules.OLLAMA_VARIABLES for name in rule.names}
    if not found.words and known.intersection(names):
        return None, not any(name.startswith("LLAMA_") for name in names)
    return None, False
