"""Keys of the option and of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxceld.api.auth import Keys, read_keys
from mlxceld.problems import Refused


def test_without_keys_everybody_passes() -> None:
    assert not read_keys((), None)
    assert read_keys((), None).admits([])
    assert not read_keys(("", "  "), None)


def test_keys_of_the_file_join_those_of_the_option(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# comment\n\n  file-key  \n", encoding="utf-8")
    keys = read_keys((" option-key ",), str(file))
    for key in (b"file-key", b"option-key"):
        assert keys.admits([(b"authorization", b"Bearer " + key)])
        assert keys.admits([(b"x-api-key", key)])
    assert not keys.admits([(b"authorization", b"Bearer # comment")])


def test_an_empty_bearer_leaves_the_other_header_its_say() -> None:
    keys = Keys(["k"])
    assert keys.admits([(b"authorization", b"Bearer "), (b"x-api-key", b"k")])
    assert not keys.admits([(b"authorization", b"Bearer x"), (b"x-api-key", b"k")])


def test_a_missing_file_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="No such file"):
        read_keys((), str(tmp_path / "nothing"))


def test_a_file_without_keys_does_not_leave_the_server_open(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# nobody yet\n", encoding="utf-8")
    with pytest.raises(Refused, match="holds no key"):
        read_keys((), str(file))
