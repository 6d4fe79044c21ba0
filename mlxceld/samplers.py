"""The samplers of llama-server by name and letter. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LETTERS: Mapping[str, str] = {
    "penalties": "e",
    "dry": "d",
    "top_n_sigma": "s",
    "top_k": "k",
    "typ_p": "y",
    "top_p": "p",
    "min_p": "m",
    "xtc": "x",
    "temperature": "t",
    "adaptive_p": "a",
}
"""Every sampler's name and its letter in a sequence."""

DEFAULT = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
"""The order in which they work unless a request or an option says so."""

_OTHER_NAMES = {
    "typical_p": "typ_p",
    "typical": "typ_p",
    "typ": "typ_p",
    "temp": "temperature",
    "nucleus": "top_p",
    "adaptive": "adaptive_p",
}


def from_names(names: Sequence[str]) -> tuple[str, ...]:
    """The samplers of these names, `-` being as good as `_`.

    Raises ValueError that says which is none.
    """
    found = []
    for name in names:
        known = name.replace("-", "_")
        known = _OTHER_NAMES.get(known, known)
        if known not in LETTERS:
            raise ValueError(f"there is no sampler {name!r:.60}")
        found.append(known)
    return tuple(found)


def from_letters(letters: str) -> tuple[str, ...]:
    """The samplers of a sequence of letters. Raises ValueError like `from_names`."""
    known = {letter: name for name, letter in LETTERS.items()}
    for letter in letters:
        if letter not in known:
            raise ValueError(f"there is no sampler {letter!r}")
    return tuple(known[letter] for letter in letters)
