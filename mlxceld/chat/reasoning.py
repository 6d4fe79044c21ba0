"""Reasoning: what the model writes to itself before it answers.

A model puts it between two markers at the beginning of its answer. Many templates
write the first marker into the prompt, so that the answer begins inside. Which markers
a model uses is read from its template. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlxceld.chat.pieces import Content, Piece, Reasoning, drop_empty, undecided


@dataclass(frozen=True, slots=True)
class Markers:
    """The texts around reasoning."""

    start: str
    end: str


MARKERS = (
    Markers("<think>", "</think>"),
    Markers("<longcat_think>", "</longcat_think>"),
    Markers("<|think:start|>", "<|think:end|>"),
    Markers("<|channel>thought", "<channel|>"),
    Markers("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    Markers("<|START_THINKING|>", "<|END_THINKING|>"),
    Markers("<seed:think>", "</seed:think>"),
    Markers("[THINK]", "[/THINK]"),
)
"""The known ones; the first of which a template names either is the model's."""

FORMATS = ("none", "deepseek", "deepseek-legacy", "auto")
"""What becomes of reasoning, in llama-server's words; `auto` means `deepseek`.

`none` leaves the text as it is, `deepseek` puts reasoning in a field of its own,
`deepseek-legacy` does that and leaves it in the text as well."""


def markers_of(template: str) -> Markers | None:
    """The markers that a template's model uses, None for a model without any."""
    for markers in MARKERS:
        if markers.start in template or markers.end in template:
            return markers
    return None


def opened(prompt: str, markers: Markers | None) -> bool:
    """Whether an answer to the prompt begins inside of reasoning."""
    return markers is not None and prompt.rstrip().endswith(markers.start)


def closed(prompt: str, markers: Markers | None) -> str:
    """The prompt with reasoning that it opened ended, for answers without any."""
    if markers is None or not opened(prompt, markers):
        return prompt
    return prompt + markers.end


class Splitter:
    """Tells reasoning from content while the text comes in.

    Only at its beginning can an answer have reasoning: a marker that it quotes later
    is content. Blanks around the markers belong to neither; a marker is never given
    away in halves.
    """

    def __init__(self, markers: Markers, *, opened: bool, keep: bool = False) -> None:
        """`opened`: the prompt has the first marker. `keep`: it all stays in the
        content too, with its markers."""
        self._markers = markers
        self._opened = opened
        self._keep = keep
        self._held = ""
        self._state = "start"
        self._began = False
        """Whether reasoning has more than blanks so far."""

    def feed(self, text: str) -> list[Piece]:
        self._held += text
        found: list[Piece] = [Content(text)] if self._keep else []
        if self._state == "start":
            self._start()
        if self._state == "thinking":
            found += self._think()
        if self._state == "after":
            self._held = self._held.lstrip()
            if self._held:
                self._state = "content"
        if self._state == "content":
            if not self._keep:
                found.append(Content(self._held))
            self._held = ""
        return drop_empty(found)

    def finish(self) -> list[Piece]:
        """What was held back for a marker that did not come."""
        held, self._held = self._held, ""
        if self._state == "start" and self._opened and held.strip():
            self._state = "thinking"
        if self._state == "thinking":
            return drop_empty([Reasoning(held.rstrip())])
        return drop_empty([Content("" if self._keep else held)])

    def _start(self) -> None:
        """Find out whether the answer begins with the first marker."""
        start = self._markers.start
        rest = self._held.lstrip()
        if rest.startswith(start):
            self._held = rest[len(start) :]
            self._state = "thinking"
        elif not start.startswith(rest):
            # With the first marker in the prompt, anything else is reasoning.
            self._state = "thinking" if self._opened else "content"

    def _think(self) -> list[Piece]:
        if not self._began:
            self._held = self._held.lstrip()
            self._began = bool(self._held)
        at = self._held.find(self._markers.end)
        if at >= 0:
            words = self._held[:at].rstrip()
            self._held = self._held[at + len(self._markers.end) :]
            self._state = "after"
            return [Reasoning(words)]
        keep = undecided(self._held, self._markers.end)
        words = self._held[: len(self._held) - keep].rstrip()
        self._held = self._held[len(words) :]
        return [Reasoning(words)]
