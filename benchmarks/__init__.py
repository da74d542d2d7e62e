"""What things cost, as ratios in one run."""

import sys
from collections.abc import Callable

from natgrad.errors import InputError


def run_benchmark(main: Callable[[], None]) -> None:
    """Call a benchmark; what its user can correct, such as data that are not there, is one sentence."""
    try:
        main()
    except InputError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        sys.exit(2)
