"""The syntax of systemd's files: sections, continued lines, quotes and specifiers.

systemd.syntax(7), systemd.service(5) and systemd.unit(5) are the rules; Podman's
quadlets are written in the same syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ..found import Place, Word


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment of a unit."""

    section: str
    key: str
    value: str
    place: Place
    lines: tuple[tuple[int, int], ...] = ()
    """Where in `value` each further line begins: offset and line."""

    def place_at(self, offset: int) -> Place:
        """The place of something inside the value."""
        line = self.place.line
        for start, number in self.lines:
            if offset >= start:
                line = number
        return replace(self.place, line=line)


def parse(text: str, file: str) -> list[Setting]:
    """The assignments of a unit file, those of an empty value too.

    Comments are left out inside continued lines as well, as systemd does.
    """
    settings: list[Setting] = []
    section = ""
    joined = ""
    first = 0
    lines: list[tuple[int, int]] = []
    for number, row in enumerate(text.split("\n"), 1):
        row = row.rstrip("\r").lstrip(" \t")
        if row.startswith(("#", ";")):
            continue
        if first:
            lines.append((len(joined), number))
        else:
            first = number
        joined += row
        if len(joined) - len(joined.rstrip("\\")) & 1:
            joined = joined[:-1] + " "
            continue
        stripped = joined.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            section = stripped[1:-1]
        elif "=" in stripped:
            key, _, value = joined.partition("=")
            cut = len(key) + 1 + len(value) - len(value.lstrip())
            settings.append(
                Setting(
                    section,
                    key.strip(),
                    value.strip(),
                    Place(file, first, key.strip()),
                    tuple((offset - cut, line) for offset, line in lines),
                )
            )
        joined, first, lines = "", 0, []
    return settings


class Unquotable(ValueError):
    """A value whose quotes are not closed: systemd leaves the assignment out."""


_SIMPLE = dict(zip("abfnrtv\\\"'s", "\a\b\f\n\r\t\v\\\"' ", strict=True))
_NUMERIC = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")


def split(setting: Setting) -> list[Word]:
    """The words of a value, quotes off and escapes done. Raises Unquotable.

    Single and double quotes are alike, and count inside a word too. A backslash that
    begins no escape stays.
    """
    text = setting.value
    words: list[Word] = []
    at = 0
    while True:
        while at < len(text) and text[at] in " \t\n\r":
            at += 1
        if at >= len(text):
            return words
        start, out, quote = at, "", ""
        while at < len(text):
            char = text[at]
            if char == "\\" and at + 1 < len(text):
                done, used = _unescaped(text, at + 1)
                out += done
                at += used + 1
                continue
            at += 1
            if quote:
                if char == quote:
                    quote = ""
                else:
                    out += char
            elif char in "'\"":
                quote = char
            elif char in " \t\n\r":
                break
            else:
                out += char
        if quote:
            raise Unquotable(setting.value)
        words.append(Word(out, setting.place_at(start)))


def _unescaped(text: str, at: int) -> tuple[str, int]:
    """What an escape stands for, and how many characters it has after `\\`."""
    char = text[at]
    if char in _SIMPLE:
        return _SIMPLE[char], 1
    if match := _NUMERIC.match(text, at):
        code = int(match[match.lastindex or 0], 16)
        if 0 < code < 0xD800 or 0xDFFF < code < 0x110000:
            return chr(code), len(match[0])
    if match := re.compile(r"[0-3][0-7]{2}").match(text, at):
        return chr(int(match[0], 8)), 3
    return "\\" + char, 1


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit and its drop-ins, as one list of assignments."""

    name: str
    """`llama@8081.service`."""
    file: str
    settings: tuple[Setting, ...]
    is_user: bool = False
    """Whether the user's manager runs it."""
    files: tuple[str, ...] = ()

    def all(self, section: str, key: str) -> list[Setting]:
        """The assignments that count: an empty one takes back those before it."""
        found: list[Setting] = []
        for setting in self.settings:
            if (setting.section, setting.key) == (section, key):
                if setting.value:
                    found.append(setting)
                else:
                    found.clear()
        return found

    def last(self, section: str, key: str) -> Setting | None:
        """The last assignment, or None."""
        found = self.all(section, key)
        return found[-1] if found else None

    @property
    def _stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    def specifiers(self) -> Mapping[str, str]:
        """What can be known of `%`; a missing one depends on the machine."""
        prefix, at, instance = self._stem.partition("@")
        folder = self.file.rpartition("/")[0]
        known = {
            "%": "%",
            "n": self.name,
            "N": self._stem,
            "p": prefix,
            "j": prefix.rpartition("-")[2],
            "T": "/tmp",
            "V": "/var/tmp",
        }
        if instance:
            known["i"] = instance
            known["I"] = _unescape_name(instance)
        elif not at:
            known |= {"i": "", "I": ""}
        if folder.startswith("/"):
            known |= {"y": self.file, "Y": folder}
        if not self.is_user:
            known |= {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log"}
            known |= {"E": "/etc", "h": "/root", "u": "root", "U": "0", "g": "root"}
            known |= {"G": "0", "d": f"/run/credentials/{self.name}"}
        return known


def _unescape_name(text: str) -> str:
    text = text.replace("-", "/")
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), text)


def specified(word: Word, unit: Unit) -> Word:
    """A word with its `%` specifiers filled in."""
    if "%" not in word.text:
        return word
    known = unit.specifiers()
    doubt = word.doubt

    def fill(match: re.Match[str]) -> str:
        nonlocal doubt
        letter = match[1]
        if letter in known:
            return known[letter]
        if letter == "h" and match.start() == 0 and word.text[2:3] in ("/", ""):
            # The daemon reads `~` as the home folder of the same user.
            return "~"
        doubt = doubt or f"`{match[0]}` depends on the machine or the instance"
        return match[0]

    return Word(re.sub(r"%([%A-Za-z])", fill, word.text), word.place, doubt)


@dataclass(slots=True)
class Expansion:
    """Fills the variables of a unit into a command line."""

    lookup: Callable[[str], Word | None]
    missing: str = ""
    """Why a variable that is not found may have a value after all."""

    def words(self, words: Iterable[Word]) -> list[Word]:
        """As `ExecStart=` does: `$NAME` alone is split, `${NAME}` is not.

        `$NAME` inside a word stays as it is, and `$$` is a dollar sign.
        """
        out: list[Word] = []
        for number, word in enumerate(words):
            text = word.text
            if number == 0:
                out.append(word)
            elif text.startswith("$") and not text.startswith(("${", "$$")):
                out += self._split(word, text[1:])
            else:
                out.append(self._braces(word))
        return out

    def _split(self, word: Word, name: str) -> list[Word]:
        value = self.lookup(name)
        if value is None:
            return [Word(word.text, word.place, self._unknown(name))]
        doubt = word.doubt or value.doubt
        setting = Setting("", "", value.text, word.place)
        try:
            texts = [item.text for item in split(setting)]
        except Unquotable:
            texts = value.text.split()
        return [Word(text, word.place, doubt) for text in texts]

    def _braces(self, word: Word) -> Word:
        doubt = word.doubt

        def fill(match: re.Match[str]) -> str:
            nonlocal doubt
            if match[0] == "$$":
                return "$"
            value = self.lookup(match[1])
            if value is None:
                doubt = doubt or self._unknown(match[1])
                return match[0]
            doubt = doubt or value.doubt
            return value.text

        text = re.sub(r"\$\$|\$\{([A-Za-z_]\w*)\}", fill, word.text)
        if not doubt and (match := re.search(r"\$\{[A-Za-z_]\w*:?[-+=?]", text)):
            doubt = f"systemd fills in no `{match[0]}`"
        return Word(text, word.place, doubt)

    def _unknown(self, name: str) -> str:
        reason = f"`{name}` is not set here"
        return f"{reason}: {self.missing}" if self.missing else reason
