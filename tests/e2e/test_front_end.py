"""What a front end does first, with the flags it gives llama-server and a real model.

It asks how much one request may use, and runs as many chats as there are slots.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server, command

RECIPE = ("--mode", "llama-compat", "-c", "8192", "--parallel", "4", "--kv-unified")
N_PREDICT = 40
QUESTIONS = (
    "Write a long story about a fox",
    "Explain how bread is made",
    "List the planets and describe each of them",
    "Why is the sky blue?",
)


@pytest.fixture(scope="module")
def smol(demo_model: Path) -> Iterator[Server]:
    with command("-m", str(demo_model), *RECIPE) as one:
        yield one.ready()


def chat_body(question: str) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": question}],
        "max_tokens": N_PREDICT,
        "temperature": 0,
        "ignore_eos": True,
    }


def test_one_request_may_use_all_of_the_shared_context(smol: Server) -> None:
    props = smol.get("/props")
    assert props["default_generation_settings"]["n_ctx"] == 8192
    assert (props["total_slots"], props["n_pool"]) == (4, 8192)


def test_four_chats_run_at_the_same_time(smol: Server) -> None:
    times: list[list[float]] = [[] for _ in QUESTIONS]
    texts = [""] * len(QUESTIONS)
    ready = threading.Barrier(len(QUESTIONS))

    def chat(index: int) -> None:
        body = {**chat_body(QUESTIONS[index]), "stream": True}
        ready.wait()
        with smol.http.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200
            for line in reply.iter_lines():
                if not line.startswith("data: {"):
                    continue
                choice = json.loads(line.removeprefix("data: "))["choices"][0]
                if choice["delta"].get("content"):
                    times[index].append(time.monotonic())
                    texts[index] += choice["delta"]["content"]

    threads = [threading.Thread(target=chat, args=(i,)) for i in range(len(QUESTIONS))]
    for thread in threads:
        thread.start()
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, smol.busy())
        time.sleep(0.05)
    assert most == 4
    assert all(len(text.split()) > 10 for text in texts), texts
    last_first = max(arrived[0] for arrived in times)
    assert last_first < min(arrived[-1] for arrived in times)
    # Long before: by then nobody has half an answer.
    for arrived in times:
        assert sum(moment <= last_first for moment in arrived) < N_PREDICT / 2
    # And side by side they say what each says alone.
    for question, text in zip(QUESTIONS, texts, strict=True):
        alone = {**chat_body(question), "max_tokens": 10, "cache_prompt": False}
        answer = smol.answer("/v1/chat/completions", alone)
        assert text.startswith(answer["choices"][0]["message"]["content"])


def test_a_chat_has_a_sensible_answer(smol: Server) -> None:
    body = {
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 20,
        "temperature": 0,
    }
    answer = smol.answer("/v1/chat/completions", body)
    assert "Paris" in answer["choices"][0]["message"]["content"]
