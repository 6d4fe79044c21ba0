"""Sampling against a plain reference in numpy, one row and one rule at a time."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import real

# isort: split
import mlx.core as mx

from mlxceld.engine.messages import Sampling
from mlxceld.engine.runner import Row
from mlxceld.engine.sampling import Sampler

V = 40
EOS = [2, 7]
NEVER = float("-inf")
EVERYTHING: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}


def sample(rows: Sequence[tuple[Sequence[float], Row]]) -> list[int]:
    """The tokens of one step."""
    sampler = Sampler(len(rows[0][0]), EOS)
    logits = mx.array(np.array([values for values, _ in rows], dtype=np.float32))
    read = mx.array([_read(row) for _, row in rows], dtype=mx.int32)
    return sampler(logits, [row for _, row in rows], read).tolist()


def _read(row: Row) -> int:
    """The token the row reads; where only the device knows it, the tests say 5."""
    return 5 if row.token is None else row.token


def one(logits: Sequence[float], sampling: Sampling, **row: Any) -> int:
    return sample([(logits, real.row(sampling, **row))])[0]


# ---- the reference ----


def reference(logits: Sequence[float], s: Sampling, row: Row) -> int:
    """llama-server's chain for one row, token by token, in double precision."""
    left = dict(enumerate(np.array(logits, dtype=np.float32).astype(float).tolist()))
    for token, bias in s.logit_bias:
        left[token] += bias
    if s.ignore_eos:
        left |= dict.fromkeys(EOS, NEVER)
    text = row.request.prompt + row.request.output
    if row.token is None:
        text = [*text, _read(row)]
    window = text if s.repeat_last_n < 0 else text[len(text) - s.repeat_last_n :]
    if s.repeat_last_n > len(text):
        window = text
    for token, count in Counter(window if s.repeat_last_n else []).items():
        value = left[token]
        value = value / s.repeat_penalty if value > 0 else value * s.repeat_penalty
        left[token] = value - count * s.frequency_penalty - s.presence_penalty
    ranked = sorted(left, key=lambda token: (-left[token], token))
    if s.temperature <= 0:
        return ranked[0]
    if s.top_k > 0:
        ranked = ranked[: s.top_k]
    if s.typical_p < 1:
        ranked = _typical(ranked, left, s.typical_p)
    if s.top_p < 1:
        ranked = _until(ranked, left, lambda total: total >= s.top_p)
    if s.min_p > 0:
        floor = left[ranked[0]] + math.log(s.min_p)
        ranked = [token for token in ranked if left[token] >= floor]
    weights = _softmax([left[token] / s.temperature for token in ranked])
    total = 0.0
    for token, weight in zip(ranked, weights, strict=True):
        total += weight
        if total > row.uniform:
            return token
    return ranked[0]


def _softmax(values: list[float]) -> list[float]:
    most = max(values)
    weights = [math.exp(value - most) for value in values]
    return [weight / sum(weights) for weight in weights]


def _until(ranked: list[int], left: dict[int, float], enough: Any) -> list[int]:
    """Take candidates in order up to and with the one at which the sum is enough."""
    kept, total = [], 0.0
    weights = _softmax([left[token] for token in ranked])
    for token, weight in zip(ranked, weights, strict=True):
        kept.append(token)
        total += weight
        if enough(total):
            break
    return kept


def _typical(ranked: list[int], left: dict[int, float], p: float) -> list[int]:
    weights = dict(
        zip(ranked, _softmax([left[token] for token in ranked]), strict=True)
    )
    surprise = {t: -math.log(w) if w > 0 else math.inf for t, w in weights.items()}
    entropy = sum(w * surprise[t] for t, w in weights.items() if w > 0)
    kept, total = set(), 0.0
    for token in sorted(ranked, key=lambda t: abs(surprise[t] - entropy)):
        kept.add(token)
        total += weights[token]
        if total > p:
            break
    return [token for token in ranked if token in kept]


def acceptable(logits: Sequence[float], s: Sampling, row: Row) -> set[int]:
    """The reference's tokens for rules that differ by no more than rounding does."""

    def near(value: float, off: float) -> set[float]:
        if value == off or not 0 < value < 1:
            return {value}
        return {value, max(0.0, value - 1e-5), min(1.0, value + 1e-5)}

    found = set()
    for top_p, typical_p, min_p, uniform in itertools.product(
        near(s.top_p, 1.0),
        near(s.typical_p, 1.0),
        {s.min_p * scale for scale in (1 - 1e-5, 1.0, min(1.0, 1 + 1e-5))},
        {row.uniform, max(0.0, row.uniform - 1e-5), min(1.0, row.uniform + 1e-5)},
    ):
        rules = Sampling(
            **{f: getattr(s, f) for f in s.__struct_fields__}
            | {"top_p": top_p, "typical_p": typical_p, "min_p": min(1.0, min_p)}
        )
        moved = Row(0, 0, 0, row.token, uniform, row.request)
        found.add(reference(logits, rules, moved))
    return found


# Not round, so that no sum of a few equal probabilities hits one exactly.
_shares = st.integers(0, 96).map(lambda n: n / 97 + 0.0003)
_uniforms = st.integers(0, 10**6 - 1).map(lambda n: n / 10**6 + 3.7e-7)
_tokens = st.integers(0, V - 1)
_logits = st.one_of(
    st.lists(st.integers(-24, 24).map(lambda n: n / 4), min_size=V, max_size=V),
    st.lists(st.floats(-30, 30, width=32), min_size=V, max_size=V),
)
_rules = st.builds(
    Sampling,
    temperature=st.one_of(
        st.just(0.0), st.sampled_from([0.3, 0.8, 1.7]), st.floats(0.05, 5)
    ),
    top_k=st.integers(0, V),
    top_p=st.one_of(st.just(1.0), _shares),
    min_p=st.one_of(st.just(0.0), _shares.map(lambda p: p * 0.5)),
    typical_p=st.one_of(st.just(1.0), _shares),
    repeat_last_n=st.integers(-1, 12),
    repeat_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.7, -0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.4, -0.2]),
    logit_bias=st.lists(
        st.tuples(_tokens, st.sampled_from([-3.0, 2.5, NEVER])), max_size=3
    ).map(tuple),
    ignore_eos=st.booleans(),
)


@st.composite
def _rows(draw: Any) -> tuple[list[float], Row]:
    prompt = draw(st.lists(_tokens, min_size=1, max_size=8))
    output = draw(st.lists(_tokens, max_size=8))
    known = draw(st.booleans()) or not output
    row = real.row(
        draw(_rules),
        uniform=draw(_uniforms),
        prompt=prompt,
        output=output,
        token=(prompt + output)[-1] if known else None,
    )
    return draw(_logits), row


@settings(max_examples=100, deadline=None)
@given(row=_rows())
def test_a_row_gets_the_token_of_the_reference(row: tuple[list[float], Row]) -> None:
    logits, line = row
    s = line.request.message.sampling
    assert sample([row])[0] in acceptable(logits, s, line)


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(_rows(), min_size=2, max_size=5))
def test_a_rows_token_does_not_depend_on_its_neighbours(
    rows: list[tuple[list[float], Row]],
) -> None:
    assert sample(rows) == [sample([row])[0] for row in rows]


# ---- neighbours ----


@pytest.mark.parametrize("neighbour", [0, 7, 39])
def test_the_order_of_equal_logits_does_not_depend_on_neighbours(
    neighbour: int,
) -> None:
    """Tokens 3, 6, 9, ... are equally likely; the fifth of them is 15."""
    tied = [4.0 if token and token % 3 == 0 else 0.0 for token in range(V)]
    mine = (tied, real.row(Sampling(temperature=1.0, top_k=5), uniform=0.9))
    other = (tied, real.row(Sampling(temperature=1.0, top_k=neighbour), uniform=0.1))
    assert sample([mine]) == [15]
    assert sample([other, mine])[1] == 15


def test_a_new_request_with_an_old_ones_id_gets_its_own_rules() -> None:
    sampler = Sampler(V, EOS)
    logits = mx.array([[float(token) for token in range(V)]])
    read = mx.array([5])
    plain = real.row(Sampling(temperature=0.0), id_=0)
    forbids = real.row(Sampling(temperature=0.0, logit_bias=((39, NEVER),)), id_=0)
    assert sampler(logits, [plain], read).tolist() == [39]
    assert sampler(logits, [forbids], read).tolist() == [38]
    assert sampler(logits, [plain], read).tolist() == [39]


def test_greedy_and_sampled_rows_share_a_step() -> None:
    rising = [float(token) for token in range(V)]
    rows = [
        (rising, real.row(Sampling(temperature=0.0))),
        (rising, real.row(Sampling(temperature=1e6, **EVERYTHING), uniform=0.999)),
        (rising, real.row(Sampling(temperature=0.0, logit_bias=((3, 100.0),)))),
    ]
    assert sample(rows) == [39, 0, 3]


# ---- greedy, bias, ends ----


def test_greedy_takes_the_first_of_the_likeliest() -> None:
    assert one([0.0, 3.0, 1.0, 3.0], Sampling(temperature=0.0)) == 1


def test_greedy_ignores_the_filters() -> None:
    rules = Sampling(temperature=0.0, top_k=1, top_p=0.0, min_p=1.0, typical_p=0.1)
    assert one([0.0, 3.0, 1.0, 2.0], rules) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_bias_of_minus_infinity_forbids_a_token(temperature: float) -> None:
    rules = Sampling(temperature=temperature, logit_bias=((1, NEVER),), top_k=1)
    assert one([0.0, 9.0, 1.0, 2.0], rules) == 3


def test_biases_on_one_token_add_up() -> None:
    rules = Sampling(temperature=0.0, logit_bias=((0, 2.0), (0, 2.0)))
    assert one([0.0, 3.0, 1.0], rules) == 0


def test_ignore_eos_forbids_every_end_of_text() -> None:
    logits = [0.0] * 10
    logits[2], logits[7], logits[4] = 9.0, 8.0, 7.0
    assert one(logits, Sampling(temperature=0.0)) == 2
    assert one(logits, Sampling(temperature=0.0, ignore_eos=True)) == 4


def test_an_end_of_text_beyond_the_vocabulary_is_left_out() -> None:
    rules = Sampling(temperature=0.0, ignore_eos=True)
    assert one([0.0, 1.0, 5.0, 2.0], rules) == 3


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_row_whose_every_token_is_forbidden_still_yields_a_token(
    temperature: float,
) -> None:
    """Nonsense, but neither a crash nor a token outside the vocabulary."""
    forbidden = tuple((token, NEVER) for token in range(V))
    rules = Sampling(temperature=temperature, logit_bias=forbidden, typical_p=0.5)
    fine = ([float(t) for t in range(V)], real.row(Sampling(temperature=0.0)))
    lost = ([0.0] * V, real.row(rules))
    found = sample([fine, lost])
    assert found[0] == 39
    assert 0 <= found[1] < V


# ---- penalties ----


def _penalised(n: int, **row: Any) -> int:
    """Tokens 0 to 3 have logits 4, 3, 2, 1; each is fined 5 where it was seen."""
    rules = Sampling(temperature=0.0, presence_penalty=5.0, repeat_last_n=n)
    return one([4.0, 3.0, 2.0, 1.0, -9, -9, -9, -9], rules, **row)


@pytest.mark.parametrize(
    ("n", "token"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (64, 2), (-1, 2)]
)
def test_the_window_of_the_penalties_counts_back_from_the_last_token(
    n: int, token: int
) -> None:
    """The text is 1, 0, 5, 6: with 3 tokens the window reaches 0, with 4 also 1."""
    assert _penalised(n, prompt=[1, 0, 5], output=[6], token=6) == token


@pytest.mark.parametrize(("n", "token"), [(0, 0), (1, 0), (2, 0), (3, 1), (-1, 2)])
def test_the_token_that_only_the_device_knows_takes_the_windows_last_place(
    n: int, token: int
) -> None:
    """The text is 1, 0, 6 and a 5 that the host has not seen yet."""
    assert _penalised(n, prompt=[1, 0], output=[6], token=None) == token


def test_the_token_that_only_the_device_knows_is_fined_itself() -> None:
    rules = Sampling(temperature=0.0, presence_penalty=9.0, repeat_last_n=1)
    logits = [1.0, 0, 0, 0, 0, 4.0]
    assert one(logits, rules, prompt=[3], output=[4], token=None) == 0


def test_a_penalty_divides_a_positive_and_multiplies_a_negative_logit() -> None:
    rules = Sampling(temperature=0.0, repeat_penalty=2.0)
    # 3 / 2 is less than 2; -1 x 2 is less than -1.5.
    assert one([3.0, 2.0, -9.0], rules, prompt=[0], token=0) == 1
    assert one([-1.0, -1.5, -9.0], rules, prompt=[0], token=0) == 1


def test_the_frequency_penalty_grows_with_every_occurrence() -> None:
    rules = Sampling(temperature=0.0, frequency_penalty=1.0)
    # Twice: 4 - 2 stays above 1.5; three times: 4 - 3 does not.
    assert one([4.0, 1.5], rules, prompt=[0, 0], token=0) == 0
    assert one([4.0, 1.5], rules, prompt=[0, 0, 0], token=0) == 1


def test_the_presence_penalty_is_the_same_however_often_a_token_came() -> None:
    rules = Sampling(temperature=0.0, presence_penalty=2.0)
    # Three times 2 would leave less than 1.5.
    assert one([4.0, 1.5], rules, prompt=[0, 0, 0], token=0) == 0
    assert one([3.0, 1.5], rules, prompt=[0], token=0) == 1


# ---- extremes ----

SLOPE = [math.log(8), math.log(4), math.log(2), math.log(2), NEVER]
"""Probabilities 1/2, 1/4, 1/8, 1/8 and none."""


def _drawn(logits: Sequence[float] = SLOPE, n: int = 64, **rules: Any) -> set[int]:
    """Every token that some random number leads to."""
    s = Sampling(**({"temperature": 1.0} | EVERYTHING | rules))
    lines = [(logits, real.row(s, uniform=(i + 0.5) / n, id_=i)) for i in range(n)]
    return set(sample(lines))


@pytest.mark.parametrize(
    ("rules", "tokens"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 1}, {0}),
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 5}, {0, 1, 2, 3}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"top_p": 0.0}, {0}),
        ({"top_p": 0.45}, {0}),
        ({"top_p": 0.55}, {0, 1}),
        ({"min_p": 1.0}, {0}),
        ({"min_p": 0.6}, {0}),
        ({"min_p": 0.4}, {0, 1}),
        ({"temperature": 1e-6}, {0}),
        ({"temperature": 1e-45}, {0}),
        ({"temperature": 1e6}, {0, 1, 2, 3}),
        # The entropy is 1.75 bits: 1/4 (2 bits) is nearest, then 1/2 (1 bit).
        ({"typical_p": 0.2}, {1}),
        ({"typical_p": 0.3}, {0, 1}),
    ],
)
def test_filters_at_their_borders(rules: dict[str, Any], tokens: set[int]) -> None:
    assert _drawn(**rules) == tokens


def test_min_p_of_one_keeps_all_of_the_likeliest() -> None:
    assert _drawn([2.0, 2.0, 1.9, 0.0], min_p=1.0) == {0, 1}


def test_the_random_number_runs_through_the_candidates_likeliest_first() -> None:
    """Cumulative: 0.5, 0.75, 0.875, 1; of equal ones the smaller token comes first."""
    rules = Sampling(temperature=1.0, **EVERYTHING)
    drawn = [one(SLOPE, rules, uniform=u) for u in (0.0, 0.49, 0.51, 0.74, 0.76, 0.88)]
    assert drawn == [0, 0, 1, 1, 2, 3]


def test_temperature_reshapes_what_is_left() -> None:
    """At temperature 0.5 the weights are 64, 16, 4, 4: the first ends at 0.727."""
    rules = Sampling(temperature=0.5, **EVERYTHING)
    assert one(SLOPE, rules, uniform=0.72) == 0
    assert one(SLOPE, rules, uniform=0.73) == 1


def test_the_filters_look_at_the_untempered_distribution() -> None:
    """Hot enough to make all four alike, but 1/2 + 1/4 exceed 0.7 before that."""
    assert _drawn(temperature=1e6, top_p=0.7) == {0, 1}


def test_top_p_of_one_drops_nobody_however_unlikely() -> None:
    """Beside one likely token, 99 of e^-25 vanish in a sum of single precision."""
    logits = [25.0, *([0.0] * 99)]
    assert _drawn(logits, n=400, temperature=1e6) == set(range(100))


@pytest.mark.parametrize("uniform", [1 - 2**-53, 1 - 2**-25])
def test_a_number_that_rounds_to_one_never_draws_a_dropped_token(
    uniform: float,
) -> None:
    """typical_p drops the likeliest token here and keeps the second."""
    rules = Sampling(temperature=1.0, **EVERYTHING | {"typical_p": 0.2})
    assert one(SLOPE, rules, uniform=uniform) == 1


def test_half_precision_logits_are_sampled_in_single_precision() -> None:
    logits = mx.array([[1.0, 2.0, 0.5, 0.0]], dtype=mx.bfloat16)
    line = real.row(Sampling(temperature=0.0, logit_bias=((0, 1.001),)))
    assert Sampler(4, [])(logits, [line], mx.array([5])).tolist() == [0]


def test_frequencies_follow_the_probabilities() -> None:
    """4000 tokens of one seed: each share within four standard deviations."""
    line = real.row(Sampling(temperature=1.0, seed=11, **EVERYTHING))
    request = line.request
    n = 4000
    lines = [(SLOPE, Row(0, 0, 0, 5, request.uniform(i), request)) for i in range(n)]
    seen = Counter(sample(lines))
    for token, share in enumerate([0.5, 0.25, 0.125, 0.125]):
        sigma = math.sqrt(n * share * (1 - share))
        assert abs(seen[token] - n * share) < 4 * sigma
    assert seen[4] == 0


@pytest.mark.parametrize("top_p", [0.0, 0.0003])
def test_of_equal_candidates_a_narrow_top_p_keeps_one(top_p: float) -> None:
    rules = Sampling(temperature=0.3, top_k=0, top_p=top_p, min_p=0.0)
    assert one([0.0] * V, rules, uniform=0.9) == 0
