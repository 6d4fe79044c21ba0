"""Which of several words counts: a flag over a variable over a key, the later over the
earlier, as in the daemon.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from mlxceld.kinds import FilePath
from mlxceld.layers import Layer
from mlxceld.options import EXCLUSIVE
from mlxceld.problems import Problem

from .found import Found
from .migration import Fate
from .saying import Meaning, Saying, short


@dataclass(slots=True)
class Choice:
    """The words that count, and a line for each word."""

    winners: dict[str, Saying] = field(default_factory=dict)
    """By key; certain ones only."""
    at: dict[str, int] = field(default_factory=dict)
    """Their numbers among the sayings."""
    doubts: dict[str, str] = field(default_factory=dict)
    """Keys whose value is not certain, and why."""
    fates: dict[int, tuple[Fate, str]] = field(default_factory=dict)
    """Fate and reason of sayings that do not count as they are, by their number."""


def choose(meaning: Meaning, found: Found) -> Choice:
    choice = Choice()
    by_key: dict[str, list[int]] = {}
    for at, saying in enumerate(meaning.sayings):
        if saying.option is not None:
            by_key.setdefault(saying.option.key, []).append(at)
    said = meaning.sayings
    winning: dict[str, int] = {}
    for key, several in by_key.items():
        several.sort(key=lambda at: (said[at].layer, said[at].rank, at))
        *losers, winner = several
        for at in losers:
            same = said[at].value is not None and said[at].value == said[winner].value
            how = "says the same" if same else "counts instead"
            choice.fates[at] = ("ignored", f"`{said[winner].said}` {how}")
        winning[key] = winner
    _exclude(meaning, found, winning, choice)
    for key, at in winning.items():
        saying = _whole(said[at], found)
        said[at] = saying
        if saying.value is None:
            why = saying.doubt or saying.why
            choice.doubts[key] = why
            choice.fates[at] = ("review", why)
        else:
            choice.winners[key] = saying
            choice.at[key] = at
    return choice


def _exclude(
    meaning: Meaning, found: Found, winning: dict[str, int], choice: Choice
) -> None:
    """Options that say the same thing: the higher layer wins, as in the daemon."""
    said = meaning.sayings
    for pair in EXCLUSIVE:
        if not all(key in winning for key in pair):
            continue
        first, second = (winning[key] for key in pair)
        if said[first].layer == said[second].layer:
            what = f"{pair[0]} and {pair[1]} say the same thing"
            if meaning.program == "mlxcel-server":
                hint = "leave one of them out"
                meaning.problems.append(Problem(what, str(said[second].place), hint))
            for key, at in zip(pair, (first, second), strict=True):
                choice.fates[at] = ("review", f"{what}; leave one of them out")
                choice.doubts[key] = what
                del winning[key]
            continue
        loser = first if said[first].layer < said[second].layer else second
        winner = second if loser == first else first
        choice.fates[loser] = ("ignored", f"`{said[winner].said}` counts instead")
        del winning[pair[0] if loser == first else pair[1]]


def _whole(saying: Saying, found: Found) -> Saying:
    """A name of a file as it is seen from wherever the new file lies."""
    option, value = saying.option, saying.value
    if found.kind == "toml" or option is None or not isinstance(option.kind, FilePath):
        return saying
    if value is None or os.path.isabs(str(value)):
        return saying
    folder = found.folder or (os.getcwd() if found.kind == "command" else "")
    if saying.layer is Layer.FILE:
        folder = os.path.dirname(os.path.abspath(saying.place.file))
    if not folder:
        why = (
            "a relative name is seen from the folder in which the program is started, "
            "which the source does not tell; write the whole name"
        )
        return replace(saying, value=None, doubt=why)
    whole = FilePath.against(folder, str(value))
    return replace(saying, value=whole, why=f"seen from {short(folder)}")
