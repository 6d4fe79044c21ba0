"""Models and daemons that the tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import Server, command, scripted
from tests.tiny import tiny_model_dir

PIECES = {
    "fox": ["The ", "quick br", "own f", "ox ju", "mps"],
    # Cut at every byte; latin-1 stands for bytes.
    **{
        word: [chr(byte) for byte in text.encode()]
        for word, text in {
            "czech": "Příliš žluťoučký kůň",
            "korean": "다람쥐 헌 쳇바퀴에",
            "emoji": "👍🏽 and 👩🏿‍🚀!",
        }.items()
    },
}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model of 2048 tokens."""
    return str(tiny_model_dir(tmp_path_factory))


@pytest.fixture(scope="session")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A very small one of 8192 tokens, 128 bytes of keys and values for each."""
    return tiny_model_dir(
        tmp_path_factory,
        max_position_embeddings=8192,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        hidden_size=32,
        intermediate_size=32,
    )


@pytest.fixture(scope="session")
def served(model: str) -> Iterator[Server]:
    """Four slots of 1024 tokens."""
    flags = ("--mode", "llama-compat", "-c", "4096", "-np", "4", "--metrics")
    with command("-m", model, "-a", "tiny", *flags) as one:
        yield one.ready()


@pytest.fixture(scope="session")
def small(model: str) -> Iterator[Server]:
    """One slot of 256 tokens."""
    with command("-m", model, "-c", "256") as one:
        yield one.ready()


@pytest.fixture(scope="session")
def toy() -> Iterator[Server]:
    """Four slots with scripted answers."""
    with scripted(
        script={
            "answers": PIECES,
            "step_seconds": 0.002,
            "fail_prefill": "boom",
            "fail_step": "later",
        },
        engine={"mode": "llama-compat", "ctx_size": 4096, "parallel": 4},
        server={"metrics": True},
    ) as one:
        yield one


@pytest.fixture(scope="session")
def slow() -> Iterator[Server]:
    """One slot of 4096 tokens; a prompt chunk takes 100 ms, a token 20 ms."""
    with scripted(
        script={"step_seconds": 0.02, "prefill_seconds": 0.001},
        engine={"ctx_size": 4096, "batch_size": 100},
        server={"metrics": True},
    ) as one:
        yield one
