"""Prompts of real (tiny) models leave their slot, come back from RAM, and go on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.engine import real
from tests.engine.families import FAMILIES

# isort: split
from mlxceld.plan import Wish
from tests.tiny import VOCAB_SIZE

N = 48


def text(seed: int, n: int = N) -> list[int]:
    return [random.Random(seed).randrange(3, VOCAB_SIZE) for _ in range(n)]


@pytest.mark.parametrize(
    "kind",
    ["llama", "gemma3_text", "llama4", "mamba2", "falcon_h1", "q8_0", "unpooled"],
)
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_a_prompt_that_comes_back_from_ram_is_answered_as_before(
    kind: str, shared: bool, tmp_path: Path
) -> None:
    """Memory for one text of 48 tokens and an answer of 6, whose last is not held."""
    family = kind if kind in FAMILIES else "llama"
    options = FAMILIES[family] | ({"head_dim": 32} if kind == "q8_0" else {})
    model = real.tiny_model(tmp_path, family, **options)
    model.batched = False
    if kind == "q8_0":
        model.map = model.map.stored_as(kind, kind)
    if kind == "unpooled":
        model.map = model.map.unpooled()
    one = (N + 5) * model.map.bytes_per_token + model.map.fixed_bytes_per_slot
    wish = Wish("llama-compat", 128, 1, kv_unified=shared, cache_ram=one)
    prompts = [text(1), text(2), [*text(1), 7, 8]]
    asked = [
        real.ask(i, prompt, 6, cache_prompt=True) for i, prompt in enumerate(prompts)
    ]
    # One after the other: none waits while another runs.
    run = real.serve(model, asked, wish, every=12, chunk=16)
    assert run.answers[0].n_cached == run.answers[1].n_cached == 0
    whole = kind in ("gemma3_text", "llama4", "mamba2", "falcon_h1")
    assert run.answers[2].n_cached == (N - 1 if whole else N)
    if kind != "q8_0":
        for i, prompt in enumerate(prompts):
            assert run.answers[i].tokens == real.greedy(model.model, prompt, 6)
    else:
        alone = real.serve(model, [real.ask(2, prompts[2], 6)], wish, chunk=16)
        assert run.answers[2].tokens == alone.answers[2].tokens
