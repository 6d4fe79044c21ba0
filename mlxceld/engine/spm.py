"""SentencePiece's BPE as llama.cpp runs it, for GGUF files of `llama` vocabularies.

Such files hold scores, not merges. The `tokenizers` library wants merges in one fixed
order, which ties between equal scores do not have; so the rule is followed directly:
of all neighbours whose union is a token, the one with the highest score is joined,
the leftmost of equals.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence

SPACE = "\u2581"

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token types of a GGUF vocabulary."""


class SpmEncoder:
    """Encodes text with scores; callable as `Text` wants its encoder."""

    def __init__(
        self,
        tokens: Sequence[str],
        scores: Sequence[float],
        types: Sequence[int],
        *,
        space_prefix: bool,
        unknown: int = 0,
    ) -> None:
        """`space_prefix` puts a space before text that begins or follows a special
        token; `unknown` stands for bytes that have no token."""
        self._ids: Mapping[str, int] = {token: i for i, token in enumerate(tokens)}
        self._scores = scores
        self._prefix = space_prefix
        self._unknown = unknown
        always = [t for t, kind in zip(tokens, types, strict=True) if kind == 4]
        marked = [t for t, kind in zip(tokens, types, strict=True) if kind in (2, 3, 4)]
        self._borders = {False: _any_of(always), True: _any_of(marked)}

    def __call__(self, text: str, parse_special: bool) -> list[int]:
        """Tokens of `text`, special tokens recognised if `parse_special`."""
        out: list[int] = []
        border = self._borders[parse_special]
        parts = border.split(text) if border else [text]
        # re.split with one group: text and special tokens take turns.
        for index, part in enumerate(parts):
            if index % 2:
                out.append(self._ids[part])
            elif part:
                # Text always follows the beginning or a special token here.
                spaced = " " + part if self._prefix else part
                out += self._merge(spaced.replace(" ", SPACE))
        return out

    def _merge(self, text: str) -> list[int]:
        """Join symbols of one text without special tokens, best score first."""
        symbols: list[str] = list(text)
        after = [*range(1, len(symbols)), -1]
        before = list(range(-1, len(symbols) - 1))
        heap: list[tuple[float, int, int, str]] = []

        def propose(left: int, right: int) -> None:
            if left < 0 or right < 0:
                return
            joined = symbols[left] + symbols[right]
            token = self._ids.get(joined)
            if token is not None:
                heapq.heappush(heap, (-self._scores[token], left, right, joined))

        for left in range(len(symbols) - 1):
            propose(left, left + 1)
        while heap:
            _, left, right, joined = heapq.heappop(heap)
            # A proposal is stale when either side has been joined since.
            if not symbols[left] or not symbols[right]:
                continue
            if symbols[left] + symbols[right] != joined or after[left] != right:
                continue
            symbols[left], symbols[right] = joined, ""
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            propose(before[left], left)
            propose(left, after[left])
        return [token for symbol in symbols if symbol for token in self._lookup(symbol)]

    def _lookup(self, symbol: str) -> list[int]:
        token = self._ids.get(symbol)
        if token is not None:
            return [token]
        raw = symbol.encode("utf-8", "replace")
        return [self._ids.get(f"<0x{byte:02X}>", self._unknown) for byte in raw]


def _any_of(tokens: Sequence[str]) -> re.Pattern[str] | None:
    """A pattern for any of these texts, the longest first; None for no text."""
    texts = sorted({t for t in tokens if t}, key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, texts)) + ")") if texts else None
