"""Replaces a file so that the old or the new one is there whole, whatever happens.

The new text is written beside the file and forced to the disk before it takes the
file's name in one step. The old file stays under the first free numbered name, as
`mv --backup=numbered` keeps it. A link is followed: the file it leads to is replaced
and the link stays.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from mlxceld.problems import Problem, Refused

SECRET = 0o600
"""Permissions of a new file that holds a secret."""

PLAIN = 0o644
"""Permissions of any other new file, before the umask."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was done to one file."""

    path: Path
    backup: Path | None = None
    """Where the old text is; None where there was none."""


def write(path: Path, data: bytes, *, secret: bool = False) -> Written:
    """Give `path` this content; folders above it are made where they are missing.

    Permissions and owner of the old file are kept; with `secret` nobody but the owner
    may read the file, also where the old one was open. Raises `Refused`.
    """
    target = Path(os.path.realpath(path))
    with _told(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        old = _status(target)
        temporary = _temporary(target)
        try:
            _fill(temporary, data, old, secret=secret)
            backup = None if old is None else _backup(target)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(target.parent)
    return Written(path, backup and path.with_name(backup.name))


def read(path: Path) -> bytes | None:
    """The bytes of a file, None when there is none. Raises `Refused`."""
    with _told(path, "read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def _status(target: Path) -> os.stat_result | None:
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Refused([Problem("is not a regular file", str(target))])
    return status


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def _fill(
    temporary: Path, data: bytes, old: os.stat_result | None, *, secret: bool
) -> None:
    """Make the temporary file, with everything that the final one has."""
    mode = SECRET if secret or old is not None else PLAIN
    # A name that is left from a run that was killed belongs to a dead process.
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        if old is not None:
            _take_after(handle, old, secret=secret)
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _take_after(handle: int, old: os.stat_result, *, secret: bool) -> None:
    # Only root may give files away. What others may do to the file must not widen
    # when the owner cannot be kept, so the owner goes first.
    with suppress(PermissionError):
        os.fchown(handle, old.st_uid, old.st_gid)
    mode = stat.S_IMODE(old.st_mode)
    os.fchmod(handle, mode & SECRET if secret else mode)


def _backup(target: Path) -> Path:
    """Keep the old file under the first free name; its inode, with all it has."""
    for number in count(1):
        backup = target.with_name(f"{target.name}.~{number}~")
        try:
            os.link(target, backup)
        except FileExistsError:
            continue
        except OSError:
            # File systems without hard links: a copy, which must be whole as well.
            if backup.exists():
                continue
            _copy(target, backup)
        return backup
    raise AssertionError("numbers do not end")


def _copy(target: Path, backup: Path) -> None:
    temporary = _temporary(backup)
    try:
        _fill(temporary, target.read_bytes(), os.stat(target), secret=False)
        os.replace(temporary, backup)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        # Some file systems cannot; the file itself is on the disk.
        pass
    finally:
        os.close(handle)


@contextmanager
def _told(path: Path, verb: str = "written") -> Iterator[None]:
    """Errors of the system as a problem that names the file."""
    try:
        yield
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise Refused([Problem(f"cannot be {verb}: {what}", str(path))]) from error
    except ValueError as error:
        # A NUL byte, or half a character: no file has such a name.
        raise Refused([Problem(f"cannot be {verb}: {error}", repr(str(path)))]) from (
            error
        )
