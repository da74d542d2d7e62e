"""The one exception for what a user can correct.

Its message is a single sentence: what was expected, what came, what to do. The command line
prints it without a traceback and exits with code 2.
"""

import difflib
import os
from collections.abc import Iterable
from typing import Any

_FEW = 10  # names that are all listed; of more, only the nearest
LARGEST_COUNT = 10**9  # of anything that is counted: more is a slip of the pen
_LONGEST = 1000  # letters of a message: what a user gave may have millions


class InputError(ValueError):
    """Something the user gave is wrong and the user can put it right."""

    def __init__(self, message: str) -> None:
        super().__init__(clipped(" ".join(message.split()) if "\n" in message else message))


class Diverged(InputError):
    """A training ran away again and again; its last good state is saved."""


class Newer(InputError):
    """A file is of a later version of natgrad than this one."""

    def __init__(self, what: object, found: int, known: int) -> None:
        super().__init__(
            f"{what} was written by a newer natgrad (its format is {found}, this one knows {known}); "
            "update natgrad to use it"
        )


def clipped(text: str, longest: int = _LONGEST) -> str:
    """A text without its middle, where it is longer than a reader wants.

    >>> clipped("expected a list, got [[[[[[[[[[; correct it", 36)
    'expected a list ... [[[; correct it'
    """
    half = (longest - 5) // 2
    return text if len(text) <= longest else f"{text[:half].rstrip()} ... {text[-half:].lstrip()}"


def check_counts(least: int = 1, most: int = LARGEST_COUNT, **counts: Any) -> None:
    """Refuse counts that a call cannot mean.

    >>> check_counts(samples=0)
    Traceback (most recent call last):
    natgrad.errors.InputError: samples: expected at least 1, got 0
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise InputError(f"{name}: expected a whole number, got {value!r}")
        if value < least:
            raise InputError(f"{name}: expected at least {least}, got {value}")
        if value > most:
            raise InputError(f"{name}: expected at most {most}, got {value}")


def check_function(function: Any) -> None:
    """Refuse what cannot be called.

    >>> check_function(3)
    Traceback (most recent call last):
    natgrad.errors.InputError: expected a function, got 3; give what computes the values
    """
    if not callable(function):
        raise InputError(f"expected a function, got {function!r}; give what computes the values")


def number_of(value: Any) -> float:
    """A value as a number; NaN if it is not one.

    >>> number_of(3), number_of("x")
    (3.0, nan)
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def check_paths(**paths: Any) -> None:
    """Refuse what cannot be the name of a file or a folder; None is one that is not given.

    >>> check_paths(out=3)
    Traceback (most recent call last):
    natgrad.errors.InputError: out: expected a path, got 3; give a text or a Path
    """
    for name, value in paths.items():
        if not isinstance(value, str | os.PathLike | None):
            raise InputError(f"{name}: expected a path, got {value!r}; give a text or a Path")


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a registry, with the nearest that are.

    >>> str(unknown("method", "rsw", ["ws", "rws"]))
    "unknown method 'rsw'; did you mean 'rws'? (known: rws, ws)"
    >>> str(unknown("method", "adam", ["ws", "rws"]))
    "unknown method 'adam'; known are rws, ws"
    """
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if not near:
        return InputError(f"unknown {kind} {name!r}; known are {', '.join(names)}")
    if len(names) > _FEW:
        return InputError(f"unknown {kind} {name!r}; did you mean {' or '.join(map(repr, near))}?")
    return InputError(f"unknown {kind} {name!r}; did you mean {near[0]!r}? (known: {', '.join(names)})")
