"""Where configuration files are looked for."""

from __future__ import annotations

from pathlib import Path

from mlxceld import paths


def test_the_places_come_in_the_order_of_their_rank() -> None:
    environ = {
        "CONFIGURATION_DIRECTORY": "/run/a:/run/b",
        "XDG_CONFIG_HOME": "/home/ann/cfg",
        "HOME": "/home/ann",
        "HOMEBREW_PREFIX": "/brew",
    }
    assert [str(path) for path in paths.candidates(environ)] == [
        "/run/a/mlxcel.toml",
        "/run/b/mlxcel.toml",
        "/home/ann/cfg/mlxcel/mlxcel.toml",
        "/brew/etc/mlxcel/mlxcel.toml",
        "/opt/homebrew/etc/mlxcel/mlxcel.toml",
        "/usr/local/etc/mlxcel/mlxcel.toml",
        "/etc/mlxcel/mlxcel.toml",
    ]


def test_without_a_usable_xdg_folder_it_is_config_in_the_home_folder() -> None:
    found = paths.candidates({"XDG_CONFIG_HOME": "relative", "HOME": "/h"})
    assert next(found) == Path("/h/.config/mlxcel/mlxcel.toml")


def test_without_a_home_there_is_no_user_file() -> None:
    first = next(paths.candidates({}))
    assert first == Path("/opt/homebrew/etc/mlxcel/mlxcel.toml")


def test_the_flag_wins_over_the_variable() -> None:
    environ = {"MLXCELD_CONFIG": "/env.toml"}
    assert paths.named("/flag.toml", environ) == (Path("/flag.toml"), "--config")
    found = paths.named(None, environ)
    assert found is not None
    assert found[0] == Path("/env.toml")
    assert paths.named(None, {"MLXCELD_CONFIG": " "}) is None


def test_the_first_file_that_exists_is_found(tmp_path: Path) -> None:
    second = tmp_path / "b" / "mlxcel.toml"
    second.parent.mkdir()
    second.touch()
    where = f"{tmp_path}/a:{tmp_path}/b"
    assert paths.find({"CONFIGURATION_DIRECTORY": where}) == second


def test_drop_ins_are_sorted_without_hidden_and_foreign_files(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "mlxcel.toml.d"
    folder.mkdir()
    for name in ("20-b.toml", "10-a.toml", ".hidden.toml", "c.toml~", "d.conf"):
        (folder / name).touch()
    found = paths.drop_ins(tmp_path / "mlxcel.toml")
    assert [path.name for path in found] == ["10-a.toml", "20-b.toml"]
    assert paths.drop_ins(tmp_path / "other.toml") == []
