"""Eight requests at once over HTTP: each gets the tokens that it gets alone."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.server import Server
from tests.tiny import VOCAB_SIZE

LENGTHS = (1, 2, 90, 30, 61, 7, 150, 45)
LIMITS = (1, 2, 120, 80, 90, 60, 100, 80)
BIASED, STOPPED = 3, 4

GREEDY: dict[str, Any] = {"temperature": 0}
SEEDED: dict[str, Any] = {"temperature": 0.8, "seed": 42}

STREAMED = (1, 3, 5, 7)


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    text: str
    why: str
    n: int


def ask(served: Server, body: dict[str, Any], stream: bool = False) -> Answer:
    if stream:
        events = served.stream("/completion", body)
    else:
        events = [served.answer("/completion", {**body, "return_tokens": True})]
    return Answer(
        [token for event in events for token in event["tokens"]],
        "".join(event["content"] for event in events),
        events[-1]["stop_type"],
        events[-1]["tokens_predicted"],
    )


def requests(served: Server, rules: dict[str, Any]) -> list[dict[str, Any]]:
    """The eight; bias and stop string are made from what the two say without them."""
    chance = random.Random(4)
    asked = [
        {
            "prompt": [chance.randrange(3, VOCAB_SIZE) for _ in range(length)],
            "n_predict": limit,
            "ignore_eos": True,
            "cache_prompt": False,
            **rules,
        }
        for length, limit in zip(LENGTHS, LIMITS, strict=True)
    ]
    tokens = ask(served, asked[BIASED]).tokens
    asked[BIASED]["logit_bias"] = [[max(tokens, key=tokens.count), False]]
    text = ask(served, asked[STOPPED]).text
    # Two letters of different tokens, as most tokens are one byte.
    asked[STOPPED]["stop"] = next(
        text[i : i + 2]
        for i in range(20, len(text))
        if text[i : i + 2].isascii() and text.find(text[i : i + 2]) == i
    )
    return asked


@pytest.mark.parametrize("rules", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_each_of_eight_gets_the_tokens_of_its_solo_run(
    served: Server, rules: dict[str, Any]
) -> None:
    asked = requests(served, rules)
    alone = [ask(served, body, i in STREAMED) for i, body in enumerate(asked)]
    for index, answer in enumerate(alone):
        if index == STOPPED:
            assert answer.why == "word"
            assert answer.n < LIMITS[STOPPED]
            assert asked[STOPPED]["stop"] not in answer.text
        else:
            assert (answer.n, answer.why) == (LIMITS[index], "limit")
    ((banned, _),) = asked[BIASED]["logit_bias"]
    assert banned not in alone[BIASED].tokens

    together: dict[int, Answer] = {}

    def run(index: int) -> None:
        together[index] = ask(served, asked[index], index in STREAMED)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    # The long ones first, so that short ones come and go beside them.
    for index in (2, 6, 3, 0, 4, 7, 1, 5):
        threads[index].start()
        time.sleep(0.01)
    busy = 0
    while any(thread.is_alive() for thread in threads):
        busy = max(busy, served.busy())
    # How many a look finds at once depends on how busy the machine is otherwise.
    assert busy >= 2
    assert together == dict(enumerate(alone))
