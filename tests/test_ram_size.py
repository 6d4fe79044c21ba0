"""How the memory for saved prompts is written: llama-server's MiB, or a unit."""

from __future__ import annotations

import tomllib

import pytest

from mlxceld import cli, config
from mlxceld.kinds import BadValue
from mlxceld.memory import RamSize
from tests.e2e.server import environment

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8192", 8192 * MIB),
        (" 0 ", 0),
        ("-1", -1),
        ("1M", MIB),
        ("1MiB", MIB),
        ("512K", MIB // 2),
        ("512 KiB", MIB // 2),
        ("1.5G", 1536 * MIB),
        ("2GiB", 2048 * MIB),
        ("1T", MIB * MIB),
    ],
)
def test_a_bare_number_is_mib_and_units_are_powers_of_1024(
    text: str, value: int
) -> None:
    assert RamSize().parse(text) == value
    written = tomllib.loads(f"a = {RamSize().render(value)}")["a"]
    assert RamSize().check(written) == value


@pytest.mark.parametrize(
    "text", ["", "-2", "1MB", "1X", "M", "1.5", "75%", "auto", "1e3", "9999999999999T"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadValue):
        RamSize().parse(text)


@pytest.mark.parametrize("value", [True, 1.5, -2, 2**43, [1]])
def test_other_values_of_toml_are_refused(value: object) -> None:
    with pytest.raises(BadValue):
        RamSize().check(value)


def test_flag_and_variable_of_llama_server_reach_the_plan() -> None:
    for argv, env in ((["-cram", "16"], {}), ([], {"LLAMA_ARG_CACHE_RAM": "16"})):
        resolved = config.resolve(argv, environment() | env)
        assert config.wish(resolved.settings).cache_ram == 16 * MIB
    assert config.wish(config.resolve([], environment()).settings).cache_ram is None


def test_a_bad_suffix_is_a_start_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--cache-ram", "1MB", "--check-config"], environment()) == 2
    assert "--cache-ram" in capsys.readouterr().err


def test_a_folder_for_slots_has_to_be_there(
    capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    argv = ["--check-config", "--slot-save-path", f"{tmp_path}/none"]
    assert cli.main(argv, environment()) == 78
    shown = capsys.readouterr()
    assert f"{tmp_path}/none: slot_save_path is not a directory" in (
        shown.out + shown.err
    )
    assert cli.main([*argv[:2], str(tmp_path)], environment()) == 0
