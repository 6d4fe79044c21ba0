"""What tests of the readers look at, in short forms."""

from __future__ import annotations

from collections.abc import Iterable

from mlxceld.migrate.found import Found, Word


def texts(found: Found) -> list[str]:
    """The words without their places."""
    return [word.text for word in found.words]


def doubts(words: Iterable[Word]) -> dict[str, str]:
    """The words that are not certain, with the reason."""
    return {word.text: word.doubt for word in words if word.doubt}


def variables(found: Found) -> dict[str, str]:
    """The environment, the last one of a name."""
    return {variable.name: variable.value for variable in found.environment}


def remarks(found: Found) -> list[str]:
    """The remarks without their places."""
    return [remark.text for remark in found.remarks]


def reviews(found: Found) -> list[str]:
    """The remarks that somebody has to look at."""
    return [remark.text for remark in found.remarks if remark.review]
