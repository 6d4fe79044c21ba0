"""The memory limit: how it is written, and how many bytes of this machine it means."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import ClassVar

from mlxceld.kinds import BadValue, Kind, Value, found_text, found_toml, toml_text

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) *%")

_UNITS = {
    "": 1,
    **{
        u: 1024**n
        for n, s in enumerate("KMGT", 1)
        for u in (s.lower(), f"{s.lower()}ib")
    },
}

AUTO_SHARE = 75.0
"""Percent of the physical memory that `auto` stands for."""


def memory_limit_bytes(setting: int | str, physical: int | None = None) -> int | None:
    """The limit in bytes; `setting` is what `Memory` makes.

    `physical` is the physical memory in bytes, asked of the system when None. None is
    returned for a share of a memory whose size the system does not tell.
    """
    if isinstance(setting, int):
        return setting
    share = AUTO_SHARE if setting == "auto" else float(setting.rstrip("%"))
    total = physical_memory() if physical is None else physical
    return None if total is None else int(total * share / 100)


def physical_memory() -> int | None:
    """Bytes of physical memory, or None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class Memory(Kind):
    """An amount of memory: bytes, a share of the physical memory, or `auto`.

    The value is the number of bytes, `auto`, or the share as text (`75%`). Units are
    powers of 1024 with and without `iB`, so `1M` and `1MiB` are the same.
    """

    annotation: ClassVar[str] = "int | str"
    metavar: ClassVar[str] = "SIZE"

    @property
    def wanted(self) -> str:
        return (
            "bytes with an optional unit (K, M, G, T or KiB, MiB, GiB, TiB), "
            "a share like `75%`, or `auto`"
        )

    def parse(self, text: str) -> int | str:
        word = text.strip()
        if word.lower() == "auto":
            return "auto"
        if share := _PERCENT.fullmatch(word):
            if not 0 < float(share[1]) <= 100:
                raise BadValue(found_text(text), "a share above 0 % and up to 100 %")
            return f"{share[1]}%"
        size = _SIZE.fullmatch(word)
        if size is None or size[2].lower() not in _UNITS or len(word) > 30:
            raise BadValue(found_text(text), self.wanted)
        number, unit = size[1], _UNITS[size[2].lower()]
        count = int(float(number) * unit) if "." in number else int(number) * unit
        if not 0 < count < 2**63:
            raise BadValue(found_text(text), self.wanted)
        return count

    def check(self, value: object) -> int | str:
        if isinstance(value, int) and not isinstance(value, bool):
            if not 0 < value < 2**63:
                raise BadValue(found_toml(value), self.wanted)
            return value
        if isinstance(value, str):
            return self.parse(value)
        raise BadValue(found_toml(value), self.wanted)

    def render(self, value: Value) -> str:
        return str(value) if isinstance(value, int) else toml_text(str(value))
