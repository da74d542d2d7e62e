"""What a user waits for before anything is learned: CPU and wall seconds of the first hour's commands.

    python -m benchmarks.startup [--only train,fit] [--json]

Every command runs in a process of its own with a compile cache that is empty at first. What it takes beside
training is starting Python, importing JAX, tracing and compiling; `again` finds the cache filled.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = "train --data digits --method rws --layers 64,16 --epochs 50 --seed 0 --quiet --json --out {}"
SWEEP = """seed = 0
method = "rws"
data.name = "digits"
model.layers = [[8]]
training.epochs = 2
optimizer.learning_rate = [0.05, 0.1, 0.2, 0.4]
"""
TIMES = """
import json, time
import numpy as np
from natgrad.training.session import Session
spent, go = [], Session.go
def counted(self, *args):
    go(self, *args)
    spent.append(self.progress.seconds)
Session.go = counted
rows = np.random.default_rng(0).integers(0, 2, (200, 16)).astype(float)
"""
FIT = f"""{TIMES}
from natgrad.sklearn import HelmholtzMachine
found = []
for turn in range(2):
    began = time.process_time(), time.perf_counter()
    HelmholtzMachine(layers=(16, 8), epochs=5, random_state=turn).fit(rows)
    found.append((time.process_time() - began[0], time.perf_counter() - began[1]))
print(json.dumps({{"fit": found, "training": spent}}))
"""
GRID = f"""{TIMES}
from sklearn.model_selection import GridSearchCV
from natgrad.sklearn import HelmholtzMachine
machine = HelmholtzMachine(layers=(8,), epochs=2, method="rws", random_state=0)
GridSearchCV(machine, {{"learning_rate": [0.1, 0.2]}}, cv=2).fit(rows)
print(json.dumps({{"training": spent}}))
"""
MINIMIZE = "import natgrad; print(natgrad.minimize(lambda x: float((x * x).sum()), 3, budget=300).value)"
COMMAND = "import sys; from natgrad.cli.main import main; main(sys.argv[1:])"


class Place:
    """A folder with a compile cache of its own, in which processes are timed."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        self.environment = kept | {"NATGRAD_CACHE": str(self.folder / "cache")}

    def run(self, *words: str) -> tuple[dict, str]:
        """The seconds of a process, and what it printed."""
        before, began = _children(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        wall = time.perf_counter() - began
        return {"cpu": round(_children() - before, 2), "wall": round(wall, 2)}, done.stdout


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def trained(place: Place) -> dict:
    """README's first training, cold and again."""
    found = {}
    for name in ("cold", "again"):
        spent, text = place.run(COMMAND, *TRAIN.format(name).split())
        found[f"train_{name}"] = spent | {"training": json.loads(text)["train_seconds"]}
    return found


def fitted(place: Place) -> dict:
    """Two fits of the same shapes in one process: what the second takes beside its training."""
    found = json.loads(place.run(FIT)[1])
    first, again = (
        {"cpu": round(cpu, 2), "wall": round(wall, 2), "training": round(training, 3)}
        for (cpu, wall), training in zip(found["fit"], found["training"], strict=True)
    )
    return {"fit_first": first, "fit_again": again | {"beside": round(again["wall"] - again["training"], 3)}}


def minimized(place: Place) -> dict:
    """A first search, cold and again."""
    return {f"minimize_{name}": place.run(MINIMIZE)[0] for name in ("cold", "again")}


def swept(place: Place) -> dict:
    """A sweep of four tiny trials."""
    (place.folder / "tiny.toml").write_text(SWEEP)
    return {"sweep": place.run(COMMAND, "sweep", "tiny.toml", "--workers", "1", "--quiet", "--json")[0]}


def searched(place: Place) -> dict:
    """Five small fits of a grid search."""
    spent, text = place.run(GRID)
    return {"grid_search": spent | {"training": round(sum(json.loads(text)["training"]), 3)}}


def flowed(place: Place) -> dict:
    """The flow of two binary variables, cold and again."""
    return {f"flow_{name}": place.run(COMMAND, "relax", "flow", "--json")[0] for name in ("cold", "again")}


PARTS = {"train": trained, "fit": fitted, "minimize": minimized, "sweep": swept, "grid": searched}
PARTS |= {"flow": flowed}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found: dict = {}
    for name in chosen.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found |= PARTS[name](Place(folder))
    if chosen.json:
        print(json.dumps(found))
        return
    for name, spent in found.items():
        print(f"{name:15} " + "  ".join(f"{key} {value:7.2f}" for key, value in spent.items()))


if __name__ == "__main__":
    main()
