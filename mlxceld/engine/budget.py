"""A bound on reasoning: when the thoughts have had their tokens, they are ended.

The marker that ends them, behind a message where one is set, is put in token by token;
then the model goes on with its answer. Markers are found in the text, not in the
tokens: few tokenizers have them as one token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlxceld.engine.messages import ThinkingBudget


class Budget:
    """Follows one answer; `due` is the token that has to come next."""

    def __init__(
        self,
        wanted: ThinkingBudget,
        ending: Sequence[int],
        piece: Callable[[int], bytes],
    ) -> None:
        """`ending` are the tokens of message and marker, `piece` a token's bytes."""
        self._most = wanted.tokens
        self._start = wanted.start.encode()
        self._end = wanted.end.encode()
        self._ending = list(ending)
        self._piece = piece
        self._seen = b""
        self._n = 0
        """Tokens of thoughts so far."""
        self._put = 0
        """Tokens of `ending` that have been put in."""
        self._state = "thinking" if wanted.opened else "start"
        self._judge()

    @property
    def due(self) -> int | None:
        """The token that has to come next; None where the model is free."""
        return self._ending[self._put] if self._state == "ending" else None

    @property
    def near(self) -> bool:
        """Whether the last token has to be known before the next can be sampled."""
        match self._state:
            case "start":
                return self._most == 0
            case "thinking":
                return self._n + 1 >= self._most
            case state:
                return state == "ending"

    def accept(self, token: int) -> None:
        """Go on with the answer's next token."""
        if self._state == "ending":
            self._put += 1
            if self._put == len(self._ending):
                self._state = "over"
        elif self._state != "over":
            self._seen += self._piece(token)
            if self._state == "thinking":
                self._n += 1
            else:
                self._begin()
            self._judge()

    def _begin(self) -> None:
        """Only at its beginning can an answer have thoughts."""
        rest = self._seen.lstrip()
        if rest.startswith(self._start):
            self._seen = rest[len(self._start) :]
            self._state = "thinking"
        elif not self._start.startswith(rest):
            self._state = "over"

    def _judge(self) -> None:
        """End thoughts that have had their tokens, but never within a character."""
        if self._state != "thinking":
            return
        if self._end in self._seen:
            self._state = "over"
            return
        self._seen = self._seen[-max(4, len(self._end) - 1) :]
        if self._n >= self._most and (whole(self._seen) or self._n >= self._most + 4):
            self._state = "ending" if self._ending else "over"


def whole(text: bytes) -> bool:
    """Whether the bytes end with a whole UTF-8 character."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        if byte < 0x80:
            return True
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back >= length
    return True
