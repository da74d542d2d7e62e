"""How many files a reader visits to follow one training, and how often the file changes.

    python -m benchmarks.walk [--pairs 20] [--json]

A profiler follows every call of natgrad's own functions during a short `natgrad train --method nrws` on
digits, and counts how often the objective's Python code runs: it is traced, not run, in the steps. Bodies
of modules and classes are read when they are imported and do not count. With `--pairs` it also says between
which files the reader changes most often.
"""

import argparse
import inspect
import json
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = "natgrad"


class Walk:
    """Files in the order in which they are entered."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.estimates = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call of a function of the package."""
        del argument
        name = frame.f_code.co_filename
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if event != "call" or f"/{PACKAGE}/" not in name or not is_function:
            return
        place = name.partition(f"/{PACKAGE}/")[2]
        self.estimates += frame.f_code.co_name == "estimate"
        if not self.files or self.files[-1] != place:
            self.files.append(place)


def walked() -> Walk:
    """Follow one training."""
    from natgrad.cli.main import main

    walk = Walk()
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "--method", "nrws", "--layers", "16,8", "--epochs", "1", "--quiet", "--out"]
        sys.setprofile(walk)
        try:
            main([*words, str(Path(folder) / "run")])
        except SystemExit as ended:
            if ended.code:
                raise
        finally:
            sys.setprofile(None)
    return walk


def figures(walk: Walk, pairs: int) -> dict[str, int]:
    """The counts, and those of the pairs of files that take turns most often."""
    changes = len(walk.files) - 1
    found = {"files": len(set(walk.files)), "changes": changes, "objective_traced": walk.estimates}
    turns = Counter(" ".join(sorted(pair)) for pair in pairwise(walk.files))
    return found | dict(turns.most_common(pairs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON line")
    parser.add_argument("--pairs", type=int, default=0, help="pairs of files to be listed")
    given = parser.parse_args()
    found = figures(walked(), given.pairs)
    print(json.dumps(found) if given.json else "\n".join(f"{name} {value}" for name, value in found.items()))
