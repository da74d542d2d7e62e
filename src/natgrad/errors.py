"""The one exception for what a user can correct.

Its message is a single sentence: what was expected, what came, what to do. The command line
prints it without a traceback and exits with code 2.
"""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave is wrong and the user can put it right."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a registry, with the nearest one that is.

    >>> str(unknown("method", "rsw", ["ws", "rws"]))
    "unknown method 'rsw'; did you mean 'rws'? (known: rws, ws)"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return InputError(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")
