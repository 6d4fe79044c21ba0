"""The runner serves every family as mlx-lm alone would, together where it can."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine import real
from tests.engine.families import FAMILIES, TOGETHER

# isort: split
import mlx.core as mx

from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.messages import Sampling
from mlxceld.engine.probe import probe
from mlxceld.engine.runner import Part
from mlxceld.engine.sampling import Sampler
from mlxceld.engine.spans import Move
from mlxceld.plan import Wish
from tests.tiny import VOCAB_SIZE

SPLIT = Wish("llama-compat", 600, 3, min_slot_ctx=1)
SHARED = Wish("llama-compat", 150, 3, kv_unified=True)
MIB = 1 << 20


def _prompt(seed: int, n: int) -> list[int]:
    return [random.Random(seed).randrange(3, VOCAB_SIZE) for _ in range(n)]


PROMPTS = {1: _prompt(1, 40), 2: _prompt(2, 1), 3: _prompt(3, 21)}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> real.Model:
    return real.tiny_model(tmp_path_factory)


@pytest.mark.parametrize("wish", [SPLIT, SHARED], ids=["split", "shared"])
@pytest.mark.parametrize("family", FAMILIES)
def test_three_at_once_get_what_each_gets_alone_from_mlx_lm(
    family: str, wish: Wish, tmp_path: Path
) -> None:
    """Prompts of 40, 1 and 21 tokens in chunks of 16, windows of 8 tokens included."""
    loaded = real.tiny_model(tmp_path, family, **FAMILIES[family])
    verdict = probe(loaded.model, loaded.map, VOCAB_SIZE, cell_major=False)
    loaded.batched = verdict.batched
    runner = loaded.runner(1, 8)
    assert runner.batched == (family in TOGETHER)
    asked = [real.ask(i, prompt, 12) for i, prompt in PROMPTS.items()]
    run = real.serve(loaded, asked, wish, chunk=16)
    assert run.most_rows == 3
    for i, prompt in PROMPTS.items():
        assert run.answers[i].tokens == real.greedy(loaded.model, prompt, 12)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "falcon_h1", "llama4"])
def test_without_the_pool_a_slot_keeps_mlx_lms_own_caches(
    family: str, tmp_path: Path
) -> None:
    loaded = real.tiny_model(tmp_path, family, **FAMILIES[family])
    loaded.map = loaded.map.unpooled()
    loaded.batched = False
    asked = [real.ask(i, prompt, 8) for i, prompt in PROMPTS.items()]
    run = real.serve(loaded, asked, SPLIT, chunk=16)
    for i, prompt in PROMPTS.items():
        assert run.answers[i].tokens == real.greedy(loaded.model, prompt, 8)


def test_a_text_that_begins_anew_forgets_the_state_of_the_one_before(
    tmp_path: Path,
) -> None:
    loaded = real.tiny_model(tmp_path, "mamba2", **FAMILIES["mamba2"])
    asked = [real.ask(i, prompt, 6) for i, prompt in PROMPTS.items()]
    run = real.serve(loaded, asked, Wish("legacy", 200, 1))
    assert run.most_rows == 1
    for i, prompt in PROMPTS.items():
        assert run.answers[i].tokens == real.greedy(loaded.model, prompt, 6)


@pytest.mark.parametrize("cell_major", [False, True])
@pytest.mark.parametrize("kind", ["auto", "q8_0"])
def test_prompts_that_are_read_together_leave_what_each_leaves_alone(
    kind: str, cell_major: bool, tmp_path: Path
) -> None:
    """Chunks of 5, 9 and 1 tokens after 0, 7 and 12, in spans with a gap between."""
    loaded = real.tiny_model(tmp_path, head_dim=32)
    loaded.map = loaded.map.stored_as(kind, kind)
    begun, chunks, starts = (0, 7, 12), (5, 9, 1), (30, 3, 50)
    prompts = [_prompt(40 + slot, 16) for slot in range(3)]
    cells = []
    for together in (False, True):
        runner = loaded.runner(3, 64, cell_major=cell_major)
        parts = []
        for slot, (start, n) in enumerate(zip(starts, begun, strict=True)):
            if n:
                runner.prefill(slot, start, 0, prompts[slot][:n])
            more = prompts[slot][n : n + chunks[slot]]
            parts.append(Part(slot, start, n, more))
        if together:
            runner.prefill_together(parts)
        else:
            for part in parts:
                runner.prefill(part.slot, part.start, part.position, part.tokens)
        cells.append([layer.view(0, 64) for layer in runner._pool.layers])
    held = {
        start + i
        for start, n, more in zip(starts, begun, chunks, strict=True)
        for i in range(n + more)
    }
    for alone, found in zip(*cells, strict=True):
        for one, other in zip(alone, found, strict=True):
            assert mx.allclose(one, other, rtol=0.02, atol=0.02)
            written = mx.any(other != 0, axis=(0, 1, 3)).tolist()
            assert {cell for cell, any_ in enumerate(written) if any_} == held


def test_the_memory_of_prompts_read_together_does_not_depend_on_the_pool(
    llama: real.Model,
) -> None:
    def peak(cells: int) -> int:
        runner = llama.runner(2, cells)

        def chunk(position: int) -> None:
            parts = [
                Part(slot, 1000 * slot, position, _prompt(slot, 32 - slot))
                for slot in range(2)
            ]
            runner.prefill_together(parts)

        chunk(0)
        return real.peak_of(lambda: chunk(31))

    assert peak(32 * 1024) - peak(2048) < MIB / 8


@pytest.mark.parametrize("cell_major", [False, True])
def test_a_text_goes_on_after_its_cells_have_moved(
    llama: real.Model, cell_major: bool
) -> None:
    prompt = PROMPTS[1]
    wanted = real.greedy(llama.model, prompt, 4)
    runner = llama.runner(2, 128, cell_major=cell_major)
    runner.prefill(1, 70, 0, prompt[:-1])
    start, token = 70, prompt[-1]
    found = []
    for position, target in zip(range(39, 43), (60, 0, 85, 84), strict=True):
        runner.move([Move(1, start, target, position)])
        start = target
        row = real.row(slot=1, start=start, position=position, token=token)
        token = runner.step([row]).read()[0]
        found.append(token)
    assert found == wanted


def test_a_row_may_read_the_token_that_the_step_before_sampled(
    llama: real.Model,
) -> None:
    """Slot 0 is told each token, slot 2 never sees one on the host."""
    wanted = real.greedy(llama.model, [9], 5), real.greedy(llama.model, [11], 5)
    runner = llama.runner(3, 64, pipelined=True)
    told: int | None = 9
    unseen: int | None = 11
    steps = []
    for position in range(5):
        step = runner.step(
            [
                real.row(slot=2, start=40, position=position, token=unseen),
                real.row(slot=0, start=0, position=position, token=told, id_=1),
            ]
        )
        told, unseen = step.read()[1], None
        steps.append(step.read())
    assert ([row[1] for row in steps], [row[0] for row in steps]) == wanted


def test_steps_may_be_queued_before_any_is_read(llama: real.Model) -> None:
    runner = llama.runner(1, 64, pipelined=True)
    steps = [
        runner.step([real.row(position=position, token=None if position else 9)])
        for position in range(5)
    ]
    found = [step.read()[0] for step in steps]
    assert found == real.greedy(llama.model, [9], 5)


def test_the_random_number_of_a_row_decides_its_token(llama: real.Model) -> None:
    """At an enormous temperature number u picks the candidate u x 320 from the top."""
    logits = llama.model(mx.array([[9]]))[0, 0]
    order = mx.argsort(-logits).tolist()
    rules = Sampling(temperature=1e9, top_k=0, top_p=1.0, min_p=0.0)
    runner = llama.runner(3, 64)
    rows = [
        real.row(rules, slot=i, start=8 * i, token=9, uniform=u, id_=i)
        for i, u in enumerate([0.0005, 0.5005, 0.9995])
    ]
    assert runner.step(rows).read() == [order[0], order[160], order[319]]


def test_the_memory_of_a_step_does_not_depend_on_the_pool(llama: real.Model) -> None:
    """The larger pool's layers have 8 MiB each: one copy would show."""

    def peak(cells: int) -> int:
        runner = llama.runner(2, cells)

        def steps() -> None:
            runner.prefill(0, 0, 0, PROMPTS[1])
            for position in range(40, 46):
                rows = [
                    real.row(slot=0, start=0, position=position),
                    real.row(slot=1, start=600, position=position, id_=1),
                ]
                runner.step(rows).read()

        steps()
        return real.peak_of(steps)

    assert peak(32 * 1024) - peak(1024) < MIB / 8


def test_the_time_of_a_step_does_not_depend_on_the_pool(llama: real.Model) -> None:
    """Copying the larger pool's 192 MiB would take more than 30 ms."""

    runners = llama.runner(1, 1024), llama.runner(1, 256 * 1024)
    fastest = [1.0, 1.0]
    # In turn, so that what else the machine does hits both.
    for position in range(40):
        for i, runner in enumerate(runners):
            began = time.perf_counter()
            runner.step([real.row(position=position)]).read()
            fastest[i] = min(fastest[i], time.perf_counter() - began)
    small, large = fastest
    assert large < 2 * small + 0.01


def test_kv_bytes_are_the_pool_and_what_slots_keep_for_themselves(
    tmp_path: Path,
) -> None:
    options = FAMILIES["granitemoehybrid"]
    loaded = real.tiny_model(tmp_path, "granitemoehybrid", **options)
    runner = loaded.runner(2, 100)
    pool = 100 * 2 * (16 + 16) * 4
    assert runner.kv_bytes == pool
    assert runner.layer_bytes == pool
    runner.prefill(1, 50, 0, [3, 4, 5])
    assert runner.kv_bytes == pool + loaded.map.fixed_bytes_per_slot / 2
    runner.mark(1, 3)
    assert runner.kv_bytes == pool + loaded.map.fixed_bytes_per_slot
    runner.forget(1)
    assert runner.kv_bytes == pool


@pytest.mark.parametrize("grain", [1, 16])
def test_prompts_that_begin_are_read_together_in_one_attention(
    grain: int, llama: real.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rows as wide as the longest, or filled up to 32 where chunks have a grain."""
    shapes: list[tuple[int, ...]] = []
    attend = mx.fast.scaled_dot_product_attention

    def watched(queries: mx.array, *rest: Any, **more: Any) -> mx.array:
        shapes.append(queries.shape)
        return attend(queries, *rest, **more)

    prompts = [_prompt(60 + slot, n) for slot, n in enumerate((21, 18, 20))]
    wanted = [real.greedy(llama.model, prompt, 3) for prompt in prompts]
    runner = ModelRunner(
        llama.model,
        llama.map,
        Sampler(VOCAB_SIZE, [real.EOS]),
        slots=3,
        cells=100,
        cell_major=True,
        batched=True,
        pipelined=False,
        grain=grain,
    )
    parts = [Part(i, 30 * i, 0, prompt[:-1]) for i, prompt in enumerate(prompts)]
    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", watched)
    runner.prefill_together(parts)
    monkeypatch.undo()
    wide = 20 if grain == 1 else 32
    assert [shape[0] for shape in shapes] == [3] * len(llama.map.shapes)
    assert {shape[2] for shape in shapes} == {wide}
    found: list[list[int]] = [[], [], []]
    tokens: list[int | None] = [prompt[-1] for prompt in prompts]
    for step in range(3):
        rows = [
            real.row(
                slot=i,
                start=30 * i,
                position=len(prompt) - 1 + step,
                token=tokens[i],
                id_=i,
            )
            for i, prompt in enumerate(prompts)
        ]
        tokens = list(runner.step(rows).read())
        for answer, token in zip(found, tokens, strict=True):
            assert token is not None
            answer.append(token)
    assert found == wanted
