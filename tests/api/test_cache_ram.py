"""Prompts kept in RAM as clients see them: true counts, a bound, and both in sight."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from mlxceld.plan import Wish
from tests import fake
from tests.api.serving import Served, serve

MIB = 1 << 20


@pytest.fixture(scope="module")
def keeping() -> Iterator[Served]:
    """Two slots, 1 KiB a token, 1 MiB for prompts whose slot has gone to others."""
    wish = Wish("llama-compat", 2048, 2, cache_ram=MIB)
    with serve(fake.Script(step_seconds=0.001), wish=wish) as running:
        yield running


def prompt(index: int, n: int = 200) -> str:
    return " ".join(f"p{index}.{i}" for i in range(n))


def metric(server: Served, name: str) -> int:
    found = re.search(rf"^mlxcel_{name} (\d+)$", server.get("/metrics").text, re.M)
    assert found is not None
    return int(found[1])


def stream(server: Served, body: dict[str, object]) -> None:
    assert server.events("/completion", body)


def whole(server: Served, body: dict[str, object]) -> None:
    assert server.post("/completion", body).status_code == 200


def half(server: Served, body: dict[str, object]) -> None:
    """Leave after the first piece of the answer."""
    request = {**body, "n_predict": 500, "stream": True}
    with server.http.stream("POST", "/completion", json=request) as reply:
        assert next(reply.iter_lines())
    server.until(server.idle)


@pytest.mark.parametrize("way", [stream, whole, half])
def test_the_bound_holds_after_each_of_thirty_prompts(
    way: object, keeping: Served
) -> None:
    assert callable(way)
    base = {stream: 100, whole: 200, half: 300}[way]  # type: ignore[index]
    for index in range(base, base + 30):
        way(keeping, {"prompt": prompt(index), "n_predict": 3})
        assert metric(keeping, "cache_ram_bytes") <= MIB
    # Five texts of 200 tokens and a few more of the answer fit, if those are few.
    assert metric(keeping, "cache_ram_prompts") >= 3
    assert metric(keeping, "cache_ram_limit_bytes") == MIB


def test_a_prompt_that_comes_back_is_said_to_be_cached(keeping: Served) -> None:
    def cached(index: int) -> tuple[int, int]:
        body = {"prompt": prompt(index), "max_tokens": 2}
        reply: httpx.Response = keeping.post("/v1/completions", body)
        found = reply.json()
        details = found["usage"]["prompt_tokens_details"]
        return found["timings"]["cache_n"], details["cached_tokens"]

    for index in (1, 2, 3):
        assert cached(index) == (0, 0)
    # The last token of a prompt is always read.
    assert cached(1) == (199, 199)


def test_props_tell_the_bound(keeping: Served) -> None:
    assert keeping.get("/props").json()["cache_ram_bytes"] == MIB
