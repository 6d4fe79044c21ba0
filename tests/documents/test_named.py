"""What the pages name is there, and what is there is named: routes, phases, variables.

The English pages are looked at; another test holds the Korean ones to their literals.
"""

from __future__ import annotations

import re

import pytest

from mlxceld.api import monitor
from mlxceld.api.absent import ROUTES as ABSENT
from mlxceld.api.app import ROUTES
from mlxceld.documents.facts import VARIABLES
from mlxceld.engine import kernels
from mlxceld.engine.phases import NAMES
from mlxceld.options import BY_KEY
from mlxceld.pacing import PACINGS
from tests.documents.tools import ROOT

COMPATIBILITY = ROOT / "docs/en/compatibility.md"
OPERATIONS = ROOT / "docs/en/operations.md"
SERVED = {"/slots/{id}", *ROUTES}


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one."""
    return re.split(r"(?m)^## ", text.split(f"## {heading}\n")[1])[0]


def literals(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_every_route_is_named_and_every_named_one_is_served() -> None:
    """Except in the rows that say of routes that they answer 404."""
    text = section(COMPATIBILITY.read_text(), "Routes")
    rows = [row for row in text.splitlines() if "| 404 |" not in row]
    named = {word for word in literals("\n".join(rows)) if word.startswith("/")}
    # Of `/chat/completions/input_tokens` and its like: said in words.
    named |= {name.removeprefix("/v1") for name in named if "input_tokens" in name}
    assert named - {"/monitor/", "/v1"} == SERVED


def test_routes_that_are_not_served_are_told_from_those_that_are() -> None:
    text = section(COMPATIBILITY.read_text(), "Routes")
    rows = [row for row in text.splitlines() if re.search(r"\b501\b", row)]
    named = {word for word in literals("\n".join(rows)) if word.startswith("/")}
    assert named - {"/v1/messages"} == set(ABSENT)


def test_what_needs_no_key_is_named() -> None:
    from mlxceld.api.auth import PUBLIC

    text = section(COMPATIBILITY.read_text(), "Routes")
    sentence = re.search(r"When a key is set.*?\.\n", text, re.DOTALL)
    assert sentence is not None
    assert literals(sentence[0]) - {"/monitor/"} == PUBLIC
    assert all(name.startswith("/monitor/") for name in monitor.PUBLIC)


def test_every_phase_of_a_start_is_named() -> None:
    """Those that the engine tells, those of fetching and importing, the front's."""
    text = section(OPERATIONS.read_text(), "Metrics")
    rows = re.findall(r"(?m)^\| `([a-z]+)` \|", text)
    others = {"front", "engine", "imports", "fetching", "serving", "total"}
    assert sorted(rows) == sorted({*NAMES.values(), *others})


@pytest.mark.parametrize(
    "name", [kernels.VARIABLE, "CACHE_DIRECTORY", "XDG_CACHE_HOME", "HF_HOME"]
)
def test_variables_that_say_where_files_are_kept_are_documented(name: str) -> None:
    assert name in dict(VARIABLES)


def test_the_numbers_of_the_pace_are_those_of_the_engine() -> None:
    """The least chunk: one number for the CPU and Metal, another for CUDA."""
    assert PACINGS["metal"].least == PACINGS["cpu"].least
    least, cuda = PACINGS["cpu"].least, PACINGS["cuda"].least
    assert (
        f"fewer than {least} tokens, on CUDA {cuda}," in BY_KEY["engine.token_gap"].long
    )
    page = " ".join((ROOT / "docs/en/CONTINUOUS_BATCHING.md").read_text().split())
    assert f"it has {least} tokens at least, on CUDA {cuda}:" in page
    gaps = {PACINGS[kind].gap for kind in ("cuda", "metal")}
    said = f"{PACINGS['cpu'].gap:g} on the CPU, {gaps.pop():g} on a GPU"
    assert not gaps
    assert BY_KEY["engine.token_gap"].default_text == said
    sizes = {PACINGS[kind].chunk for kind in ("cuda", "metal")}
    said = f"{PACINGS['cpu'].chunk} on the CPU, {sizes.pop()} on a GPU"
    assert not sizes
    assert BY_KEY["engine.batch_size"].default_text == said
    assert f"({said})" in page
