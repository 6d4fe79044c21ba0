"""Rows that want more than the usual: special ones, masks, and probabilities told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import real

# isort: split
import mlx.core as mx

from mlxceld.engine.batch import Step
from mlxceld.engine.messages import Sampling
from mlxceld.engine.runner import Probability, Row
from mlxceld.engine.sampling import Sampled, Sampler
from mlxceld.engine.text import Text

V = 24
NEVER = float("-inf")
EVERYTHING: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
PIECES = [b"a", b"b", b"c", b"d", b"\n", b"e:f"]
TEXT = Text(PIECES, lambda text, special: [])


def sample(
    rows: Sequence[tuple[Sequence[float], Row]],
    sampler: Sampler | None = None,
    dtype: mx.Dtype = mx.float32,
) -> Sampled:
    """One step."""
    width = len(rows[0][0])
    logits = mx.array(np.array([values for values, _ in rows], dtype=np.float32))
    read = mx.array([row.token or 5 for _, row in rows])
    lines = [row for _, row in rows]
    sampler = sampler or Sampler(width, [], TEXT)
    return sampler.sample(logits.astype(dtype), lines, read)


def told(sampled: Sampled) -> dict[int, Probability]:
    return Step(sampled).probabilities()


def random_logits(seed: int, n: int = V) -> list[float]:
    found: list[float] = np.random.default_rng(seed).normal(0, 3, n).tolist()
    return found


def log_softmax(logits: Sequence[float]) -> list[float]:
    values = np.array(logits, dtype=np.float32).astype(float)
    values -= values.max()
    found: list[float] = (values - np.log(np.exp(values).sum())).tolist()
    return found


# ---- special rows beside plain ones ----

SPECIAL = [
    Sampling(mirostat=1),
    Sampling(mirostat=2, mirostat_tau=2.0),
    Sampling(samplers=("temperature", "adaptive_p"), adaptive_target=0.3),
    Sampling(xtc_probability=1.0, xtc_threshold=0.05),
    Sampling(dry_multiplier=1.0, presence_penalty=0.5),
    Sampling(samplers=("temperature", "top_p", "penalties"), repeat_penalty=1.2),
    Sampling(dynatemp_range=0.5, top_n_sigma=1.0, min_keep=3, n_probs=3),
]
PLAIN = [
    Sampling(temperature=0.0),
    Sampling(),
    Sampling(temperature=2.0, presence_penalty=0.7, logit_bias=((3, 2.0),)),
    Sampling(temperature=1.0, n_probs=2, **EVERYTHING),
]


@settings(max_examples=25, deadline=None)
@given(
    chosen=st.lists(st.sampled_from(SPECIAL + PLAIN), min_size=2, max_size=5),
    seed=st.integers(0, 999),
)
def test_no_row_notices_what_its_neighbours_want(
    chosen: list[Sampling], seed: int
) -> None:
    rows = [
        (
            random_logits(seed + index),
            real.row(
                rules,
                uniform=(seed * 7 + index * 311) % 1000 / 1000,
                prompt=[1, 2, 3, 1, 2],
                token=2,
                id_=index,
            ),
        )
        for index, rules in enumerate(chosen)
    ]
    together = sample(rows).tokens.tolist()
    for _, row in rows:
        row.request.mirostat = {}
    assert together == [sample([row]).tokens.item() for row in rows]


def test_rows_with_the_usual_rules_do_not_go_through_the_chain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(*_: object) -> None:
        raise AssertionError("the usual rows are sampled together")

    monkeypatch.setattr("mlxceld.engine.chain.run", run)
    sample([(random_logits(0), real.row(rules)) for rules in PLAIN])


def test_the_chain_in_its_usual_order_gives_what_the_fast_way_gives() -> None:
    """`min_keep` 1 asks for nothing more, but sends a row through the chain."""
    for seed in range(20):
        rules = Sampling(temperature=1.3, typical_p=0.9, repeat_penalty=1.3, seed=seed)
        slow = Sampling(
            temperature=1.3, typical_p=0.9, repeat_penalty=1.3, seed=seed, min_keep=1
        )
        more: dict[str, Any] = {"prompt": [1, 2, 3], "token": 3, "uniform": seed / 20}
        one = sample([(random_logits(seed), real.row(rules, **more))])
        other = sample([(random_logits(seed), real.row(slow, **more))])
        assert one.tokens.item() == other.tokens.item()


def test_biases_and_forbidden_ends_reach_the_chain() -> None:
    rules = Sampling(
        temperature=0.0, min_keep=1, ignore_eos=True, logit_bias=((3, 5.0),)
    )
    logits = [0.0, 1.0, 9.0, 2.0]
    sampler = Sampler(4, [2])
    assert sample([(logits, real.row(rules))], sampler).tokens.item() == 3


# ---- what a grammar allows ----


@pytest.mark.parametrize(
    "rules",
    [
        Sampling(temperature=0.0),
        Sampling(temperature=2.0, **EVERYTHING),
        Sampling(temperature=2.0, mirostat=2),
        Sampling(temperature=2.0, xtc_probability=1.0, xtc_threshold=0.01),
    ],
)
def test_only_what_is_allowed_is_sampled(rules: Sampling) -> None:
    allowed = np.zeros(V, dtype=np.bool_)
    allowed[[4, 9]] = True
    for seed in range(10):
        masked = replace(real.row(rules, uniform=seed / 10), allowed=allowed)
        free = real.row(Sampling(temperature=0.0), id_=1)
        logits = random_logits(seed)
        got, beside = sample([(logits, masked), (logits, free)]).tokens.tolist()
        assert got in (4, 9)
        assert beside == int(np.argmax(logits))


# ---- DRY over texts ----


def _dry(prompt: list[int], output: list[int], **fields: Any) -> list[int]:
    """Tokens whose logit is fined, of six alike."""
    rules = Sampling(temperature=1.0, dry_multiplier=2.0, n_probs=6, **EVERYTHING)
    rules = msgspec.structs.replace(rules, post_sampling_probs=True, **fields)
    token = [*prompt, *output][-1]
    row = real.row(rules, prompt=prompt, output=output, token=token)
    found = told(sample([([0.0] * 6, row)]))[0]
    most = max(value for _, value in found.top)
    return sorted(token for token, value in found.top if value < most * 0.99)


def test_a_repetition_is_fined_across_prompt_and_answer() -> None:
    assert _dry([0, 1, 2], [3, 0, 1]) == [2]
    assert _dry([0, 1, 2], [3, 0, 1], dry_allowed_length=3) == []
    assert _dry([0, 1, 2], [3, 0, 1], dry_penalty_last_n=5) == []
    assert _dry([0, 1, 2], [3, 0, 1], dry_penalty_last_n=6) == [2]
    assert _dry([0, 1, 2], [3, 0, 1], dry_penalty_last_n=-1) == [2]
    assert _dry([0, 1, 2], [3, 0, 1], dry_penalty_last_n=0) == []


def test_a_breaker_ends_a_repetition_and_is_never_fined() -> None:
    """Token 4 is a line break, token 5 has a colon inside."""
    assert _dry([0, 1, 2, 3, 0], [4, 1], dry_allowed_length=1) == [2]
    assert _dry([0, 4, 1, 2, 3], [0, 4, 1], dry_allowed_length=2) == []
    for breaker in (4, 5):
        assert _dry([0, 1, breaker, 3], [0, 1]) == []
        more = {"dry_sequence_breakers": ("zz",)}
        assert _dry([0, 1, breaker, 3], [0, 1], **more) == [breaker]


# ---- mirostat from token to token ----


def _mirostat(rules: Sampling, n: int, again: Sequence[int] = ()) -> list[int]:
    """`n` tokens; those of `again` are sampled twice, as after a preemption."""
    row = real.row(rules)
    request = row.request
    tokens = []
    for index in range(n):
        for _ in range(1 + (index in again)):
            request.issued = index
            line = replace(row, uniform=request.uniform(index))
            token = sample([(random_logits(index), line)]).tokens.item()
        tokens.append(token)
    return tokens


def _mirostat_2(n: int, tau: float, eta: float, seed: int) -> list[int]:
    """Mirostat 2 in plain numpy over the same logits and random numbers."""
    request = real.row(Sampling(seed=seed)).request
    mu, tokens = 2 * tau, []
    for index in range(n):
        p = np.exp(log_softmax(random_logits(index)))
        order = np.argsort(-p, kind="stable")
        kept = [t for t in order if -math.log2(p[t]) <= mu] or [order[0]]
        shares = p[kept] / p[kept].sum()
        at = int(np.argmax(np.cumsum(shares) > request.uniform(index)))
        tokens.append(int(kept[at]))
        mu -= eta * (-math.log2(shares[at]) - tau)
    return tokens


def test_mirostat_2_follows_its_text_like_a_plain_loop() -> None:
    for seed in range(3):
        rules = Sampling(
            temperature=1.0, mirostat=2, mirostat_tau=1.0, mirostat_eta=0.5, seed=seed
        )
        assert _mirostat(rules, 30) == _mirostat_2(30, 1.0, 0.5, seed)


@pytest.mark.parametrize("version", [1, 2])
def test_a_token_sampled_again_starts_from_the_same_state(version: int) -> None:
    rules = Sampling(
        temperature=1.0, mirostat=version, mirostat_tau=1.5, mirostat_eta=0.7, seed=4
    )
    assert _mirostat(rules, 20, again=[0, 1, 7, 8, 19]) == _mirostat(rules, 20)


# ---- probabilities before sampling ----


@pytest.mark.parametrize(
    "rules",
    [
        Sampling(temperature=0.0),
        Sampling(temperature=1.7, top_k=3, seed=3),
        Sampling(temperature=1.0, mirostat=2),
        Sampling(presence_penalty=3.0, logit_bias=((5, 9.0), (6, NEVER))),
    ],
)
def test_before_sampling_they_are_the_model_s_own_logarithms(rules: Sampling) -> None:
    logits = random_logits(5)
    row = real.row(msgspec.structs.replace(rules, n_probs=4), prompt=[1, 2], token=2)
    sampled = sample([(logits, row)])
    logs = log_softmax(logits)
    best = sorted(range(V), key=lambda token: -logs[token])[:4]
    found = told(sampled)[0]
    assert found.value == pytest.approx(logs[sampled.tokens.item()], abs=1e-5)
    assert [token for token, _ in found.top] == best
    assert [value for _, value in found.top] == pytest.approx(
        [logs[token] for token in best], abs=1e-5
    )


def test_a_token_outside_the_list_has_its_value_all_the_same() -> None:
    logits = [5.0, 4.0, 3.0, -2.0]
    rules = Sampling(temperature=0.0, n_probs=1, logit_bias=((3, 50.0),))
    sampled = sample([(logits, real.row(rules))])
    assert sampled.tokens.item() == 3
    found = told(sampled)[0]
    assert found.value == pytest.approx(log_softmax(logits)[3], abs=1e-5)
    assert [token for token, _ in found.top] == [0]


def test_equals_are_listed_by_their_number() -> None:
    row = real.row(Sampling(temperature=0.0, n_probs=4))
    assert [t for t, _ in told(sample([([1.0, 2.0, 1.0, 2.0], row)]))[0].top] == [
        1,
        3,
        0,
        2,
    ]


def test_more_candidates_than_there_are_tokens_are_all_of_them() -> None:
    row = real.row(Sampling(temperature=0.0, n_probs=10**6))
    assert len(told(sample([(random_logits(1), row)]))[0].top) == V


def test_half_precision_logits_are_told_in_single_precision() -> None:
    logits = [1.0, 2.0, 0.5, 0.25]
    row = real.row(Sampling(temperature=0.0, n_probs=2))
    found = told(sample([(logits, row)], dtype=mx.bfloat16))[0]
    assert found.value == pytest.approx(log_softmax(logits)[1], abs=1e-6)


def test_only_rows_that_ask_are_told_and_each_its_own() -> None:
    rows = [
        (
            random_logits(index),
            real.row(Sampling(temperature=0.0, n_probs=n), id_=index),
        )
        for index, n in enumerate([0, 2, 0, 1])
    ]
    found = told(sample(rows))
    assert sorted(found) == [1, 3]
    for index in (1, 3):
        assert found[index].value == pytest.approx(
            max(log_softmax(rows[index][0])), abs=1e-5
        )
        assert found[index].top[0][0] == int(np.argmax(rows[index][0]))
        assert found[index].top[0][1] == found[index].value


# ---- probabilities after sampling ----


def _after(**fields: Any) -> Sampling:
    return Sampling(n_probs=9, post_sampling_probs=True, **fields)


def test_after_sampling_they_are_what_the_token_was_drawn_from() -> None:
    """Shares 8, 4, 2, 2 of 16; top_k leaves three, temperature 1/2 squares them."""
    logits = [math.log(8), math.log(4), math.log(2), math.log(2)]
    rules = _after(temperature=0.5, top_k=3, top_p=1.0, min_p=0.0)
    for uniform, token in [(0.0, 0), (0.9, 1), (0.99, 2)]:
        sampled = sample([(logits, real.row(rules, uniform=uniform))])
        assert sampled.tokens.item() == token
        found = told(sampled)[0]
        shares = [64 / 84, 16 / 84, 4 / 84]
        assert found.value == pytest.approx(shares[token], abs=1e-6)
        # A candidate of no probability may follow; the API leaves it out.
        alive = [(t, value) for t, value in found.top if value > 0]
        assert [t for t, _ in alive] == [0, 1, 2]
        assert [value for _, value in alive] == pytest.approx(shares, abs=1e-6)


def test_after_sampling_the_chain_s_candidates_are_told() -> None:
    logits = [math.log(8), math.log(4), math.log(2), math.log(2)]
    rules = _after(
        temperature=1.0, xtc_probability=1.0, xtc_threshold=0.2, **EVERYTHING
    )
    found = told(sample([(logits, real.row(rules, uniform=0.0))]))[0]
    assert found.value == pytest.approx(0.5)
    alive = [(token, value) for token, value in found.top if value > 0]
    assert [token for token, _ in alive] == [1, 2, 3]
    assert [value for _, value in alive] == pytest.approx([0.5, 0.25, 0.25])


@pytest.mark.parametrize("min_keep", [0, 1])
def test_after_sampling_a_greedy_token_was_certain(min_keep: int) -> None:
    rules = _after(temperature=0.0, min_keep=min_keep)
    found = told(sample([([1.0, 3.0, 2.0], real.row(rules))]))[0]
    assert found.value == 1.0
    assert [(t, value) for t, value in found.top if value > 0] == [(1, 1.0)]


def test_greedy_sampled_and_plain_rows_are_told_side_by_side() -> None:
    rules = [
        _after(temperature=0.0),
        Sampling(),
        _after(temperature=1.0, **EVERYTHING),
        _after(temperature=1.0, mirostat=2, mirostat_tau=9.0),
        Sampling(n_probs=2),
    ]
    rows = [
        (random_logits(3), real.row(rule, id_=index))
        for index, rule in enumerate(rules)
    ]
    found = told(sample(rows))
    assert sorted(found) == [0, 2, 3, 4]
    shares = np.exp(log_softmax(random_logits(3)))
    for index in (2, 3):
        assert found[index].top[0][1] == pytest.approx(shares.max(), abs=1e-5)
        assert sum(value for _, value in found[index].top) == pytest.approx(
            float(np.sort(shares)[-9:].sum()), abs=1e-5
        )
