"""Telling reasoning from content, wherever the text is cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlxceld.chat.harmony import HarmonyParser
from mlxceld.chat.pieces import Call, Parser, Whole
from mlxceld.chat.reasoning import (
    MARKERS,
    Markers,
    Splitter,
    closed,
    markers_of,
    opened,
)

THINK = Markers("<think>", "</think>")


def heard(make: Callable[[], Parser], text: str, step: int) -> Whole:
    """What a parser makes of a text that comes in pieces of `step` characters."""
    parser, found = make(), Whole()
    for at in range(0, len(text), step):
        found.add(parser.feed(text[at : at + step]))
    found.add(parser.finish())
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    ("text", "inside", "reasoning", "content"),
    [
        ("<think>\nhm, 2\n</think>\n\nfour", False, "hm, 2", "four"),
        ("\n <think>hm</think>four", False, "hm", "four"),
        ("<think>\n\n</think>\n\nfour", False, "", "four"),
        # The first marker stands in the prompt.
        ("hm\n</think>\n\nfour", True, "hm", "four"),
        # Some models write it once more.
        ("<think>\nhm</think>four", True, "hm", "four"),
        # Cut short, or no end.
        ("<think>\nhm", False, "hm", ""),
        ("hm </thi", True, "hm </thi", ""),
        ("   ", False, "", "   "),
        ("", True, "", ""),
        # No reasoning at all; a marker that is quoted later is content.
        (" four", False, "", " four"),
        ("<thin air", False, "", "<thin air"),
        ("it ends with </think>", False, "", "it ends with </think>"),
        ("say <think>a</think>", False, "", "say <think>a</think>"),
        ("<think>a</think>b</think>c", False, "a", "b</think>c"),
        ("<think>a < b\n\n  c</think>  d  ", False, "a < b\n\n  c", "d  "),
    ],
)
def test_reasoning_and_content(
    text: str, inside: bool, reasoning: str, content: str, step: int
) -> None:
    found = heard(lambda: Splitter(THINK, opened=inside), text, step)
    assert (found.reasoning, found.content) == (reasoning, content)


def test_no_marker_is_given_away_in_halves() -> None:
    splitter = Splitter(THINK, opened=False)
    texts = [
        piece.text  # type: ignore[union-attr]
        for char in "<think>ab</think>cd"
        for piece in splitter.feed(char)
    ]
    assert texts == ["a", "b", "c", "d"]


@pytest.mark.parametrize("step", [1, 4, 1000])
def test_the_legacy_format_has_it_in_both_places(step: int) -> None:
    text = "<think>hm</think>\nfour"
    found = heard(lambda: Splitter(THINK, opened=False, keep=True), text, step)
    assert (found.reasoning, found.content) == ("hm", text)


@pytest.mark.parametrize("markers", MARKERS, ids=lambda markers: markers.start)
def test_the_markers_are_those_that_the_template_names(markers: Markers) -> None:
    for text in (markers.start, markers.end):
        assert markers_of("{{ '" + text + "' }}") == markers
    words = f"{markers.start}hm{markers.end}four"
    found = heard(lambda: Splitter(markers, opened=False), words, 1)
    assert (found.reasoning, found.content) == ("hm", "four")


def test_a_template_without_markers_has_none() -> None:
    assert markers_of("{{ messages }} I think") is None


def test_a_prompt_may_end_within_reasoning_and_can_be_closed() -> None:
    assert opened("<|assistant|>\n<think>\n", THINK)
    assert not opened("<|assistant|>\n<think>\n\n</think>\n\n", THINK)
    assert not opened("<|assistant|>\n", THINK)
    assert not opened("<think>", None)
    assert closed("a<think>\n", THINK) == "a<think>\n</think>"
    assert closed("a", THINK) == "a"


HARMONY = (
    "<|channel|>analysis<|message|>hm<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.weather "
    '<|constrain|>json<|message|>{"city": "Bonn<|end"}<|call|>'
)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_harmony_has_reasoning_calls_and_content_in_channels(step: int) -> None:
    found = heard(lambda: HarmonyParser(reasons=True, calls=True), HARMONY, step)
    assert (found.reasoning, found.content) == ("hm", "")
    (call,) = found.calls
    assert call == Call(call.id, "weather", '{"city": "Bonn<|end"}')
    final = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
        "<|channel|>final<|message|>four<|return|>"
    )
    found = heard(lambda: HarmonyParser(reasons=True, calls=False), final, step)
    assert (found.reasoning, found.content) == ("hm", "four")


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_harmony_takes_other_orders_and_answers_without_channels(step: int) -> None:
    text = (
        " to=functions.a<|channel|>commentary json<|message|>{}<|end|><|start|>"
        "assistant to=functions.b<|channel|>commentary<|message|>{}"
    )
    found = heard(lambda: HarmonyParser(reasons=True, calls=True), text, step)
    assert [call.name for call in found.calls] == ["a", "b"]
    found = heard(
        lambda: HarmonyParser(reasons=True, calls=True, parallel=False), text, step
    )
    assert [call.name for call in found.calls] == ["a"]
    found = heard(lambda: HarmonyParser(reasons=True, calls=True), "plain <|", step)
    assert found.content == "plain <|"
