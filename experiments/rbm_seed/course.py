"""The course of every variant's best setting, in epochs and in seconds.

    python -m experiments.rbm_seed.course experiments/rbm_seed/config.toml [TRIALS]

Writes `<name>_course.md` and `<name>_course.png` from the record: the mean test log-likelihood over the seeds
that confirm, and what a step costs: in seconds of a processor where they were measured
(`experiments.rbm_seed.seconds`), otherwise in those of the record, which are of a clock on a busy machine.
Nothing is trained. With the folder of the sweep's trials it first writes `<name>_distances.jsonl`, which the
record does not have: how far covariances and Fisher of a method that reports it are from the identity in the
chart of its steps, before and after training.
"""

import argparse
import json
import tomllib
from pathlib import Path

import numpy as np

from experiments import table
from experiments.rbm_seed.seconds import cost_of_steps

COLUMNS = {"white_distance": "covariances from I", "fisher_distance": "Fisher from I"}
SHOWN = 5  # epochs of the table


def distances_of(file: Path) -> Path:
    return file.with_name(f"{file.stem}_distances.jsonl")


def collect(file: Path, trials: Path) -> None:
    """Write the first and the last distances of the trials that count."""
    lines, best = [], table.best(table.results(file))
    for folder in sorted(trials.glob("*/trace.jsonl")):
        settings = tomllib.loads((folder.parent / "config.toml").read_text("utf-8"))
        rows = [json.loads(line) for line in folder.read_text("utf-8").splitlines()]
        present = [column for column in COLUMNS if column in rows[-1]]
        for name, counted in best.items():
            if present and any(table.is_trial(trial, settings) for trial in counted):
                ends = {column: [rows[0][column], rows[-1][column]] for column in present}
                lines.append({"variant": name, "seed": settings["seed"]} | ends)
    distances_of(file).write_text("".join(json.dumps(line) + "\n" for line in lines))


def epochs_of(best: dict[str, list[dict]]) -> list[int]:
    """The epochs that the trials were evaluated at, without the start."""
    return [row["epoch"] for row in next(iter(best.values()))[0]["rows"][1:]]


def mean_at(trials: list[dict], epoch: int, name: str) -> float:
    """The mean over trials of a column at an epoch."""
    return float(np.mean([row[name] for trial in trials for row in trial["rows"] if row["epoch"] == epoch]))


def costs_by_variant(file: Path, best: dict[str, list[dict]]) -> dict[str, float]:
    """Seconds a step, of a processor or of the record."""
    ends = {name: [trial["rows"][-1] for trial in trials] for name, trials in best.items()}
    return {
        name: float(np.mean([row["seconds"] / row["step"] for row in rows])) for name, rows in ends.items()
    } | cost_of_steps(file)


def distances(file: Path, name: str) -> list[str]:
    """From where to where the distances of a variant went."""
    every = [json.loads(line) for line in distances_of(file).read_text("utf-8").splitlines()]
    own = [line for line in every if line["variant"] == name]
    told = []
    for column in COLUMNS:
        ends = [line[column] for line in own if column in line]
        told.append("{:.2f} to {:.2f}".format(*np.mean(ends, axis=0)) if ends else "")
    return told


def page(file: Path) -> str:
    """A line for every variant, in the order of the record."""
    best = table.best(table.results(file))
    every, costs = epochs_of(best), costs_by_variant(file, best)
    places = np.unique(np.geomspace(1, len(every), SHOWN).round().astype(int)) - 1
    shown = [every[place] for place in places]
    heads = ["variant", *(f"epoch {epoch}" for epoch in shown), "ms a step", "seconds", *COLUMNS.values()]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, trials in best.items():
        values = [f"{mean_at(trials, epoch, 'test_ll'):.2f}" for epoch in shown]
        steps = trials[0]["rows"][-1]["step"]
        values += [f"{1000 * costs[name]:.2f}", f"{costs[name] * steps:.1f}"]
        lines.append(f"| {' | '.join([name, *values, *distances(file, name)])} |")
    return "\n".join(lines) + "\n"


def draw(file: Path) -> None:
    """The test likelihood against epochs, and against what they cost."""
    from matplotlib.figure import Figure

    best = table.best(table.results(file))
    every, costs = epochs_of(best), costs_by_variant(file, best)
    figure = Figure(figsize=(12, 5.4), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    styles = ("-", "--", ":")
    for number, (name, trials) in enumerate(best.items()):
        curve = [mean_at(trials, epoch, "test_ll") for epoch in every]
        per_epoch = costs[name] * trials[0]["rows"][-1]["step"] / every[-1]
        line = {"marker": ".", "lw": 1.2, "ls": styles[number // 5], "color": f"C{number % 5}", "label": name}
        left.plot(every, curve, **line)
        right.plot(np.array(every) * per_epoch, curve, **line)
    right.set_xscale("log")
    left.set_xlabel("epochs")
    right.set_xlabel("seconds of a processor" if cost_of_steps(file) else "seconds")
    left.set_ylabel("test log-likelihood (nats)")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    right.legend(fontsize=8)
    figure.savefig(file.with_name(f"{file.stem}_course.png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="a sweep's file, with its record beside it")
    parser.add_argument("trials", type=Path, nargs="?", help="the folder of the sweep's trials")
    chosen = parser.parse_args()
    if chosen.trials is not None:
        collect(chosen.file, chosen.trials)
    chosen.file.with_name(f"{chosen.file.stem}_course.md").write_text(page(chosen.file))
    draw(chosen.file)
    print(page(chosen.file))


if __name__ == "__main__":
    main()
