"""How a model answers: what a prompt and a template say about the text to come."""

from __future__ import annotations

from dataclasses import dataclass

from mlxceld.chat import harmony, reasoning
from mlxceld.chat.harmony import HarmonyParser
from mlxceld.chat.parse import Calling, CallSplitter, Chain, Plain
from mlxceld.chat.pieces import Parser
from mlxceld.chat.reasoning import Markers, Splitter


@dataclass(frozen=True, slots=True)
class Style:
    """What to look for in an answer."""

    markers: Markers | None = None
    """Of reasoning; None when it is not to be told from the rest."""
    opened: bool = False
    """Whether the prompt ends within reasoning."""
    keep: bool = False
    """Whether reasoning stays in the content as well."""
    harmony: bool = False
    calling: Calling | None = None
    shown: tuple[str, ...] = ()
    """Texts of special tokens that are part of the answer's text."""

    @property
    def name(self) -> str:
        """For `chat_format`: llama-server's word where nothing is looked for."""
        if self.harmony:
            return "harmony"
        if self.calling is not None:
            return self.calling.form.name
        return "Content-only" if self.markers is None else "reasoning"

    def parser(self) -> Parser:
        """A fresh parser for one answer."""
        calling = self.calling
        if self.harmony and not (calling and calling.forced):
            return HarmonyParser(
                reasons=self.markers is not None,
                calls=calling is not None,
                parallel=calling is None or calling.parallel,
            )
        then: Parser = Plain() if calling is None else CallSplitter(calling)
        if self.markers is None:
            return then
        first = Splitter(self.markers, opened=self.opened, keep=self.keep)
        return Chain(first, then)


def style_of(
    template: str, prompt: str, reasoning_format: str, calling: Calling | None
) -> Style:
    """The style of the answers to a prompt that a template made."""
    speaks = harmony.speaks_harmony(template)
    markers = harmony.MARKERS if speaks else reasoning.markers_of(template)
    shown: list[str] = list(harmony.SHOWN) if speaks else []
    if markers is not None and not speaks:
        shown += [markers.start, markers.end]
        # Some markers are a special token and a word.
        shown += [text[: text.rindex(">") + 1] for text in shown if ">" in text]
    if calling is not None and not speaks:
        shown += calling.form.shown
    told = None if reasoning_format == "none" else markers
    return Style(
        markers=told,
        opened=reasoning.opened(prompt, told),
        keep=reasoning_format == "deepseek-legacy",
        harmony=speaks,
        calling=calling,
        shown=tuple(dict.fromkeys(shown)),
    )
