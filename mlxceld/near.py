"""Finds the name that was meant: one rule for flags, keys, tables and variables."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar of `names`, the first one where several are alike, or None.

    Case, and the difference between dashes and underscores, do not count.
    """
    import difflib  # only a mistake needs it

    found, best = None, cutoff
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(_plain(word))
    for name in names:
        matcher.set_seq1(_plain(name))
        if matcher.real_quick_ratio() < best or matcher.quick_ratio() < best:
            continue
        score = matcher.ratio()
        if score > best or (found is None and score >= best):
            found, best = name, score
    return found


def did_you_mean(word: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """`did you mean ...?` as a hint, or nothing."""
    name = nearest(word, names, cutoff)
    return f"did you mean `{name}`?" if name else ""


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
