"""Every family in a crowded house: requests come, are put back, and are given up.

Three slots share fewer tokens than their requests want. Whoever is left gets the tokens
of mlx-lm's own loop, and memory stays within the plan.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mlxceld.engine.messages import Done, Failed, Up
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.plan import Plan, Wish
from tests.engine import real
from tests.engine.families import FAMILIES, TOGETHER
from tests.tiny import VOCAB_SIZE

CROWDED = Wish("per-seq", 90, 3, ctx_size_per_seq=90, kv_unified=True)


class House:
    """A scheduler over a real model, driven one turn at a time."""

    def __init__(self, model: real.Model, chance: random.Random) -> None:
        self.plan: Plan = model.plan(CROWDED)
        self.runner = model.runner(self.plan.slots, self.plan.cells)
        self.out: list[Up] = []
        self.scheduler = Scheduler(
            self.plan,
            real.WORDS,
            self.runner,
            self.out.append,
            limits=Limits(prefill_chunk=chance.choice((7, 16))),
        )

    def turn(self) -> None:
        """One turn of the loop, after which all promises about memory must hold."""
        self.scheduler.advance()
        self.scheduler.read_chunk()
        snapshot = self.scheduler.snapshot()
        assert snapshot.n_live <= self.plan.pool
        assert snapshot.kv_bytes <= self.plan.kv_bytes

    def ended(self) -> set[int]:
        return {m.id for m in self.out if isinstance(m, Done | Failed)}


def _requests(chance: random.Random) -> dict[int, tuple[list[int], int]]:
    """Prompt and limit of each; some repeat or lengthen the prompt of another."""
    found: dict[int, tuple[list[int], int]] = {}
    for i in range(7):
        length = chance.choice((1, 2, 9, 25, 40))
        prompt = [chance.randrange(3, VOCAB_SIZE) for _ in range(length)]
        if i and chance.random() < 0.5:
            known = found[chance.randrange(i)][0]
            prompt = known + prompt[: 45 - len(known)] * chance.randrange(2)
        found[i] = prompt, chance.randrange(3, 30)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_who_stays_gets_the_same_tokens_whatever_happens_to_the_others(
    family: str, tmp_path: Path
) -> None:
    model = real.tiny_model(tmp_path, family, **FAMILIES[family])
    model.batched = family in TOGETHER
    chance = random.Random(2)
    house = House(model, chance)
    asked = _requests(chance)
    coming = list(asked)
    given_up: set[int] = set()
    while coming or house.scheduler.busy:
        if coming and chance.random() < 0.4:
            i = coming.pop(0)
            prompt, limit = asked[i]
            house.scheduler.submit(*real.ask(i, prompt, limit, cache_prompt=True))
        begun = set(asked) - set(coming) - house.ended() - given_up
        if begun and chance.random() < 0.04:
            i = chance.choice(sorted(begun))
            house.scheduler.cancel(i)
            given_up.add(i)
        house.turn()
    assert house.ended() == set(asked) - given_up
    answers = real.collect(house.out)
    for i in house.ended():
        prompt, limit = asked[i]
        assert answers[i].tokens == real.greedy(model.model, prompt, limit)
    assert house.scheduler.snapshot().n_live == 0
    assert house.scheduler.tally.preempted >= 1
    assert given_up


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
@pytest.mark.parametrize("family", ["llama", "gpt_oss", "falcon_h1", "llama4"])
def test_quantised_neighbours_change_nothing_either(
    family: str, kind: str, tmp_path: Path
) -> None:
    """Each of three at once gets what it gets alone from the same kind of cells."""
    options = dict(FAMILIES[family])
    if family == "llama4":
        options["text_config"] = options["text_config"] | {"head_dim": 32}
    model = real.tiny_model(tmp_path, family, **({"head_dim": 32} | options))
    model.map = model.map.stored_as(kind, kind)
    model.batched = family in TOGETHER
    chance = random.Random(3)
    asked = [
        real.ask(i, [chance.randrange(3, VOCAB_SIZE) for _ in range(n)], 20)
        for i, n in enumerate((30, 1, 17))
    ]
    wish = Wish("llama-compat", 60, 3, kv_unified=True)
    run = real.serve(model, asked, wish, chunk=16)
    assert run.most_rows == 3
    for request in asked:
        i = request[0].id
        alone = real.serve(model, [request], wish, chunk=16).answers[i]
        assert run.answers[i].tokens == alone.tokens


@pytest.mark.parametrize(("kind", "allowed"), [("f16", 0.01), ("q8_0", 0.1)])
def test_logits_over_other_cache_types_are_close_to_the_models_own(
    kind: str, allowed: float, tmp_path: Path
) -> None:
    """In parts of the logits' own spread, after 60 tokens."""
    from mlx_lm.models.cache import make_prompt_cache

    mx = real.mx
    loaded = real.tiny_model(tmp_path, head_dim=32)
    chance = random.Random(5)
    prompt = [chance.randrange(3, VOCAB_SIZE) for _ in range(60)]
    own = make_prompt_cache(loaded.model)
    wanted = loaded.model(mx.array([prompt]), cache=own)[0, -1]
    loaded.map = loaded.map.stored_as(kind, kind)
    runner = loaded.runner(1, 80)
    runner.prefill(0, 11, 0, prompt[:40])
    runner.prefill(0, 11, 40, prompt[40:-1])
    row = real.row(start=11, position=59, token=prompt[-1])
    found = runner.logits([row], mx.array(prompt[-1:]))[0]
    apart = mx.max(mx.abs(found - wanted)).item()
    assert 0 < apart <= allowed * mx.std(wanted).item()
