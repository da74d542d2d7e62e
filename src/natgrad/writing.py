"""Files written whole or not at all, and files that grow; on the disk when the call returns."""

import os
from contextlib import suppress
from pathlib import Path

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW  # never through a link to somebody else's file
_MORE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


def write(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all: to a temporary name, forced to the disk, then renamed."""
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


def extend(path: Path, content: str | bytes) -> None:
    """Add to the end of a file, which is made if it is not there."""
    _put(path, _MORE, _raw(content))


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
