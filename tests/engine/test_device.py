"""The memory limit of the device that serves, and what MLX may keep of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxceld.engine import device
from mlxceld.engine import messages as m
from mlxceld.engine.load import load
from mlxceld.plan import Wish
from tests.tiny import tiny_model_dir

GIB = 1 << 30
CPU, GPU = mx.Device(mx.cpu), mx.Device(mx.gpu)


def limit(share: str, on: mx.Device, given: int | None = None) -> int | None:
    order = m.Load(m.ModelSource("x"), Wish(), given, share)
    return device.memory_limit(order, on)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """16 GiB of physical memory; what a GPU tells is put into the dictionary."""
    info: dict[str, Any] = {}
    monkeypatch.setattr("mlxceld.memory.physical_memory", lambda: 16 * GIB)
    monkeypatch.setattr(device, "physical_memory", lambda: 16 * GIB)
    monkeypatch.setattr(mx, "device_info", lambda _: info)
    return info


def test_on_the_cpu_shares_are_of_the_physical_memory(machine: dict[str, Any]) -> None:
    assert limit("auto", CPU) == 12 * GIB
    assert limit("50%", CPU) == 8 * GIB
    assert limit("", CPU, 7) == 7
    assert limit("", CPU) is None


def test_on_metal_auto_is_no_more_than_it_recommends(
    machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    machine["max_recommended_working_set_size"] = 10 * GIB
    assert limit("auto", GPU) == 10 * GIB
    assert limit("75%", GPU) == 12 * GIB
    machine["max_recommended_working_set_size"] = 13 * GIB
    assert limit("auto", GPU) == 12 * GIB


def test_on_cuda_shares_are_of_the_cards_memory(machine: dict[str, Any]) -> None:
    machine |= {"total_memory": 80 * GIB, "free_memory": 1}
    assert limit("auto", GPU) == 72 * GIB
    assert limit("50%", GPU) == 40 * GIB
    assert limit("", GPU, 7) == 7


def test_a_card_that_does_not_tell_its_memory_has_no_limit(
    machine: dict[str, Any],
) -> None:
    assert limit("auto", GPU) is None


@pytest.mark.parametrize(
    ("bound", "work", "kept"),
    [
        (8 * GIB, 0, GIB // 2),
        (64 * GIB, 0, GIB),
        (64 * GIB, 3 * GIB, 3 * GIB),
        (GIB // 2, 0, 64 << 20),
        (None, 0, GIB),
    ],
)
def test_freed_buffers_are_kept_for_one_step_and_a_sixteenth_of_the_limit(
    bound: int | None, work: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(mx, "set_cache_limit", told.append)
    assert device.bound_cache(bound, work) == kept
    assert told == [kept]


def test_mlx_is_never_held_below_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(mx, "set_memory_limit", told.append)
    device.bound_memory(100, 50)
    device.bound_memory(100, 150)
    device.bound_memory(None, 150)
    assert told == [100, 150]


def test_what_mlx_holds_is_told_in_bytes() -> None:
    before = device.memory_use()
    held = mx.zeros((1 << 20,), mx.float32)
    mx.eval(held)
    now = device.memory_use()
    assert now.active - before.active == 4 << 20
    assert now.peak >= now.active


def test_a_loaded_engine_has_its_limit_from_its_device_and_tells_what_it_holds(
    tmp_path: Path, machine: dict[str, Any]
) -> None:
    source = m.ModelSource(str(tiny_model_dir(tmp_path)))
    wish = Wish("llama-compat", 2048, 4)
    order = m.Load(source, wish, device="cpu", memory_share="auto")
    engine = load(order, lambda _: None)
    assert engine.plan.memory_limit == 12 * GIB
    assert engine.memory().active >= engine.plan.kv_bytes + engine.plan.weight_bytes
