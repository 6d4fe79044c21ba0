"""What other programs mean, where it is not what the daemon means.

Whose words a set-up is made of, and what such a program does when nothing is said:
that is what a default flip changes, and what a new file has to say to keep it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlxceld.flips import after, version_key
from mlxceld.kinds import Value
from mlxceld.near import did_you_mean
from mlxceld.plan import Mode, Wish
from mlxceld.problems import Problem, Refused

from .found import Program


@dataclass(frozen=True, slots=True)
class Pin:
    """A value that a program has when nothing is said, and the daemon has not."""

    key: str
    value: Value
    why: str


@dataclass(frozen=True, slots=True)
class Silence:
    """What a set-up means where it says nothing."""

    mode: Mode
    flips: bool = False
    """Whether that meaning is the daemon's own default, which may change."""
    pins: tuple[Pin, ...] = ()
    doubt: str = ""
    """Why it is not known what an unset number of slots means."""
    bounded: bool = True
    """Whether there is a limit on the context at all."""
    notes: tuple[str, ...] = ()
    """Sentences about what is different here."""


# ---- whose words they are ----

_NAMES: dict[str, Program] = {
    "mlxcel-server": "mlxcel-server",
    "mlxcel": "mlxcel-server",
    "mlxceld": "mlxcel-server",
    "llama-server": "llama-server",
    "llama.cpp": "llama-server",
    "mlx_lm.server": "mlx_lm.server",
    "mlx_lm": "mlx_lm.server",
    "mlx-lm": "mlx_lm.server",
}


def parse_from(text: str) -> tuple[Program, str]:
    """`PROGRAM[@VERSION]` as a program and what `silence` takes as `since`.

    Two servers are called mlxcel-server: the versions of the older one are written
    `mlxcel@0.7.0`, those of the daemon `mlxceld@1.0`. Raises `Refused`.
    """
    name, _, version = text.strip().partition("@")
    program = _NAMES.get(name)
    if program is None:
        hint = did_you_mean(name, _NAMES) or "the names are " + ", ".join(_NAMES)
        raise Refused([Problem(f"unknown program `{name}`", "--from", hint)])
    if version:
        # llama.cpp numbers its builds.
        _version(version.removeprefix("b") if program == "llama-server" else version)
    if version and name == "mlxcel-server":
        what = f"two servers of that name have a version {version}"
        hint = f"say `mlxcel@{version}` for the older one, `mlxceld@{version}` for ours"
        raise Refused([Problem(what, "--from", hint)])
    if not version or program != "mlxcel-server":
        return program, ""
    return program, f"{name}@{version}"


def _version(text: str) -> tuple[int, ...]:
    try:
        return version_key(text)
    except ValueError as error:
        raise Refused([Problem(str(error), "--from")]) from None


_DIVIDED = (0, 0, 30)
_FOUR = (0, 4)
_SHARED_AFTER = (0, 7)
"""Versions of the older server: from the first one the slots divide the context, from
the second one there are four of them when nothing is said, and after the third one
four that nobody asked for share it."""

_DEFAULT = "the default of mlx_lm.server"

_MLX_LM_PINS = (
    Pin("engine.kv_unified", True, "any request may use all of the context"),
    Pin("engine.n_predict", 512, _DEFAULT),
    Pin("sampling.temperature", 0.0, _DEFAULT),
    Pin("sampling.top_k", 0, _DEFAULT),
    Pin("sampling.top_p", 1.0, _DEFAULT),
    Pin("sampling.min_p", 0.0, _DEFAULT),
)

_MLX_LM_NOTES = (
    "mlx_lm.server has no context option: a request there grows until memory ends; "
    "here one request may use up to the training length of the model, lowered to what "
    "memory allows, and all slots share that",
)


def is_older(since: str) -> bool:
    """Whether a version is one of the mlxcel server that was there before."""
    return bool(since) and not since.startswith("mlxceld")


def silence(program: Program | None, since: str = "") -> Silence:
    """What a program means where a set-up says nothing.

    `since` is a version, of the older mlxcel server or with `mlxceld@` before it of
    the daemon; without one mlxcel-server means what it does today. Raises `Refused`
    for a text that is no version.
    """
    if program == "llama-server":
        return Silence("llama-compat")
    if program == "mlx_lm.server":
        return Silence(
            "llama-compat", pins=_MLX_LM_PINS, bounded=False, notes=_MLX_LM_NOTES
        )
    name, _, text = since.rpartition("@")
    if not text:
        return Silence("legacy", flips=True)
    version = _version(text)
    if name == "mlxceld":
        mode = after(Wish(), {}, text).mode
        return Silence(mode, flips=mode == "legacy")
    if version < _DIVIDED:
        return Silence("legacy", flips=True)
    slots = 1 if version < _FOUR else 4
    if version <= _SHARED_AFTER:
        why = f"the default of mlxcel-server {text}"
        return Silence("llama-compat", pins=(Pin("engine.parallel", slots, why),))
    doubt = ""
    if version < (0, 8):
        doubt = (
            f"whether an unset `--parallel` divides or shares the context in mlxcel "
            f"{text} is not known; say it"
        )
    return Silence("llama-compat", doubt=doubt)


OLLAMA = Silence(
    "per-seq",
    pins=(Pin("engine.parallel", -1, "Ollama chooses the number itself"),),
    notes=(
        "Ollama gives every request the whole context length and multiplies the memory "
        "by the number of requests, as mode per-seq does",
    ),
)
"""What a set-up of Ollama means where it says nothing."""
