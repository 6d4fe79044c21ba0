"""The memory limit: how it is written, and how many bytes of this machine it means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
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

AUTO = "auto"
AUTO_SHARE = 75.0
"""Percent of the physical memory that `auto` stands for."""


def memory_limit_bytes(setting: int | str, physical: int | None = None) -> int | None:
    """The limit in bytes; `setting` is what `Memory` makes.

    `physical` is the size of the memory that shares are of, by default the physical
    memory of this machine. None is returned for a share of a memory whose size the
    system does not tell.
    """
    if isinstance(setting, int):
        return setting
    share = AUTO_SHARE if setting == AUTO else float(setting.rstrip("%"))
    total = physical_memory() if physical is None else physical
    return None if total is None else int(total * share / 100)


def physical_memory() -> int | None:
    """Bytes of memory that this process may have, None where the system does not tell.

    That is the physical memory, or what a container or a service manager leaves of it.
    """
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    return min([total, *cgroup_limits()])


def cgroup_limits(
    membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Iterator[int]:
    """The limits that Linux control groups put on this process, in bytes.

    Every group on the way up to the root counts, of both versions of the hierarchy:
    systemd's MemoryMax is `memory.max` of version 2. In a container the path may be
    the host's and lead nowhere; the root is then the container's own group.
    """
    try:
        lines = membership.read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(base):
                yield from _number_in(folder / name)


def _number_in(file: Path) -> Iterator[int]:
    """The number in a file; none for `max` and for a file that is not there."""
    try:
        text = file.read_text().strip()
    except (OSError, ValueError):
        return
    if text.isascii() and text.isdigit():
        yield int(text)


def _bytes_of(word: str, bare: int = 1) -> int | None:
    """The bytes that a size means; `bare` is the unit of a number without one."""
    size = _SIZE.fullmatch(word)
    if size is None or size[2].lower() not in _UNITS or len(word) > 30:
        return None
    number, unit = size[1], _UNITS[size[2].lower()] if size[2] else bare
    return int(float(number) * unit) if "." in number else int(number) * unit


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
        if word.lower() == AUTO:
            return AUTO
        if share := _PERCENT.fullmatch(word):
            if not 0 < float(share[1]) <= 100:
                raise BadValue(found_text(text), "a share above 0 % and up to 100 %")
            return f"{share[1]}%"
        count = _bytes_of(word)
        if count is None or not 0 < count < 2**63:
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


@dataclass(frozen=True, slots=True)
class Size(Kind):
    """A number of bytes, with an optional unit as in `Memory`."""

    annotation: ClassVar[str] = "int"
    metavar: ClassVar[str] = "SIZE"

    @property
    def wanted(self) -> str:
        return "bytes with an optional unit (K, M, G, T or KiB, MiB, GiB, TiB)"

    def parse(self, text: str) -> int:
        return self._only_bytes(text, found_text(text))

    def check(self, value: object) -> int:
        return self._only_bytes(value, found_toml(value))

    def _only_bytes(self, value: object, found: str) -> int:
        try:
            count = Memory().check(value)
        except BadValue:
            count = AUTO
        if isinstance(count, str):
            raise BadValue(found, self.wanted)
        return count

    def render(self, value: Value) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class RamSize(Kind):
    """An amount of memory where a bare number is MiB, as in llama-server.

    The value is the number of bytes, a multiple of 1024; -1 stands for no bound of its
    own.
    """

    annotation: ClassVar[str] = "int"
    metavar: ClassVar[str] = "MIB"

    @property
    def wanted(self) -> str:
        return (
            "a number of MiB, a size with a unit (K, M, G, T or KiB, MiB, GiB, TiB), "
            "or -1 for no bound"
        )

    def parse(self, text: str) -> int:
        word = text.strip()
        if word == "-1":
            return -1
        count = _bytes_of(word, bare=1 << 20)
        no_whole = "." in word and word[-1:].isdigit()
        if count is None or count >= 2**63 or no_whole:
            raise BadValue(found_text(text), self.wanted)
        return count // 1024 * 1024

    def check(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            if not -1 <= value < 2**43:
                raise BadValue(found_toml(value), self.wanted)
            return value << 20 if value >= 0 else -1
        if isinstance(value, str):
            return self.parse(value)
        raise BadValue(found_toml(value), self.wanted)

    def render(self, value: Value) -> str:
        assert isinstance(value, int)
        if value < 0:
            return "-1"
        if value % (1 << 20):
            return toml_text(f"{value >> 10}K")
        return str(value >> 20)
