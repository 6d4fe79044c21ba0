"""Compiled kernels outlive the service that compiled them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.engine.real import tiny_model  # noqa: F401  (loads MLX in the right order)

# isort: split
import mlx.core as mx

from mlxceld.engine import device, kernels
from mlxceld.engine.kernels import keep

BUILD = "1.2.3-sm_90"


def kept(environment: dict[str, str]) -> str | None:
    keep(BUILD, environment)
    return environment.get("MLX_PTX_CACHE_DIR")


def test_a_service_keeps_them_in_its_cache_folder(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = {"CACHE_DIRECTORY": f"{cache}:{tmp_path}/other", "HOME": "/nowhere"}
    assert kept(environment) == str(cache / "kernels" / BUILD)
    assert (cache / "kernels" / BUILD).stat().st_mode & 0o777 == 0o700


def test_a_user_keeps_them_in_their_own(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    own = tmp_path / ".cache/mlxcel/kernels" / BUILD
    assert kept({**home}) == str(own)
    base = tmp_path / "base"
    assert kept({**home, "XDG_CACHE_HOME": str(base)}) == str(
        base / "mlxcel/kernels" / BUILD
    )
    assert kept({**home, "XDG_CACHE_HOME": "relative"}) == str(own)


def test_a_folder_that_was_set_stays(tmp_path: Path) -> None:
    environment = {"MLX_PTX_CACHE_DIR": "/mine", "HOME": str(tmp_path)}
    assert kept(environment) == "/mine"
    assert not list(tmp_path.iterdir())


def test_where_there_is_no_folder_mlx_chooses(tmp_path: Path) -> None:
    assert kept({}) is None
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert kept({"CACHE_DIRECTORY": str(blocked)}) is None


def test_each_mlx_and_each_kind_of_card_has_kernels_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MLX finds a kernel by a name that tells neither."""
    card = {"compute_capability_major": 9, "compute_capability_minor": 0}
    monkeypatch.setattr(mx, "__version__", "1.2.3")
    monkeypatch.setattr(mx, "device_info", lambda device: card)
    assert device.build() is None  # No CUDA here: nothing of it is kept.
    monkeypatch.setattr(mx.cuda, "is_available", lambda: True)
    assert device.build() is None  # MLX for CUDA, and no card.
    monkeypatch.setattr(mx, "is_available", lambda device: True)
    assert device.build() == BUILD


def test_attention_stays_prepared_for_more_lengths_than_mlx_keeps() -> None:
    environment: dict[str, str] = {}
    kernels.keep_plans(environment)
    assert environment == {"MLX_CUDA_SDPA_CACHE_SIZE": "1024"}
    mine = {"MLX_CUDA_SDPA_CACHE_SIZE": "7"}
    kernels.keep_plans(mine)
    assert mine == {"MLX_CUDA_SDPA_CACHE_SIZE": "7"}


def compiled(size: int) -> bytes:
    """A binary of `size` bytes, its two tables at its end as the compiler has them."""
    head = b"\x7fELF" + bytes(28)
    head += struct.pack("<QQ", size - 56, size - 56 - 64)
    head += bytes(6) + struct.pack("<HHHH", 56, 1, 64, 1) + bytes(2)
    assert len(head) == 64
    return head + bytes(size - 64)


def test_what_a_full_disk_has_cut_off_is_compiled_anew(tmp_path: Path) -> None:
    """MLX would load it at every start, and fail."""
    folder = tmp_path / "kernels" / BUILD
    long = folder / "a_name_in_two_parts"
    long.mkdir(parents=True)
    names = "copy<float>\t_Z4copyf\n"
    parts = {
        "whole": (compiled(400), names),
        "text": (b".version 9.0\n", names),
        "short": (compiled(400)[:-1], names),
        "head": (compiled(400)[:40], names),
        "empty": (b"", names),
        "nameless": (compiled(400), ""),
        "half_named": (compiled(400), names + "copy<int>\t_Z4c"),
        "a_name_in_two_parts/short": (compiled(400)[:-1], names),
    }
    for name, (binary, told) in parts.items():
        (folder / f"{name}.ptx").write_bytes(binary)
        (folder / f"{name}.txt").write_text(told)
    (folder / "alone.ptx").write_bytes(compiled(400))
    assert kept({"CACHE_DIRECTORY": str(tmp_path)}) == str(folder)
    left = {path.stem for path in folder.rglob("*.ptx")}
    assert left == {"whole", "text"}
