"""Files opened only if they are files: a pipe or a device would block, or never end."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: str | Path, longest: int | None = None) -> BufferedReader:
    """A regular file, opened for reading; OSError for anything else, ValueError where it is too long."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is opened without waiting
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if longest is not None and facts.st_size > longest:
        os.close(handle)
        raise ValueError(f"{path} is longer than the {longest} bytes that it may have")
    return os.fdopen(handle, "rb")


def read_regular(path: str | Path, longest: int | None = None) -> bytes:
    """What a regular file holds."""
    with open_regular(path, longest) as stream:
        return stream.read()
