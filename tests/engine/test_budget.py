"""Reasoning that has had its tokens is ended; nothing else of an answer changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.engine import real  # isort: skip

from mlxceld.engine import messages as m
from mlxceld.engine.budget import Budget, whole
from mlxceld.plan import Wish
from tests.engine.driving import Bench, CellRunner, draws, next_token, shared, split
from tests.fake import Script

START, END = "<think>", "</think>"
ENDING = [100, 101]
"""Tokens of a message and of the marker after it."""


def budget(
    n: int, pieces: dict[int, str | bytes], *, opened: bool = False
) -> tuple[Budget, list[int]]:
    """A budget, and the tokens `pieces` in their order."""
    said = {k: v.encode() if isinstance(v, str) else v for k, v in pieces.items()}
    said |= {100: b"enough", 101: END.encode()}
    wanted = m.ThinkingBudget(n, START, END, opened=opened)
    return Budget(wanted, ENDING, said.__getitem__), list(pieces)


def steps(found: Budget, tokens: Sequence[int]) -> list[tuple[bool, int | None]]:
    """Before each token and after all: whether the next has to wait, what is due."""
    seen = [(found.near, found.due)]
    for token in tokens:
        found.accept(token)
        seen.append((found.near, found.due))
    return seen


FREE, NEAR = (False, None), (True, None)


def test_thoughts_end_after_their_tokens() -> None:
    found, tokens = budget(3, {1: START, 2: "a", 3: "b", 4: "c"})
    assert steps(found, tokens) == [FREE, FREE, FREE, NEAR, (True, 100)]
    assert steps(found, ENDING) == [(True, 100), (True, 101), FREE]


def test_in_an_opened_prompt_thoughts_count_from_the_first_token() -> None:
    found, tokens = budget(2, {2: "a", 3: "b"}, opened=True)
    assert steps(found, tokens) == [FREE, NEAR, (True, 100)]


def test_no_tokens_are_none_at_all() -> None:
    found, _ = budget(0, {}, opened=True)
    assert found.due == 100
    found, tokens = budget(0, {1: "\n<th", 2: "ink>"})
    assert steps(found, tokens) == [NEAR, NEAR, (True, 100)]


def test_thoughts_that_end_in_time_are_left_alone() -> None:
    found, tokens = budget(9, {1: START, 2: "a</th", 3: "ink>b", 4: "c"})
    assert steps(found, [*tokens, *[4] * 20])[3:] == [FREE] * 22


def test_a_marker_in_many_tokens_is_one() -> None:
    pieces: dict[int, str | bytes] = dict(enumerate("<think>ab</think>"))
    found, tokens = budget(50, pieces)
    steps(found, tokens)
    assert steps(found, [7] * 60) == [FREE] * 61


def test_only_at_its_beginning_has_an_answer_thoughts() -> None:
    found, tokens = budget(0, {1: "Say ", 2: START, 3: "a"})
    assert steps(found, tokens)[1:] == [FREE] * 3


def test_a_character_is_not_cut_in_halves() -> None:
    smile = "😀".encode()
    found, tokens = budget(2, {1: "a", 2: smile[:1], 3: smile[1:2], 4: smile[2:]})
    found._state = "thinking"
    assert steps(found, tokens) == [FREE, NEAR, NEAR, NEAR, (True, 100)]


def test_bytes_that_never_become_text_do_not_hold_it_up() -> None:
    found, _ = budget(1, {1: b"\xf0"}, opened=True)
    seen = steps(found, [1] * 5)
    assert seen == [NEAR] * 5 + [(True, 100)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", True),
        (b"a", True),
        ("é".encode(), True),
        ("é".encode()[:1], False),
        ("€".encode()[:2], False),
        (b"a\xf0\x9f\x98", False),
        ("a😀".encode(), True),
        (b"\x80\x80\x80\x80\x80", True),
    ],
)
def test_whole_characters(text: bytes, found: bool) -> None:
    assert whole(text) is found


# ---- in the scheduler ----


def think(n: int) -> Budget:
    wanted = m.ThinkingBudget(n, START, END, opened=True)
    return Budget(wanted, [50, 51], lambda token: b"%d " % token)


def expected(
    prompt: Sequence[int], n: int, length: int, seed: int, ending: Sequence[int]
) -> list[int]:
    """What `CellRunner` answers alone, with the ending after `n` tokens."""
    numbers = draws(seed, length)
    answer: list[int] = []
    while len(answer) < length:
        index = len(answer)
        if n <= index < n + len(ending):
            answer.append(ending[index - n])
        else:
            answer.append(next_token([*prompt, *answer], numbers[index]))
    return answer


@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_the_model_goes_on_behind_the_ending(n: int, pipelined: bool) -> None:
    plan = split(2, 64)
    bench = Bench(plan, runner=CellRunner(plan.cells, pipelined=pipelined))
    rules = m.Sampling(seed=4, ignore_eos=True)
    free = bench.ask([9, 8, 7], n_predict=20, sampling=rules)
    bound = bench.ask([3, 4, 5], n_predict=20, sampling=rules)
    [*bench.scheduler.waiting][-1].budget = think(n)
    bench.run()
    assert bench.tokens(bound) == expected([3, 4, 5], n, 20, 4, [50, 51])
    assert bench.tokens(free) == expected([9, 8, 7], 20, 20, 4, [])


@pytest.mark.parametrize("pipelined", [True, False])
def test_one_that_has_to_give_way_keeps_its_count(pipelined: bool) -> None:
    plan = shared(2, 60)
    bench = Bench(plan, runner=CellRunner(plan.cells, pipelined=pipelined))
    rules = m.Sampling(seed=1, ignore_eos=True)
    old = bench.ask([1] * 20, n_predict=30, sampling=rules)
    young = bench.ask([2] * 20, n_predict=30, sampling=rules)
    [*bench.scheduler.waiting][-1].budget = think(18)
    bench.run()
    assert bench.scheduler.tally.preempted
    assert bench.tokens(young) == expected([2] * 20, 18, 30, 1, [50, 51])
    assert bench.tokens(old) == expected([1] * 20, 30, 30, 1, [])


@pytest.mark.parametrize(("post", "value"), [(False, 0.0), (True, 1.0)])
def test_a_token_that_is_put_in_was_certain(post: bool, value: float) -> None:
    bench = Bench(split(1, 64), script=Script(answers={"q": ["a", "b", "c"]}))
    rules = m.Sampling(n_probs=1, post_sampling_probs=post)
    request = bench.ask("q", n_predict=3, sampling=rules)
    [*bench.scheduler.waiting][-1].budget = think(1)
    bench.run()
    told = [p for e in bench.of(request) for p in getattr(e, "probabilities", [])]
    assert [p.id for p in told][1:] == [50, 51]
    assert [(p.value, p.top[0][2]) for p in told][1:] == [(value, value)] * 2


@pytest.mark.parametrize("pipelined", [True, False])
def test_a_model_reads_what_is_put_in(pipelined: bool, tmp_path: Path) -> None:
    """Greedy tokens behind the ending are mlx-lm's own for a prompt that has it."""
    model = real.tiny_model(tmp_path)
    prompt = [5 + i % 40 for i in range(12)]
    rules = m.Sampling(temperature=0.0, ignore_eos=True)
    requests = [
        (m.Generate(1, [], rules, n_predict=16), prompt, None, think(6)),
        (m.Generate(2, [], rules, n_predict=16), prompt[::-1]),
    ]
    wish = Wish("llama-compat", 128, 2, min_slot_ctx=1)
    run = real.serve(model, requests, wish, pipelined=pipelined)
    before = real.greedy(model.model, prompt, 6)
    after = real.greedy(model.model, [*prompt, *before, 50, 51], 8)
    assert run.answers[1].tokens == [*before, 50, 51, *after]
    assert run.answers[2].tokens == real.greedy(model.model, prompt[::-1], 16)
