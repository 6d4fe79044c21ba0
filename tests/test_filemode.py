"""Modes of files as options."""

from __future__ import annotations

import pytest

from mlxceld.config import BadConfig, resolve
from mlxceld.filemode import FileMode
from mlxceld.kinds import BadValue


@pytest.mark.parametrize("text", ["660", "0660", " 0660 "])
def test_a_mode_is_octal_with_a_zero_before_it_or_not(text: str) -> None:
    assert FileMode().parse(text) == "0660"
    assert FileMode().render("0660") == '"0660"'
    assert FileMode().check("0660") == "0660"


@pytest.mark.parametrize(
    "text", ["", "0680", "66", "01777", "rw-rw----", "0o660", "-1"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        FileMode().parse(text)


def test_a_number_of_toml_is_refused_because_it_could_mean_two_things() -> None:
    with pytest.raises(BadValue, match="found the integer `660`"):
        FileMode().check(660)


def test_the_mode_of_the_sockets_is_an_option() -> None:
    resolved = resolve(["-m", "x", "--socket-mode", "660"], {})
    assert resolved.settings.server.socket_mode == "0660"
    with pytest.raises(BadConfig, match=r"server\.socket_mode: found `rw`"):
        resolve(["-m", "x", "--socket-mode", "rw"], {})
