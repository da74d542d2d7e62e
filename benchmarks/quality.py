"""Test likelihood against seconds of training, the same time for every method.

    NATGRAD_DATA=... python -m benchmarks.quality --minutes 2 [--json] [--figure quality.png]

A pilot of one epoch says how many epochs fit the time; then the method trains for those, its rate
annealed by a cosine over them. Rates come from the grids of experiments/nrws_choices and
experiments/nrws_mini (validation data); seconds are of training alone, without compilation and
evaluation. One trial after the other, each in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import run_benchmark
from natgrad.data import load as load_data

DATA = {
    "mini-mnist": {"layers": [100, 50, 20, 10, 10]},
    "binarized-mnist": {"layers": [200, 200, 200], "evaluation.rows": 1000},
}
METHODS = {
    "ws": {"method": "ws"},
    "rws": {"method": "rws"},
    "rws + adam": {"method": "rws", "optimizer": "adam"},
    "rws + nadam": {"method": "rws", "optimizer": "nadam"},
    "dnrws": {"method": "dnrws"},
    "nrws, fresh": {"method": "nrws"},
    "nrws, frozen": {"method": "nrws", "refresh": 1000},
    "nrws + nadam": {"method": "nrws", "optimizer": "nadam"},
}
RATES = {
    "mini-mnist": {"ws": 0.2, "rws": 0.3, "dnrws": 0.12, "nrws, fresh": 0.2, "nrws, frozen": 0.2},
    "binarized-mnist": {"ws": 0.1, "rws": 0.1, "dnrws": 0.05, "nrws, fresh": 0.1, "nrws, frozen": 0.05},
}
ADAPTIVE_RATE = 0.005  # of Adam and Nadam, on both data sets


def train(settings: dict) -> list[dict]:
    """The trace of one training."""
    import natgrad

    with tempfile.TemporaryDirectory() as folder:
        done = natgrad.train(out=Path(folder) / "run", **settings)
    return [{key: row[key] for key in ("epoch", "seconds", "valid_ll", "test_ll")} for row in done.trace]


def trial(data: str, method: str, minutes: float) -> dict:
    """A method on a data set, for that many minutes of training."""
    rate = RATES[data].get(method, ADAPTIVE_RATE)
    settings = {"data": data, "learning_rate": rate, "evaluation.test_samples": 100} | DATA[data]
    settings |= METHODS[method]
    per_epoch = train(settings | {"epochs": 1})[-1]["seconds"]
    epochs = max(1, int(60 * minutes / per_epoch))
    settings |= {"epochs": epochs, "optimizer.schedule": "cosine", "evaluation.every": max(1, epochs // 8)}
    return {"data": data, "method": method, "learning_rate": rate, "epochs": epochs, "rows": train(settings)}


def apart(data: str, method: str, minutes: float) -> dict:
    """The same in a process of its own."""
    arguments = ["--trial", data, method, "--minutes", str(minutes)]
    command = [sys.executable, "-m", "benchmarks.quality", *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def draw(trials: list[dict], path: Path) -> None:
    """Test likelihood against seconds, a panel for each data set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), dpi=120, layout="constrained")
    for axes, data in zip(figure.subplots(1, len(DATA)), DATA, strict=True):
        for found in trials:
            if found["data"] == data:
                rows = found["rows"][1:]
                seconds, likelihood = ([row[key] for row in rows] for key in ("seconds", "test_ll"))
                axes.plot(seconds, likelihood, marker=".", lw=1.2, label=found["method"])
        axes.set(title=data, xlabel="seconds of training", ylabel="test log-likelihood (nats)")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.savefig(path)


def line(found: dict) -> str:
    """The end of a trial, for the reader."""
    last = found["rows"][-1]
    name = f"{found['data']:16} {found['method']:14} rate {found['learning_rate']:<6}"
    ends = f"validation {last['valid_ll']:8.2f}   test {last['test_ll']:8.2f}"
    return f"{name} {found['epochs']:3} epochs {last['seconds']:7.1f} s   {ends}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="of training, for every method and data set"
    )
    parser.add_argument("--figure", type=Path, default=Path("quality.png"))
    parser.add_argument("--json", action="store_true", help="one line of JSON, all curves")
    parser.add_argument("--trial", nargs=2, metavar=("DATA", "METHOD"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trial:
        print(json.dumps(trial(*arguments.trial, arguments.minutes)))
        return
    for data in DATA:
        load_data(data)  # before minutes of training
    trials = []
    for data in DATA:
        for method in METHODS:
            trials.append(apart(data, method, arguments.minutes))
            print(line(trials[-1]), file=sys.stderr if arguments.json else sys.stdout, flush=True)
    draw(trials, arguments.figure)
    if arguments.json:
        print(json.dumps({"minutes": arguments.minutes, "trials": trials}))


if __name__ == "__main__":
    run_benchmark(main)
