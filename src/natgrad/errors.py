"""The one exception for what a user can correct.

Its message is a single sentence: what was expected, what came, what to do. The command line
prints it without a traceback and exits with code 2.
"""

import difflib
from collections.abc import Iterable

_FEW = 10  # names that are all listed; of more, only the nearest


class InputError(ValueError):
    """Something the user gave is wrong and the user can put it right."""


class Diverged(InputError):
    """A training ran away again and again; its last good state is saved."""


class Newer(InputError):
    """A file is of a later version of natgrad than this one."""

    def __init__(self, what: object, found: int, known: int) -> None:
        super().__init__(
            f"{what} was written by a newer natgrad (its format is {found}, this one knows {known}); "
            "update natgrad to use it"
        )


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a registry, with the nearest that are.

    >>> str(unknown("method", "rsw", ["ws", "rws"]))
    "unknown method 'rsw'; did you mean 'rws'? (known: rws, ws)"
    >>> str(unknown("method", "adam", ["ws", "rws"]))
    "unknown method 'adam'; known are rws, ws"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if not near:
        return InputError(f"unknown {kind} {name!r}; known are {', '.join(names)}")
    if len(names) > _FEW:
        return InputError(f"unknown {kind} {name!r}; did you mean {' or '.join(map(repr, near))}?")
    return InputError(f"unknown {kind} {name!r}; did you mean {near[0]!r}? (known: {', '.join(names)})")
