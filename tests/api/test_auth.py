"""Keys of the option and of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxceld.api.auth import Keys, keys_of
from mlxceld.problems import Refused
from mlxceld.settings import ServerSettings


def keys(option: tuple[str, ...], file: Path | None = None) -> Keys:
    """The keys of an option and a file, without a service manager."""
    return keys_of(
        ServerSettings(api_key=option, api_key_file=str(file) if file else None), {}
    )


def test_without_keys_everybody_passes() -> None:
    assert not keys(())
    assert keys(()).admits([])
    assert not keys(("", "  "))


def test_keys_of_the_file_join_those_of_the_option(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# comment\n\n  file-key  \n", encoding="utf-8")
    file.chmod(0o600)
    found = keys((" option-key ",), file)
    for key in (b"file-key", b"option-key"):
        assert found.admits([(b"authorization", b"Bearer " + key)])
        assert found.admits([(b"x-api-key", key)])
    assert not found.admits([(b"authorization", b"Bearer # comment")])


def test_an_empty_bearer_leaves_the_other_header_its_say() -> None:
    keys = Keys(["k"])
    assert keys.admits([(b"authorization", b"Bearer "), (b"x-api-key", b"k")])
    assert not keys.admits([(b"authorization", b"Bearer x"), (b"x-api-key", b"k")])


def test_a_missing_file_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="No such file"):
        keys((), tmp_path / "nothing")


def test_a_file_without_keys_does_not_leave_the_server_open(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# nobody yet\n", encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(Refused, match="holds no key"):
        keys((), file)
