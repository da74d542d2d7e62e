"""Files written whole or not at all, and files that grow: on the disk when the call returns.

Files are read only if they are files: a pipe or a device would block, or never end.
"""

import errno
import os
import stat
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW  # never through a link to somebody else's file
_MORE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


def write(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all: to a temporary name, forced to the disk, then renamed."""
    check_replaceable(path)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        _put(temporary, _NEW, _raw(content))
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _settle(path.parent)


def check_replaceable(path: Path) -> None:
    """OSError for a name that is not free to become a file: of a device, a pipe or a folder, or below /dev.

    A rename would put the file in its place: the superuser would lose the device for all.
    """
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a file", str(path))
    if is_system(path.absolute().parent):
        raise OSError(errno.EINVAL, "Not a place for files", str(path))


def is_system(folder: Path) -> bool:
    """Whether a folder only looks like one for files, as those of /proc and /dev do for the superuser."""
    place = folder.resolve().parts
    return place[:2] in (("/", "proc"), ("/", "sys"), ("/", "dev")) and place[:3] != ("/", "dev", "shm")


def extend(path: Path, content: str | bytes) -> None:
    """Add to the end of a file, which is made if it is not there."""
    _put(path, _MORE, _raw(content))


def open_regular(path: str | Path, longest: int | None = None) -> BufferedReader:
    """A regular file, opened for reading; OSError for anything else, ValueError where it is too long."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is opened without waiting
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        os.close(handle)
        is_folder = stat.S_ISDIR(facts.st_mode)
        number, why = (errno.EISDIR, os.strerror(errno.EISDIR)) if is_folder else (errno.EINVAL, "Not a file")
        raise OSError(number, why, str(path))
    if longest is not None and facts.st_size > longest:
        os.close(handle)
        raise ValueError(f"{path} is longer than the {longest} bytes that it may have")
    return os.fdopen(handle, "rb")


def read_regular(path: str | Path, longest: int | None = None) -> bytes:
    """What a regular file holds."""
    with open_regular(path, longest) as stream:
        return stream.read()


def _raw(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _put(path: Path, flags: int, raw: bytes) -> None:
    with os.fdopen(os.open(path, flags, 0o666), "wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def _settle(folder: Path) -> None:
    """Force a rename to the disk, where the system lets a folder be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
