"""The course of every variant's best setting: python -m experiments.rbm_seed.course [TRIALS].

Writes `course.md` from the record: the mean test log-likelihood over the seeds that confirm, at some epochs,
and the seconds of training until the last one. Nothing is trained. With the folder of the sweep's trials it
first writes `distances.jsonl`, which the record does not have: how far covariances and Fisher of a method
that reports it are from the identity in the chart of its steps, before and after training.
"""

import argparse
import json
import tomllib
from pathlib import Path

import numpy as np

from experiments import table

FILE = Path(__file__).with_name("config.toml")
DISTANCES = FILE.with_name("distances.jsonl")
EPOCHS = (6, 12, 24, 36, 60)
COLUMNS = {"white_distance": "covariances from I", "fisher_distance": "Fisher from I"}


def collect(best: dict[str, list[dict]], trials: Path) -> None:
    """Write the first and the last distances of the trials that count."""
    lines = []
    for folder in sorted(trials.glob("*/trace.jsonl")):
        settings = tomllib.loads((folder.parent / "config.toml").read_text("utf-8"))
        rows = [json.loads(line) for line in folder.read_text("utf-8").splitlines()]
        for name, counted in best.items():
            if "white_distance" in rows[-1] and any(is_trial(trial, settings) for trial in counted):
                ends = {column: [rows[0][column], rows[-1][column]] for column in COLUMNS}
                lines.append({"variant": name, "seed": settings["seed"]} | ends)
    DISTANCES.write_text("".join(json.dumps(line) + "\n" for line in lines))


def is_trial(trial: dict, settings: dict) -> bool:
    """Whether a config is that of a line of the record."""
    given = {"seed": trial["seed"]} | trial["settings"]
    return all(_at(settings, name) == value for name, value in given.items())


def _at(settings: dict, name: str) -> object:
    found: object = settings
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def mean_at(trials: list[dict], epoch: int, name: str) -> float:
    """The mean over trials of a column at an epoch."""
    return float(np.mean([row[name] for trial in trials for row in trial["rows"] if row["epoch"] == epoch]))


def distances(name: str) -> list[str]:
    """From where to where the distances of a variant went."""
    every = [json.loads(line) for line in DISTANCES.read_text("utf-8").splitlines()]
    own = [line for line in every if line["variant"] == name]
    if not own:
        return [""] * len(COLUMNS)
    ends = (np.mean([line[column] for line in own], axis=0) for column in COLUMNS)
    return [f"{first:.2f} to {last:.2f}" for first, last in ends]


def page(best: dict[str, list[dict]]) -> str:
    """A line for every variant, in the order of the record."""
    heads = ["variant", *(f"epoch {epoch}" for epoch in EPOCHS), "seconds", *COLUMNS.values()]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, trials in best.items():
        values = [f"{mean_at(trials, epoch, 'test_ll'):.2f}" for epoch in EPOCHS]
        values.append(f"{mean_at(trials, EPOCHS[-1], 'seconds'):.1f}")
        lines.append(f"| {' | '.join([name, *values, *distances(name)])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", type=Path, nargs="?", help="the folder of the sweep's trials")
    trials, best = parser.parse_args().trials, table.best(table.results(FILE))
    if trials is not None:
        collect(best, trials)
    FILE.with_name("course.md").write_text(page(best))
    print(page(best))


if __name__ == "__main__":
    main()
