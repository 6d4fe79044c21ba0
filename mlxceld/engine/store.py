"""Prompts kept in RAM after their slot has gone to another: what stays, what is found.

Pure bookkeeping over texts that a runner has exported; `keeper.py` does the exporting.
The bound on bytes holds at every moment: room is made before an entry is exported, and
an entry that turns out larger is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlxceld.engine.runner import Saved
from mlxceld.engine.slot import common_prefix

LEAST_TOKENS = 32
"""Shorter texts are not kept: reading them anew is as quick as copying them."""

_LEAST_SHARE = 0.25
"""Share of a kept text that a prompt must begin with, as in llama-server."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A text outside the pool."""

    tokens: list[int]
    saved: Saved
    whole: bool
    """Whether it can only be used as a whole: state that cannot be trimmed."""


class Store:
    """Entries from the least to the most recently used, at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: list[Entry] = []
        self._pinned: Entry | None = None

    @property
    def nbytes(self) -> int:
        return sum(entry.saved.nbytes for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def worth(self, tokens: Sequence[int], whole: bool) -> bool:
        """Whether keeping this text would tell anything that is not kept already."""
        if self.limit <= 0 or len(tokens) < LEAST_TOKENS:
            return False
        return not any(_covers(entry, tokens, whole) for entry in self._entries)

    def make_room(self, tokens: Sequence[int], whole: bool, nbytes: int) -> bool:
        """Drop entries until a text of `nbytes` fits; False when it cannot.

        What the text makes superfluous goes first, then the least recently used.
        """
        pinned = self._pinned.saved.nbytes if self._pinned is not None else 0
        if nbytes + pinned > self.limit:
            return False
        for entry in list(self._entries):
            if entry is self._pinned or entry.whole or whole:
                continue
            if common_prefix(entry.tokens, tokens) == len(entry.tokens):
                self._entries.remove(entry)
        while self.nbytes + nbytes > self.limit:
            oldest = next(e for e in self._entries if e is not self._pinned)
            self._entries.remove(oldest)
        return True

    def put(self, entry: Entry) -> bool:
        """Keep an entry; False, and nothing is kept, when it is not worth it."""
        if not self.worth(entry.tokens, entry.whole):
            return False
        if not self.make_room(entry.tokens, entry.whole, entry.saved.nbytes):
            return False
        self._entries.append(entry)
        return True

    def best(self, tokens: Sequence[int], beyond: int) -> tuple[Entry, int] | None:
        """The entry that spares most of a prompt, and how many tokens of it.

        `beyond` is what the prompt's slot remembers anyway. The last token of a prompt
        always has to be read. The entry becomes the most recently used.
        """
        found: tuple[Entry, int] | None = None
        for entry in self._entries:
            n = min(common_prefix(entry.tokens, tokens), len(tokens) - 1)
            if entry.whole and n < len(entry.tokens):
                continue
            if n > beyond and n >= _LEAST_SHARE * len(entry.tokens):
                found, beyond = (entry, n), n
        if found is not None:
            self._entries.remove(found[0])
            self._entries.append(found[0])
        return found

    def pin(self, entry: Entry | None) -> None:
        """Let one entry stay while it is in use, whatever is put in; None ends that."""
        self._pinned = entry

    def drop(self, entry: Entry) -> None:
        """Forget an entry, if it is still there."""
        if entry in self._entries:
            self._entries.remove(entry)


def _covers(entry: Entry, tokens: Sequence[int], whole: bool) -> bool:
    """Whether the entry makes a text superfluous."""
    if common_prefix(entry.tokens, tokens) < len(tokens):
        return False
    return len(entry.tokens) == len(tokens) or not (entry.whole or whole)
