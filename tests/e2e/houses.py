"""What a daemon says of its windows, and what it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.server import Server, command


@dataclass(frozen=True)
class House:
    """A configuration, and what must come of it."""

    flags: str
    slots: int
    n_ctx: int
    pool: int
    shared: bool = False
    env: tuple[tuple[str, str], ...] = ()
    toml: str = ""

    def __str__(self) -> str:
        words = [f"{name}={value!r}" for name, value in self.env]
        return " ".join([*words, self.flags, *self.toml.split()])


@dataclass(frozen=True)
class Facts:
    """One daemon, examined and gone again."""

    slots: int
    log: str
    """The line of the plan that names the windows."""
    windows: Mapping[str, int]
    """The same number from every place that tells it."""
    pools: frozenset[int]
    shared: frozenset[bool]
    longest: int
    """Tokens of the longest prompt that was served."""
    refusal: Mapping[str, Any]
    """The error for a prompt of one token more."""
    kv_bytes: int
    """With every slot full."""
    kv_bytes_plan: int
    warnings: tuple[str, ...]


def examine(house: House, model: Path, folder: Path) -> Facts:
    """Start the daemon, ask it for its numbers, fill it, and end it."""
    flags = ["-m", str(model), *house.flags.split()]
    if house.toml:
        file = folder / f"{abs(hash(house))}.toml"
        file.write_text(house.toml)
        flags += ["--config", str(file)]
    with command(*flags, env=dict(house.env)) as one:
        one.ready()
        return _examine(one)


def examine_all(
    houses: Sequence[House], model: Path, folder: Path
) -> dict[House, Facts]:
    """Two at a time, as there are two cores."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda house: examine(house, model, folder), houses)
        return dict(zip(houses, found, strict=True))


def _examine(one: Server) -> Facts:
    listening = one.wait_for("listening")
    props, slots = one.get("/props"), one.slots()
    model = one.get("/v1/models")["data"][0]["meta"]
    longest, refusal = _longest(one)
    _fill(one, slots)
    full = one.get("/props")
    plans = one.logged("plan")
    return Facts(
        slots=props["total_slots"],
        log=next(p["message"] for p in plans if p["level"] == "info"),
        windows={
            "log": listening["n_ctx"],
            "props": props["default_generation_settings"]["n_ctx"],
            **{f"slot {slot['id']}": slot["n_ctx"] for slot in slots},
            "models": model["n_ctx"],
            "refusal": refusal["n_ctx"],
        },
        pools=frozenset([props["n_pool"], *(slot["n_pool"] for slot in slots)]),
        shared=frozenset([props["kv_unified"], *(s["kv_unified"] for s in slots)]),
        longest=longest,
        refusal=refusal,
        kv_bytes=full["kv_bytes"],
        kv_bytes_plan=full["kv_bytes_plan"],
        warnings=tuple(p["message"] for p in plans if p["level"] == "warning"),
    )


def _longest(one: Server) -> tuple[int, dict[str, Any]]:
    """Bisect the longest prompt that is accepted; the error of the next one."""
    fits, refused = 0, 1 << 16
    error: dict[str, Any] = {}
    while refused - fits > 1:
        n = (fits + refused) // 2
        reply = one.post("/completion", {"prompt": [65] * n, "n_predict": 1})
        if reply.status_code == 200:
            fits = n
        else:
            refused, error = n, reply.json()["error"]
            assert reply.status_code == error["code"] == 400
    return fits, error


def _fill(one: Server, slots: list[dict[str, Any]]) -> None:
    """One prompt for each slot, as long as its window, or its share of the pool."""
    share = slots[0]["n_ctx"] - 1
    if slots[0]["kv_unified"]:
        share = min(share, slots[0]["n_pool"] // len(slots) - 1)
    for slot in slots:
        body = {"prompt": [70 + slot["id"]] * share, "n_predict": 1}
        one.answer("/completion", {**body, "id_slot": slot["id"]})
