"""What readers of variables and of words share: how a text becomes a value, or a doubt.

A text that no program would take is a problem. One that only the daemon does not take
was right where it was written, and is left for a person to review.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from mlxceld.foreign import Foreign
from mlxceld.kinds import BadValue, Boolean, Integer, Number, Value
from mlxceld.layers import bad_value
from mlxceld.options import BY_KEY, Option

from . import rules
from .found import Found
from .rules import Rule
from .saying import PLAN_KEYS, Meaning, Saying

_DIGITS = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")

NOTHING = "there is nothing like it here"


@dataclass(slots=True)
class Reader:
    found: Found
    meaning: Meaning
    exists: Callable[[str], bool]

    def add(self, saying: Saying) -> None:
        self.meaning.sayings.append(saying)

    def config(self, saying: Saying) -> None:
        """Add the words that name a configuration file."""
        self.meaning.config = saying.said
        why = "the file is read too" if self.found.entries else "see that file"
        self.add(replace(saying, why=why))

    def value(self, option: Option, text: str, saying: Saying, *, loose: bool) -> None:
        """Add what `text` says about an option.

        Text that no server takes is a problem; with `loose` what only this one refuses
        is left for review.
        """
        saying = replace(saying, option=option)
        try:
            value = option.kind.parse(text)
        except BadValue as error:
            problem = bad_value(option, error, where_of(saying))
            if saying.doubt:
                self.add(saying)
            elif loose and not self.is_senseless(option, text):
                self.add(replace(saying, doubt=problem.what.partition(": ")[2]))
            else:
                self.meaning.problems.append(problem)
            return
        if saying.doubt:
            self.add(saying)
            return
        if option.key == "model.path":
            option, value, why = self.model(option, text, value)
            saying = replace(saying, option=option, why=why or saying.why)
        if option.key == "model.hf_repo" and self.meaning.program == "llama-server":
            doubt = _gguf(text)
            if doubt:
                self.add(replace(saying, doubt=doubt))
                return
        self.add(replace(saying, value=value))

    def is_senseless(self, option: Option, text: str) -> bool:
        """Whether the program itself would not take the text either."""
        if isinstance(option.kind, Boolean):
            return True
        if option.key in PLAN_KEYS and self.meaning.program != "mlx_lm.server":
            return True
        is_number = isinstance(option.kind, Integer | Number)
        return is_number and not _DIGITS.fullmatch(text.strip())

    def foreign(self, foreign: Foreign | None, why: str, saying: Saying) -> None:
        """Add what the daemon ignores; llama-server may have answered otherwise."""
        flags = foreign.flags if foreign else ()
        serious = [rules.SERIOUS[f] for f in flags if f in rules.SERIOUS]
        if serious and not self.ours:
            why = why or serious[0]
            self.add(replace(saying, fate="review", why=why))
        else:
            self.add(replace(saying, fate="ignored", why=why or NOTHING))

    def cache_reuse(self, text: str, saying: Saying) -> None:
        """Add the smallest chunk to reuse, which can only be off here."""
        why = "only the common beginning of two prompts is reused here"
        if text.strip() == "0":
            why = "off is all that there is here"
        self.add(replace(saying, fate="ignored", why=why))

    @property
    def ours(self) -> bool:
        """Whether the daemon itself reads the words today."""
        older = self.meaning.takes_repositories
        return self.meaning.program == "mlxcel-server" and not older

    def model(
        self, option: Option, text: str, value: Value
    ) -> tuple[Option, Value, str]:
        """The option that a name of a model sets: it may be a repository."""
        if not self.meaning.takes_repositories:
            return option, value, ""
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", text):
            return option, value, ""
        if text.endswith((".gguf", "/")) or self.exists(
            os.path.join(self.found.folder, text)
        ):
            return option, value, ""
        why = "there is no folder of this name, so it is a repository"
        return BY_KEY["model.hf_repo"], text, why

    def follow(self, rule: Rule, text: str, saying: Saying) -> None:
        """Add what a word of another dialect becomes."""
        if saying.doubt and rule.key:
            self.add(replace(saying, option=BY_KEY[rule.key], rank=rule.rank))
            return
        if saying.doubt and rule.fate == "review":
            self.add(replace(saying, fate="review", why=saying.doubt))
            return
        turned, fate = rule.outcome(text)
        as_it_was = rule.turn is not None and turned == text
        why = "" if as_it_was else rule.why
        saying = replace(saying, fate=fate, why=why, rank=rule.rank)
        if turned is None:
            self.add(saying)
        else:
            self.value(BY_KEY[rule.key], turned, saying, loose=True)


def where_of(saying: Saying) -> str:
    spot = str(saying.place)
    name = saying.said.partition(" ")[0].partition("=")[0]
    return f"{spot}: {name}" if spot and name not in spot else spot or name


def _gguf(text: str) -> str:
    if ":" in text or "gguf" in text.lower():
        return "it names GGUF files; name a repository with MLX weights"
    return ""
