"""Texts of the tables in the language of a page.

English is what the option table and the other sources say; every other language is a
package beside this file with the same texts under the same keys. A text that is
missing stops the generator with the place where it belongs: a page is never half
translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlxceld.kinds import Choice
from mlxceld.options import CATEGORIES, Option


@dataclass(frozen=True, slots=True)
class OptionText:
    """The texts of one option in another language.

    Literals between backticks are the same as in English, all of them.
    """

    short: str
    """One line without a full stop."""
    long: str
    """Paragraphs, separated by empty lines."""
    default: str = ""
    """What an unset option amounts to, where the English entry says that in words."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Word to meaning, for options that take one of a few words."""


class Missing(LookupError):
    """A text that a language lacks; the message says which and where it belongs."""


@dataclass(frozen=True, slots=True)
class Language:
    """All texts of one language; English needs none."""

    code: str = "en"
    folder: str = ""
    """Where its texts are."""
    options: Mapping[str, OptionText] = field(default_factory=dict)
    categories: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    """Headings of columns and words in cells, by the English ones."""
    modes: Mapping[str, str] = field(default_factory=dict)
    """Labels of the rows of the table of modes, by `ModeRow.name`."""
    exits: Mapping[str, str] = field(default_factory=dict)
    """By the name of the status: `OK`."""
    signals: Mapping[str, str] = field(default_factory=dict)
    """By the first signal: `SIGTERM`."""
    events: Mapping[str, str] = field(default_factory=dict)
    """By the event: `listening`."""
    flips: Mapping[str, str] = field(default_factory=dict)
    """By the id: `MLX-F001`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that belong to no option, by name."""

    def option(self, option: Option) -> OptionText:
        """The texts of one option."""
        if self.code == "en":
            kind = option.kind
            choices = dict(kind.choices) if isinstance(kind, Choice) else {}
            return OptionText(option.short, option.long, option.default_text, choices)
        if option.key not in self.options:
            raise Missing(f"{self.folder}/{option.table}.py has no text `{option.key}`")
        return self.options[option.key]

    def category(self, category: str) -> str:
        """The heading of a category."""
        return self._text("categories", category, CATEGORIES[category])

    def word(self, english: str) -> str:
        """A heading or a word of a cell."""
        return self._text("words", english, english)

    def mode(self, name: str, english: str) -> str:
        """The label of a row of the table of modes."""
        return self._text("modes", name, english)

    def exit(self, name: str, english: str) -> str:
        """What an exit status means."""
        return self._text("exits", name, english)

    def signal(self, name: str, english: str) -> str:
        """What a signal does."""
        return self._text("signals", name, english)

    def event(self, name: str, english: str) -> str:
        """What an event of the log says."""
        return self._text("events", name, english)

    def flip(self, name: str, english: str) -> str:
        """What a default flip changes."""
        return self._text("flips", name, english)

    def variable(self, name: str, english: str) -> str:
        """What a variable is for."""
        return self._text("variables", name, english)

    def _text(self, table: str, key: str, english: str) -> str:
        if self.code == "en":
            return english
        texts: Mapping[str, str] = getattr(self, table)
        if key not in texts:
            raise Missing(f"{self.folder}/words.py has no text `{key}` in {table}")
        return texts[key]


ENGLISH = Language()
