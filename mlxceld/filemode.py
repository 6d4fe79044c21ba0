"""The kind of value that says who may use a file: an octal mode."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from mlxceld.kinds import BadValue, Kind, found_text

_MODE = re.compile(r"0?[0-7]{3}")


@dataclass(frozen=True, slots=True)
class FileMode(Kind):
    """Three octal digits, a zero before them or not; TOML has them as text.

    A TOML integer is refused: `660` and `0o660` are different numbers there, and a
    reader cannot tell which of them was meant.
    """

    annotation: ClassVar[str] = "str"
    metavar: ClassVar[str] = "MODE"

    @property
    def wanted(self) -> str:
        return "an octal mode as text, such as `0660`"

    def parse(self, text: str) -> str:
        found = text.strip()
        if not _MODE.fullmatch(found):
            raise BadValue(found_text(text), self.wanted)
        return found.zfill(4)
