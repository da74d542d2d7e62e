"""Standard streams that are closed, full or broken: what is said then, and with which exit code."""

import errno
import logging
import os
import re
import shutil
import signal
import sys
import textwrap
from contextlib import suppress

from natgrad.errors import clipped

_NAMES = {errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC}
NARROWEST = 40
BROKEN = 128 + signal.SIGPIPE  # as if the signal had ended the process, like other tools


def replace_closed() -> None:
    """Put the null device where a standard stream is closed: the next file opened would take its place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False, encoding="utf-8"))  # noqa: SIM115


def widen() -> None:
    """Write lines of at least forty columns: on narrower screens the tables of help never end."""
    if shutil.get_terminal_size().columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)


def settle() -> None:
    """Send what cannot be written nowhere: the interpreter would fail on it once more at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def complain(message: str, *, to_json: bool) -> None:
    """A sentence on stderr and, for machines, as a JSON line on stdout."""
    with suppress(OSError):
        if to_json:
            from natgrad.records.folder import json_line

            print(json_line({"error": message}))
            sys.stdout.flush()
    with suppress(OSError):
        print(_folded(f"natgrad: {message}"), file=sys.stderr)
        sys.stderr.flush()


class _Folding(logging.Formatter):
    """Warnings as the terminal can show them."""

    def format(self, record: logging.LogRecord) -> str:
        return _folded(super().format(record))


def fold_warnings() -> None:
    """Fold what modules log, unless the user has set up logging."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Folding())


def _folded(text: str) -> str:
    """A text whose lines a terminal need not break inside words or commands; whole for files and pipes."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    joined = re.sub(r"`[^`]+`", lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(joined, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def refused(error: OSError) -> str:
    """What to say of an output that could not be written, or a name that the system refuses; else empty."""
    if error.filename is not None and error.errno in _NAMES:
        return f"cannot use {clipped(str(error.filename), 80)}: {error.strerror}; give another path"
    if error.filename is not None:
        return ""
    return f"cannot write the output: {error.strerror or error}; send it somewhere else"
