"""Compiled kernels outlive the service that compiled them."""

from __future__ import annotations

from pathlib import Path

from mlxceld.engine.kernels import keep


def kept(environment: dict[str, str]) -> str | None:
    keep(environment)
    return environment.get("MLX_PTX_CACHE_DIR")


def test_a_service_keeps_them_in_its_cache_folder(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = {"CACHE_DIRECTORY": f"{cache}:{tmp_path}/other", "HOME": "/nowhere"}
    assert kept(environment) == str(cache / "kernels")
    assert (cache / "kernels").stat().st_mode & 0o777 == 0o700


def test_a_user_keeps_them_in_their_own(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert kept({**home}) == str(tmp_path / ".cache/mlxcel/kernels")
    base = tmp_path / "base"
    assert kept({**home, "XDG_CACHE_HOME": str(base)}) == str(base / "mlxcel/kernels")
    assert kept({"HOME": str(tmp_path), "XDG_CACHE_HOME": "relative"}) == str(
        tmp_path / ".cache/mlxcel/kernels"
    )


def test_a_folder_that_was_set_stays(tmp_path: Path) -> None:
    environment = {"MLX_PTX_CACHE_DIR": "/mine", "HOME": str(tmp_path)}
    assert kept(environment) == "/mine"
    assert not list(tmp_path.iterdir())


def test_where_there_is_no_folder_mlx_chooses(tmp_path: Path) -> None:
    assert kept({}) is None
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert kept({"CACHE_DIRECTORY": str(blocked)}) is None
