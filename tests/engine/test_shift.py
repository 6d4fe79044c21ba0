"""A context that shifts goes on as a fresh request with the shortened text would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.engine import real  # isort: skip

from mlxceld.engine import messages as m
from mlxceld.engine.messages import Shift
from mlxceld.engine.scheduler import Limits
from mlxceld.engine.shift import cut
from mlxceld.plan import Plan, Wish
from tests.engine.driving import (
    Bench,
    CellRunner,
    draws,
    next_token,
    shared,
    solo,
    split,
)
from tests.engine.families import FAMILIES

PIPELINED = pytest.mark.parametrize("pipelined", [True, False])
FREE = m.Sampling(ignore_eos=True)
HALF = Shift()


@pytest.mark.parametrize(
    ("shift", "add_bos", "found"),
    [
        # 255 tokens held of 256, 100 of them the prompt.
        (Shift(), False, (0, 127)),
        (Shift(), True, (1, 127)),
        (Shift(keep=10), False, (10, 122)),
        (Shift(keep=10), True, (11, 122)),
        (Shift(keep=-1), False, (100, 77)),
        (Shift(keep=-1), True, (101, 77)),
        (Shift(keep=10_000), True, (252, 1)),
        (Shift(keep=10, discard=7), False, (10, 7)),
        (Shift(keep=10, discard=10_000), False, (10, 245)),
    ],
)
def test_what_goes(shift: Shift, add_bos: bool, found: tuple[int, int]) -> None:
    assert cut(shift, 255, 100, 256, add_bos=add_bos) == found


def test_in_the_smallest_contexts_one_token_goes() -> None:
    for n_ctx in (2, 3, 4):
        keep, discard = cut(Shift(keep=-1), n_ctx - 1, 1, n_ctx, add_bos=True)
        assert (keep, discard) == (0, max(1, (n_ctx - 1) // 2))


def shifting(
    prompt: Sequence[int], n: int, n_ctx: int, keep: int, discard: int, seed: int = 0
) -> list[int]:
    """What `CellRunner` answers alone, worked out on a list of tokens."""
    numbers = draws(seed, n)
    text, answer = list(prompt), list[int]()
    for number in numbers[:n]:
        if len(text) - 1 == n_ctx - 1:
            go = discard or (n_ctx - 1 - keep) // 2
            text = text[:keep] + text[keep + go :]
        answer.append(next_token(text, number))
        text.append(answer[-1])
    return answer


def bench_of(plan: Plan, *, pipelined: bool = True, trimmable: bool = True) -> Bench:
    runner = CellRunner(plan.cells, pipelined=pipelined, trimmable=trimmable)
    return Bench(plan, runner=runner, limits=Limits(prefill_chunk=8, n_train=4096))


def test_without_a_shift_the_answer_ends_with_the_window() -> None:
    bench = bench_of(split(1, 32))
    done = bench.answer([7] * 20, n_predict=100, sampling=FREE)
    assert (done.n_decoded, done.truncated, done.n_held) == (12, True, 31)


@PIPELINED
@pytest.mark.parametrize("trimmable", [True, False])
@pytest.mark.parametrize(
    ("shift", "keep", "discard"),
    [
        (Shift(), 0, 0),
        (Shift(keep=5), 5, 0),
        (Shift(keep=-1), 20, 0),
        (Shift(keep=3, discard=4), 3, 4),
        (Shift(keep=2, discard=1000), 2, 29),
        (Shift(keep=1000), 28, 0),
    ],
)
def test_the_answer_goes_on_with_the_shortened_text(
    pipelined: bool, trimmable: bool, shift: Shift, keep: int, discard: int
) -> None:
    bench = bench_of(split(1, 32), pipelined=pipelined, trimmable=trimmable)
    prompt = list(range(2, 22))
    request = bench.ask(prompt, n_predict=90, sampling=FREE, shift=shift)
    bench.run(lambda: _within(bench, 32))
    done = bench.done(request)
    assert bench.tokens(request) == shifting(prompt, 90, 32, keep, discard)
    assert (done.n_decoded, done.n_prompt, done.stop_type) == (90, 20, "limit")
    assert done.truncated
    assert done.n_held == bench.scheduler.slots[0].n_held <= 31


def _within(bench: Bench, n_ctx: int) -> None:
    for state in bench.scheduler.snapshot().slots:
        assert state.n_held < n_ctx
        assert 0 <= state.n_processed + state.n_cached <= state.n_prompt


def test_an_answer_that_fits_is_not_truncated() -> None:
    bench = bench_of(split(1, 32))
    done = bench.answer([7] * 20, n_predict=12, sampling=FREE, shift=HALF)
    assert (done.n_decoded, done.truncated, done.n_held) == (12, False, 31)


def test_an_end_of_text_after_a_shift_is_a_truncated_answer_that_ended() -> None:
    bench = bench_of(split(1, 32))
    for seed in range(40):
        answer = shifting([7] * 20, 60, 32, 0, 0, seed)
        if 0 in answer[15:] and 0 not in answer[:15]:
            break
    done = bench.answer(
        [7] * 20, n_predict=60, sampling=m.Sampling(seed=seed), shift=HALF
    )
    assert (done.n_decoded, done.stop_type) == (answer.index(0) + 1, "eos")
    assert done.truncated


def test_an_answer_without_a_limit_ends_with_the_training_of_the_model() -> None:
    """As in llama-server, which keeps a loop without an end from going on for ever."""
    plan = split(1, 32)
    runner = CellRunner(plan.cells, pipelined=True)
    bench = Bench(plan, runner=runner, limits=Limits(n_train=100))
    done = bench.answer([7] * 20, n_predict=-1, sampling=FREE, shift=HALF)
    assert (done.n_decoded, done.stop_type, done.truncated) == (80, "limit", True)


def test_a_prompt_that_is_too_long_is_refused_all_the_same() -> None:
    bench = bench_of(split(1, 32))
    request = bench.ask([7] * 32, n_predict=1, shift=HALF)
    assert bench.failed(request).type == "exceed_context_size_error"


@PIPELINED
@pytest.mark.parametrize("plan", [split(3, 48), shared(3, 100, 48)], ids=str)
def test_neighbours_do_not_notice(pipelined: bool, plan: Plan) -> None:
    """In the pool of 100 cells they have to give way to each other as well."""
    bench = bench_of(plan, pipelined=pipelined)
    asked = {}
    for n in range(3):
        prompt = [n + 5] * (10 + 3 * n)
        rules = m.Sampling(seed=n, ignore_eos=True)
        shift = Shift(keep=4) if n < 2 else None
        asked[bench.ask(prompt, n_predict=120, sampling=rules, shift=shift)] = n
        bench.turn(7)
    bench.run(lambda: _within(bench, 48))
    for request, n in asked.items():
        prompt = [n + 5] * (10 + 3 * n)
        if n < 2:
            expected = shifting(prompt, 120, 48, 4, 0, n)
        else:
            expected = solo(prompt, 32, seed=n, ignore_eos=True)
        assert bench.tokens(request) == expected


def test_what_the_slot_remembers_is_the_shortened_text() -> None:
    bench = bench_of(split(1, 32))
    prompt = list(range(2, 22))
    request = bench.ask(prompt, n_predict=20, sampling=FREE, shift=Shift(keep=5))
    bench.run()
    every = prompt + bench.tokens(request)
    [slot] = bench.scheduler.slots
    # 31 tokens were held; of 26 that were not kept half went.
    assert slot.tokens == (every[:5] + every[18:])[:-1]
    again = bench.answer([*slot.tokens, 9], n_predict=1)
    assert again.n_cached == 26


def test_the_window_of_the_penalties_has_what_the_text_lost() -> None:
    bench = bench_of(split(1, 32))
    bench.ask([7] * 20, n_predict=90, sampling=FREE, shift=HALF)
    request = next(iter(bench.scheduler.waiting))
    bench.turn(25)
    assert request.skipped
    every = request.prompt + request.output
    assert request.recent(40) == every[-40:]
    assert request.recent(-1) == every[-32:]


def test_a_request_can_be_cancelled_at_any_moment_of_a_shift() -> None:
    for turns in range(4, 40):
        bench = bench_of(split(1, 32))
        request = bench.ask([7] * 20, n_predict=90, sampling=FREE, shift=HALF)
        bench.turn(turns)
        bench.scheduler.cancel(request)
        bench.run()
        [slot] = bench.scheduler.slots
        assert len(slot.tokens) == slot.n_held < 32
        done = bench.answer([3] * 6, n_predict=20, sampling=FREE)
        assert bench.tokens(done.id) == solo([3] * 6, 20, ignore_eos=True)


@PIPELINED
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mamba2"])
def test_a_model_goes_on_as_with_a_fresh_request(
    family: str, pipelined: bool, tmp_path: Path
) -> None:
    """Greedy tokens after each shift are mlx-lm's own for the shortened text."""
    model = real.tiny_model(tmp_path, family, **FAMILIES[family])
    prompt = [5 + i % 40 for i in range(20)]
    rules = m.Sampling(temperature=0.0, ignore_eos=True)
    request = m.Generate(1, [], rules, n_predict=40, shift=Shift(keep=6))
    other = m.Generate(2, [], rules, n_predict=50)
    wish = Wish("llama-compat", 64, 2, min_slot_ctx=1)
    both = [(request, prompt), (other, prompt[:9])]
    answers = real.serve(model, both, wish, pipelined=pipelined).answers
    assert answers[2].tokens == real.greedy(model.model, prompt[:9], 23)
    text, expected = list(prompt), list[int]()
    while len(expected) < 40:
        n = min(32 - len(text), 40 - len(expected))
        found = real.greedy(model.model, text, n)
        expected += found
        text += found
        # 31 tokens are held; of 25 that are not kept half go.
        text = text[:6] + text[6 + 12 :]
    assert answers[1].tokens == expected
