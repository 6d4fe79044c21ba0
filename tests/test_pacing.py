"""How much is read at once by the kind of device, with and without MLX."""

from __future__ import annotations

import pytest

from mlxceld.pacing import PACINGS, chunk_of, kind_of


@pytest.mark.parametrize(
    ("device", "system", "installed", "kind"),
    [
        ("auto", "Linux", "mlx-cpu", "cpu"),
        ("cpu", "Linux", "mlx-cuda-12", "cpu"),
        ("auto", "Linux", "mlx-cuda-12", "cuda"),
        ("gpu", "Linux", "mlx-cuda-13", "cuda"),
        ("auto", "Darwin", "mlx-metal", "metal"),
        ("gpu", "Darwin", "mlx-metal", "metal"),
        ("cpu", "Darwin", "mlx-metal", "cpu"),
    ],
)
def test_the_kind_of_device_is_known_without_mlx(
    device: str, system: str, installed: str, kind: str
) -> None:
    assert kind_of(device, system=system, installed=installed) == kind


def test_a_chunk_is_what_is_set_or_what_the_device_is_good_for() -> None:
    assert chunk_of(64, "cpu") == 64
    assert chunk_of(None, "cpu") == 256
    assert {kind: found.chunk for kind, found in PACINGS.items()} == {
        "cpu": 256,
        "cuda": 512,
        "metal": 512,
    }


def test_running_answers_wait_a_tenth_of_a_second_on_a_gpu() -> None:
    assert (PACINGS["cuda"].gap, PACINGS["metal"].gap) == (0.1, 0.1)
    assert PACINGS["cpu"].gap == 0.25
