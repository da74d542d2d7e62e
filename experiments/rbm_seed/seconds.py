"""What a step of every variant costs, in seconds of a processor: python -m experiments.rbm_seed.seconds FILE.

The seconds of a record are those of a clock, on a machine that does other things too. Here the best
setting of every variant trains again for a few epochs, on one core, and the time of the processor between
chunks of steps is taken; the median over chunks counts. `<name>_seconds.jsonl` gets a line for each variant;
those that it has are not measured again.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from experiments import table
from natgrad.sweep import plan as plans
from natgrad.sweep.choice import best_candidates

STEPS = 200  # that are looked at


class Clock:
    """A watcher of a training that notes the processor's time after every chunk."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """Look at the clock."""
        del total, loss
        self.seen.append((steps, time.process_time()))

    def evaluated(self, row: dict) -> None:
        """Nothing to do."""
        del row

    @property
    def cost(self) -> float:
        """Seconds a step, from chunk to chunk."""
        steps, times = np.array(self.seen).T
        return float(np.median(np.diff(times) / np.diff(steps)))


def measured(setting: dict) -> float:
    """Seconds of a step of a setting."""
    from natgrad.training.run import run_config

    short = {"training.chunk_steps": 20, "seed": 0}
    config = plans.config.resolve(setting | short)
    per_epoch = (config.data.train_rows or 1297) // config.training.batch_size
    epochs = -(-STEPS // per_epoch)
    config = plans.config.resolve(setting | short | {"training.epochs": epochs, "evaluation.every": epochs})
    clock = Clock()
    with tempfile.TemporaryDirectory() as place:
        run_config(config, out=Path(place) / "run", watch=clock)
    return clock.cost


def costs_of(file: Path) -> Path:
    return file.with_name(f"{file.stem}_seconds.jsonl")


def cost_of_steps(file: Path) -> dict[str, float]:
    """Seconds a step, by variant."""
    lines = costs_of(file).read_text().splitlines() if costs_of(file).exists() else []
    return {line["variant"]: line["seconds_per_step"] for line in map(json.loads, lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="a sweep's file, with its record beside it")
    file = parser.parse_args().file
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX counts the cores
    found = table.results(file)
    for choice in best_candidates(found):
        candidate = found.candidates[choice.number]
        if candidate.variant not in cost_of_steps(file):
            line = {"variant": candidate.variant, "seconds_per_step": round(measured(candidate.setting), 7)}
            with costs_of(file).open("a") as stream:
                stream.write(json.dumps(line) + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()
