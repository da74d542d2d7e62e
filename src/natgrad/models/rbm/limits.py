"""What is too large to enumerate or to store, said before anything is computed; no JAX."""

from natgrad.errors import InputError

MOST_UNITS = 22  # on the smaller side of a machine whose states are enumerated for log Z
MOST_STATES, MOST_PARAMETERS = 16, 4096  # of an exact Fisher; 4096^2 numbers are 64 MB


def check_enumerable(visible: int, hidden: int, *, gaussian: bool) -> None:
    """Refuse a machine with too many units on its smaller side."""
    units = hidden if gaussian else min(visible, hidden)
    if units > MOST_UNITS:
        raise InputError(
            f"expected at most {MOST_UNITS} units on the smaller side to enumerate its states, got a machine "
            f"of {visible} visible and {hidden} hidden units; use chains such as --negative pcd, and "
            "annealed importance sampling for log Z"
        )


def check_storable(visible: int, hidden: int, *, gaussian: bool, marginal: bool) -> None:
    """Refuse a machine whose matrix is too large, or has too many states to be summed over."""
    parameters = visible * hidden + visible + hidden
    if parameters > MOST_PARAMETERS:
        raise InputError(
            f"the exact Fisher has a row for every parameter, expected at most {MOST_PARAMETERS}, got "
            f"{parameters}; estimate it from chains, with --negative pcd and metric.source samples"
        )
    if marginal and gaussian:
        raise InputError(
            "the exact Fisher of p(v) needs Bernoulli units, got Gaussian ones; use metric.fisher joint"
        )
    units = visible if marginal else hidden if gaussian else min(visible, hidden)
    if units > MOST_STATES:
        raise InputError(
            f"the exact Fisher is a sum over the states of at most {MOST_STATES} units, got {units}; "
            "estimate it from chains, with --negative pcd and metric.source samples"
        )
