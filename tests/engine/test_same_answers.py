"""What a request gets does not depend on who else is being served.

Eight requests of different lengths, with different limits, one with a stop string, one
with a biased token, arrive one after the other; each gets exactly the tokens that it
gets when it is served alone.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from mlxceld.engine.messages import Generate
from mlxceld.plan import Wish
from tests.engine import real
from tests.tiny import VOCAB_SIZE

LENGTHS = (1, 2, 90, 30, 61, 7, 150, 45)
LIMITS = (1, 2, 3, 40, 33, 17, 8, 25)
BIASED, STOPPED = 3, 4

GREEDY: dict[str, Any] = {"temperature": 0.0}
SEEDED: dict[str, Any] = {"temperature": 0.8}
RICH: dict[str, Any] = {
    "temperature": 0.8,
    "top_k": 0,
    "typical_p": 0.9,
    "repeat_penalty": 1.3,
    "presence_penalty": 0.2,
}

ALONE = Wish("llama-compat", 256, 1, min_slot_ctx=1)
HOUSES = {
    "split": Wish("llama-compat", 1024, 4, min_slot_ctx=256),
    "legacy": Wish("legacy", 256, 8),
    "shared": Wish("llama-compat", 1024, 8, kv_unified=True),
    "crowded": Wish("per-seq", 256, 4, ctx_size_per_seq=256, kv_unified=True),
}
"""Slot contexts are at least 256 everywhere, so that no limit but `LIMITS` ends one;
crowded, all four slots share 256 cells, and requests are moved and put back."""

Asked = list[tuple[Generate, list[int]]]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> real.Model:
    return real.tiny_model(tmp_path_factory)


def _requests(model: real.Model, rules: dict[str, Any], **extra: Any) -> Asked:
    """The eight requests; the stop string lies across the borders of two tokens."""
    chance = random.Random(4)
    prompts = [[chance.randrange(3, VOCAB_SIZE) for _ in range(n)] for n in LENGTHS]
    asked = [
        real.ask(i, prompt, limit, **(rules | {"seed": i} | extra))
        for i, (prompt, limit) in enumerate(zip(prompts, LIMITS, strict=True))
    ]
    free = _alone(model, [asked[BIASED], asked[STOPPED]])
    popular = max(free[BIASED].tokens, key=free[BIASED].tokens.count)
    bias = {"logit_bias": ((popular, float("-inf")), (99, 3.0))}
    fifth, sixth = free[STOPPED].tokens[5:7]
    stop = {"stop": [f"{fifth}><{sixth}"]}
    for i, change in ((BIASED, bias), (STOPPED, stop)):
        asked[i] = real.ask(
            i, prompts[i], LIMITS[i], **(rules | {"seed": i} | extra | change)
        )
    return asked


def _alone(model: real.Model, asked: Asked) -> dict[int, real.Answer]:
    """Each request's answer from an engine that serves nobody else."""
    answers: dict[int, real.Answer] = {}
    for request in asked:
        answers |= real.serve(model, [request], ALONE, chunk=512).answers
    return answers


@pytest.fixture(scope="module", params=["greedy", "seeded", "rich"])
def both(
    request: pytest.FixtureRequest, llama: real.Model
) -> tuple[Asked, dict[int, real.Answer]]:
    """The eight requests under one set of rules, and their solo answers."""
    rules = {"greedy": GREEDY, "seeded": SEEDED, "rich": RICH}[request.param]
    asked = _requests(llama, rules)
    return asked, _alone(llama, asked)


@pytest.mark.parametrize(
    ("house", "pipelined"),
    [
        ("split", False),
        ("split", True),
        ("legacy", True),
        ("shared", False),
        ("crowded", False),
        ("crowded", True),
    ],
)
def test_each_of_eight_gets_exactly_the_tokens_of_its_solo_run(
    house: str,
    pipelined: bool,
    llama: real.Model,
    both: tuple[Asked, dict[int, real.Answer]],
) -> None:
    asked, alone = both
    run = real.serve(llama, asked, HOUSES[house], every=3, pipelined=pipelined)
    assert run.answers == alone
    assert run.most_rows >= 3


def test_the_order_of_arrival_changes_nothing(
    llama: real.Model, both: tuple[Asked, dict[int, real.Answer]]
) -> None:
    asked, alone = both
    run = real.serve(llama, asked[::-1], HOUSES["split"], every=1, cell_major=True)
    assert run.answers == alone


def test_a_crowded_pool_moves_and_puts_back_and_still_answers_the_same(
    llama: real.Model,
) -> None:
    """Four slots over 120 cells: what runs together never fits to its end."""
    wish = Wish("per-seq", 120, 4, ctx_size_per_seq=120, kv_unified=True)
    chance = random.Random(8)
    asked = [
        real.ask(i, [chance.randrange(3, VOCAB_SIZE) for _ in range(n)], 60, seed=i)
        for i, n in enumerate((20, 35, 10, 28, 15, 40))
    ]
    alone = _alone(llama, asked)
    for pipelined in (False, True):
        run = real.serve(llama, asked, wish, every=2, pipelined=pipelined)
        assert run.answers == alone
        assert run.preempted >= 2
        assert run.moves >= 2
        assert run.most_live <= 120


def test_a_solo_run_is_what_mlx_lm_gives(llama: real.Model) -> None:
    """The yardstick itself, measured against mlx-lm's caches in a plain loop."""
    asked = _requests(llama, GREEDY)
    alone = _alone(llama, asked)
    for i, (message, prompt) in enumerate(asked):
        if i in (BIASED, STOPPED):
            continue
        wanted = real.greedy(llama.model, prompt, message.n_predict)
        assert alone[i].tokens == wanted


def test_the_limits_the_stop_and_the_bias_act_on_their_own_request(
    llama: real.Model,
) -> None:
    asked = _requests(llama, GREEDY)
    run = real.serve(llama, asked, HOUSES["split"], every=3)
    for i, limit in enumerate(LIMITS):
        if i != STOPPED:
            assert len(run.answers[i].tokens) == limit
            assert run.answers[i].stop_type == "limit"
    stopped = run.answers[STOPPED]
    (stop,) = asked[STOPPED][0].stop
    assert stopped.stop_type == "word"
    assert len(stopped.tokens) <= 7
    written = "".join(f"<{token}>" for token in stopped.tokens)
    assert stopped.text == written[: written.index(stop)]
    biased = asked[BIASED][0].sampling.logit_bias
    assert biased[0][0] not in run.answers[BIASED].tokens
    plain = real.ask(BIASED, asked[BIASED][1], LIMITS[BIASED])
    assert biased[0][0] in _alone(llama, [plain])[BIASED].tokens


def test_a_remembered_prefix_changes_no_token(llama: real.Model) -> None:
    """A conversation grows turn by turn in a busy house; what is cached is not read."""
    chance = random.Random(6)
    base = [chance.randrange(3, VOCAB_SIZE) for _ in range(50)]
    first = real.serve(llama, [real.ask(1, base, 10)], ALONE).answers[1].tokens
    second = base + first + [17, 18, 19]
    other = [chance.randrange(3, VOCAB_SIZE) for _ in range(40)]
    asked = [
        real.ask(1, base, 10, cache_prompt=True),
        real.ask(2, other, 30, cache_prompt=True),
        real.ask(3, second, 10, cache_prompt=True),
        real.ask(4, base, 10, cache_prompt=True),
    ]
    alone = _alone(llama, asked)
    run = real.serve(llama, asked, HOUSES["split"], every=12)
    assert {i: a.tokens for i, a in run.answers.items()} == {
        i: a.tokens for i, a in alone.items()
    }
    # The last token of an answer is never read, and a prompt's last is read again.
    assert run.answers[3].n_cached == 50 + 10 - 1
