"""A real model and more than fits into its pool, by clients that come and go.

Beside the answers stands mlx-lm's own plain loop, one text alone.
"""

from __future__ import annotations

import gc
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mlxceld.engine.messages import Delta, Done, Failed, Generate, Sampling, Up
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.plan import Wish
from tests.engine import real
from tests.tiny import VOCAB_SIZE

# isort: split
import mlx.core as mx

POOL = Wish("llama-compat", 1024, 4, kv_unified=True)
AGENTS = {
    "split": Wish("llama-compat", 8192, 4),
    "shared": Wish("llama-compat", 8192, 4, kv_unified=True),
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> real.Model:
    """One layer of one head: hundreds of requests take seconds."""
    return real.tiny_model(
        tmp_path_factory,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        hidden_size=32,
        intermediate_size=32,
    )


def tokens(chance: random.Random, n: int) -> list[int]:
    return [chance.randrange(3, VOCAB_SIZE) for _ in range(n)]


def test_four_streams_that_outgrow_the_pool_get_exactly_their_solo_texts(
    llama: real.Model,
) -> None:
    """Four times 100 + 400 tokens in a pool of 1024."""
    chance = random.Random(1)
    prompts = [tokens(chance, 100) for _ in range(4)]
    asked = [real.ask(i, prompt, 400) for i, prompt in enumerate(prompts)]
    run = real.serve(llama, asked, POOL)
    for i, prompt in enumerate(prompts):
        assert run.answers[i].tokens == real.greedy(llama.model, prompt, 400)
    assert run.preempted > 0
    assert 900 < run.most_live <= 1024
    assert run.most_rows == 4


@pytest.mark.parametrize("house", AGENTS)
def test_eight_agents_compute_their_common_beginning_at_most_twice(
    llama: real.Model, house: str
) -> None:
    chance = random.Random(2)
    beginning = tokens(chance, 1500)
    prompts = [[*beginning, *tokens(chance, 5 + n)] for n in range(8)]
    asked = [
        real.ask(i, prompt, 12, cache_prompt=True) for i, prompt in enumerate(prompts)
    ]
    run = real.serve(llama, asked, AGENTS[house], chunk=512)
    for i, prompt in enumerate(prompts):
        assert run.answers[i].tokens == real.greedy(llama.model, prompt, 12)
    cached = [run.answers[i].n_cached for i in range(8)]
    read = sum(map(len, prompts)) - sum(cached)
    assert read <= 2 * 1500 + sum(len(prompt) - 1500 for prompt in prompts)
    assert sorted(cached)[2:] == [1500] * 6


@dataclass
class Asked:
    """One request of the long day."""

    message: Generate
    prompt: list[int]
    leaves: str
    """Where its client goes away: queue, prompt, answer, or nowhere."""


class Day:
    """Clients that come and go at random, over one scheduler and a real model."""

    def __init__(self, model: real.Model, overflow: str, cache_ram: int) -> None:
        plan = model.plan(replace(POOL, cache_ram=cache_ram))
        self.runner = model.runner(plan.slots, plan.cells)
        self.out: list[Up] = []
        limits = Limits(prefill_chunk=64, overflow=overflow)
        self.scheduler = Scheduler(
            plan, real.WORDS, self.runner, self.out.append, limits=limits
        )
        self.chance = random.Random(3)
        self.ends: dict[int, list[str]] = {}
        self.told: dict[int, list[int]] = {}
        self.left: set[int] = set()
        self._popular = [tokens(self.chance, n) for n in (40, 200, 350)]
        self._ids = 0

    def asked(self) -> Asked:
        """A request whose prompt is often known, or begins like a known one."""
        chance = self.chance
        prompt = tokens(chance, chance.randrange(1, 120))
        kind = chance.random()
        if kind < 0.25:
            prompt = list(chance.choice(self._popular))
        elif kind < 0.5:
            prompt = [*chance.choice(self._popular), *prompt[:20]]
        self._ids += 1
        n_predict = 250 if chance.random() < 0.1 else chance.randrange(1, 24)
        message = Generate(
            self._ids,
            [],
            Sampling(temperature=0.0, ignore_eos=True),
            n_predict=n_predict,
            id_slot=chance.choice([-1, -1, -1, 0, 3]),
            cache_prompt=chance.random() < 0.9,
        )
        leaves = chance.choice(["", "", "", "", "queue", "prompt", "answer"])
        return Asked(message, prompt, leaves)

    def run(self, n: int) -> list[Asked]:
        """Serve `n` requests to their ends; all of them."""
        scheduler = self.scheduler
        everyone: list[Asked] = []
        pending: list[Asked] = []
        while len(everyone) < n or scheduler.busy:
            if len(everyone) < n and len(scheduler.waiting) < 4:
                asked = self.asked()
                everyone.append(asked)
                scheduler.submit(asked.message, asked.prompt)
                pending.append(asked)
            pending = [asked for asked in pending if not self._leave(asked)]
            scheduler.advance()
            scheduler.read_chunk()
            self._listen()
            assert scheduler.snapshot().n_live <= 1024
        return everyone

    def _leave(self, asked: Asked) -> bool:
        """Whether the client need not be looked at again: it has left, or stays."""
        id_ = asked.message.id
        if id_ in self.ends or not asked.leaves:
            return True
        waiting = any(request.id == id_ for request in self.scheduler.waiting)
        answered = bool(self.told.get(id_))
        reached = {
            "queue": waiting,
            "prompt": not waiting and not answered,
            "answer": answered,
        }
        if not reached[asked.leaves]:
            return False
        self.scheduler.cancel(id_)
        self.left.add(id_)
        return True

    def _listen(self) -> None:
        for event in self.out:
            if isinstance(event, Delta | Done):
                assert event.id not in self.left
                self.told.setdefault(event.id, []).extend(event.tokens)
            if isinstance(event, Done | Failed):
                what = event.message if isinstance(event, Failed) else event.stop_type
                self.ends.setdefault(event.id, []).append(what)
        self.out.clear()

    def weigh(self) -> tuple[int, int]:
        """Bytes of the process and of MLX's arrays, prompts kept on purpose apart."""
        gc.collect()
        mx.clear_cache()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        saved = self.scheduler.snapshot().saved_bytes
        return pages * os.sysconf("SC_PAGE_SIZE"), mx.get_active_memory() - saved


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("overflow", "cache_ram", "n"), [("preempt", 0, 500), ("error", 100_000, 150)]
)
def test_after_a_long_day_nothing_is_left_behind(
    llama: real.Model, overflow: str, cache_ram: int, n: int
) -> None:
    day = Day(llama, overflow, cache_ram)
    day.run(100)
    rss, active = day.weigh()
    everyone = day.run(n)
    rss_now, active_now = day.weigh()
    scheduler = day.scheduler
    state = scheduler.snapshot()
    assert (state.n_live, state.waiting) == (0, 0)
    assert not any(slot.processing for slot in state.slots)
    assert not scheduler.busy
    # Arrays of the last step's rows stay, and who was last is a matter of time.
    assert abs(active_now - active) <= 0.02 * active + (16 << 10)
    assert rss_now <= 1.02 * rss
    assert state.saved_bytes <= cache_ram
    assert len(day.left) > n // 5
    if overflow == "preempt":
        assert state.totals.preempted > 5
    failed = 0
    alone: dict[tuple[int, ...], list[int]] = {}
    for asked in everyone:
        message, told = asked.message, day.told.get(asked.message.id, [])
        if message.id in day.left:
            assert message.id not in day.ends
        elif day.ends[message.id] == ["limit"]:
            assert len(told) == message.n_predict
        else:
            assert day.ends[message.id] == ["Context size has been exceeded."]
            failed += 1
        # The same prompt has the same answer, as far as it was told.
        known = alone.setdefault(tuple(asked.prompt), [])
        both = min(len(known), len(told))
        assert told[:both] == known[:both]
        if len(told) > len(known):
            alone[tuple(asked.prompt)] = told
    assert (failed > 0) == (overflow == "error")
    for prompt in sorted(alone, key=lambda p: -len(alone[p]))[:5]:
        expected = alone[prompt][:80]
        assert real.greedy(llama.model, prompt, len(expected)) == expected
