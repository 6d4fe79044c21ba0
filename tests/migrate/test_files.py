"""Files are replaced whole, whatever happens on the way."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from mlxceld.migrate import files
from mlxceld.problems import Refused

OLD = b"old text\n" * 50
NEW = b"new text, longer than the old one\n" * 50

STEPS = ("open", "write", "fsync", "fchmod", "fchown", "link", "replace", "unlink")
"""What touches the file system on the way."""


def test_a_new_file_gets_its_content_and_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "mlxcel.toml"
    assert files.write(path, NEW) == files.Written(path)
    assert path.read_bytes() == NEW
    assert os.listdir(path.parent) == ["mlxcel.toml"]


def test_the_old_file_is_kept_under_the_first_free_number(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"1")
    first = files.write(path, b"2")
    second = files.write(path, b"3")
    assert first.backup == tmp_path / "a.toml.~1~"
    assert second.backup == tmp_path / "a.toml.~2~"
    assert (tmp_path / "a.toml.~1~").read_bytes() == b"1"
    assert (tmp_path / "a.toml.~2~").read_bytes() == b"2"
    assert path.read_bytes() == b"3"


def test_a_backup_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(OLD)
    (tmp_path / "a.toml.~1~").write_bytes(b"precious")
    assert files.write(path, NEW).backup == tmp_path / "a.toml.~2~"
    assert (tmp_path / "a.toml.~1~").read_bytes() == b"precious"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664, 0o400])
def test_the_permissions_of_the_old_file_are_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(OLD)
    path.chmod(mode)
    files.write(path, NEW)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_secret_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_bytes(OLD)
    old.chmod(0o644)
    for path in (new, old):
        files.write(path, NEW, secret=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_the_owner_of_the_old_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(OLD)
    os.chown(path, 1234, 2345)
    files.write(path, NEW)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "real" / "a.toml"
    target.parent.mkdir()
    target.write_bytes(OLD)
    link = tmp_path / "link.toml"
    link.symlink_to("real/a.toml")
    files.write(link, NEW)
    assert link.is_symlink()
    assert target.read_bytes() == NEW
    assert (tmp_path / "real" / "a.toml.~1~").read_bytes() == OLD


def test_a_backup_is_made_without_hard_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "a.toml"
    path.write_bytes(OLD)
    path.chmod(0o640)
    (tmp_path / "a.toml.~1~").write_bytes(b"precious")
    assert files.write(path, NEW).backup == tmp_path / "a.toml.~2~"
    assert (tmp_path / "a.toml.~2~").read_bytes() == OLD
    assert stat.S_IMODE((tmp_path / "a.toml.~2~").stat().st_mode) == 0o640
    assert path.read_bytes() == NEW


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.toml").mkdir()
    with pytest.raises(Refused, match="is not a regular file"):
        files.write(tmp_path / "a.toml", NEW)


def test_an_error_names_the_file_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.toml"
    path.write_bytes(OLD)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Refused) as refused:
        files.write(path, NEW)
    problem = refused.value.problems[0]
    assert problem.where == str(path)
    assert problem.what == "cannot be written: no space left on device"
    assert os.listdir(tmp_path) == ["a.toml"]
    assert path.read_bytes() == OLD


def test_a_name_that_no_file_can_have_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read: embedded null byte"):
        files.read(tmp_path / "a\0b")


def killed_at(step: int, path: Path) -> bool:
    """Write in a child that is killed before its step of that number.

    Returns whether it was killed, that is, whether there are so many steps.
    """
    child = os.fork()
    if child == 0:
        count = 0

        def counted(name: str) -> None:
            real = getattr(os, name)

            def call(*args: object, **kwargs: object) -> object:
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                # A write of the whole text in one go would be one step only.
                if name == "write":
                    args = (args[0], bytes(args[1])[:700])  # type: ignore[call-overload]
                return real(*args, **kwargs)

            setattr(os, name, call)

        for name in STEPS:
            counted(name)
        try:
            files.write(path, NEW)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_kill_at_any_step_leaves_the_old_or_the_new_file_whole(
    tmp_path: Path,
) -> None:
    seen = set()
    step = 0
    while True:
        step += 1
        folder = tmp_path / str(step)
        folder.mkdir()
        path = folder / "a.toml"
        path.write_bytes(OLD)
        path.chmod(0o640)
        killed = killed_at(step, path)
        assert path.read_bytes() in (OLD, NEW)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        for backup in folder.glob("a.toml.~*~"):
            assert backup.read_bytes() == OLD
        seen.add(path.read_bytes())
        # What the dead one left behind is in nobody's way.
        files.write(path, NEW)
        assert path.read_bytes() == NEW
        if not killed:
            break
    assert step > 8
    assert seen == {OLD, NEW}
