"""Answers with every key that llama-server sends, whole and a little changed.

The values are made up, the forms are those of its recorded answers.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from mlxceld.verify.ask import Server
from mlxceld.verify.measure import Wish, measure
from mlxceld.verify.record import Record, Seen
from mlxceld.verify.verdict import judge
from tests.verify.fakes import Fake, serving

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "llama_server.json").read_text()
)


class Recorded(Fake):
    """Sends the recorded answers, with the few values changed that must change."""

    said = RECORDED

    def answer(self, path: str) -> tuple[int, Any]:
        if path == "/slots":
            busy, idle = self.said["busy"], self.said["idle"]
            seats = [busy if i < self.running else idle for i in range(self.slots)]
            return 200, [{**seat, "id": i} for i, seat in enumerate(seats)]
        routes = {"/props": "props", "/v1/models": "models"}
        return 200, self.said[routes[path]]

    def last(self, slot: int, n: int, count: int) -> dict[str, Any]:
        return {**self.said["last"], **super().last(slot, n, count)}


def looked(fake: Fake) -> Record:
    with serving(fake) as url:
        return measure(Server(url, "", 30), Wish(tokens=16), lambda text: None)


def wrong(record: Record) -> list[str]:
    return [one.name for one in judge(record) if one.state == "WRONG"]


def test_the_answers_of_llama_server_are_read_and_found_right() -> None:
    record = looked(Recorded(slots=3, window=768))
    assert record.seen == Seen(
        slots=3,
        listed=3,
        props_ctx=768,
        slots_ctx=(768, 768, 768),
        models_ctx=768,
        build="b0-unknown",
        model="toy",
    )
    assert wrong(record) == []
    (fill,) = record.fills
    assert (fill.evaluated, fill.predicted, fill.truncated) == (760, 8, True)
    assert record.over is not None
    assert record.over.kind == "exceed_context_size_error"
    states = {one.name: one.state for one in judge(record)}
    assert (states["numbers"], states["memory"]) == ("ok", "unknown")


@pytest.mark.parametrize(
    ("answer", "path", "value", "names"),
    [
        ("props", ["total_slots"], 2, ["count"]),
        ("props", ["default_generation_settings", "n_ctx"], 3072, ["numbers"]),
        ("models", ["data", 0, "meta", "n_ctx"], 256, ["numbers"]),
        ("busy", ["is_processing"], False, ["slots"]),
    ],
)
def test_one_value_that_is_changed_is_caught(
    answer: str, path: list[Any], value: object, names: list[str]
) -> None:
    said = copy.deepcopy(RECORDED)
    place = said[answer]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    # Streams that run long enough for several looks on a busy machine.
    fake = Recorded(slots=3, window=768, step=0.03)
    fake.said = said
    assert set(wrong(looked(fake))) >= set(names)
