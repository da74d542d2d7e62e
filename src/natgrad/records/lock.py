"""One process writes a run at a time.

The lock is the operating system's, on an open file: it ends with the process, however that ends.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from natgrad.errors import InputError
from natgrad.records.folder import writing

TRIES = 5


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run for writing, or refuse if another process does."""
    with writing(folder):
        (folder / "state").mkdir(exist_ok=True)
        handle = os.open(folder / "state" / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _take(handle, folder)
        yield
    finally:
        os.close(handle)


def _take(handle: int, folder: Path) -> None:
    try:
        for _ in range(TRIES):
            with suppress(BlockingIOError):
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            time.sleep(0.1)  # someone may only be looking whether the run is locked
        raise InputError(f"another process is training {folder}; wait for it, or stop it, and resume then")
    except OSError as error:
        raise InputError(
            f"cannot lock {folder} ({error.strerror}); put the run on a disk that knows file locks"
        ) from None


def locked(place: Path) -> bool:
    """Whether a process holds the run's lock at this moment."""
    try:
        handle = os.open(place / "state" / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False
