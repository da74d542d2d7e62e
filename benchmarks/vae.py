"""What a step of a variational autoencoder costs: in one process, interleaved, as ratios to a step of Adam.

    NATGRAD_DATA=... python -m benchmarks.vae [--layers 200,200] [--latent 50] [--rounds 9] [--json]

Dense networks on binarized MNIST, batches of 128, one sample; the natural methods with their default
settings, and some that cost more or less. Every round runs all of them in turn; times are medians over
rounds, ratios medians of each round's own ratio, of wall time and of CPU time.
"""

import argparse
import json
import statistics

from benchmarks import run_benchmark
from benchmarks.step import advance, median_ratio, timed
from natgrad import config
from natgrad.data import batches
from natgrad.data import load as load_data
from natgrad.training.compile import LONG
from natgrad.training.session import Session

BATCH = 128
METHODS = {
    "adam": {"method": "plain", "optimizer": "adam"},
    "two_step": {"method": "two-step"},
    "two_step_units": {"method": "two-step", "solver": "units"},
    "two_step_units_kept": {"method": "two-step", "solver": "units", "refresh": 10},
    "two_step_dual": {"method": "two-step", "solver": "dual"},
    "two_step_diagonal": {"method": "two-step", "solver": "diagonal"},
    "two_step_cg": {"method": "two-step", "solver": "cg"},
    "natural": {"method": "natural"},
}


def measure(data: str, sizes: dict, steps: int, rounds: int, names: list[str]) -> dict:
    dataset = load_data(data)
    found = {}
    for name in names:
        settings = {"model": "vae", "data": data, "batch_size": BATCH, "epochs": LONG} | sizes | METHODS[name]
        session = Session.begin(config.resolve(settings), dataset)
        found[name] = (session, session._compile())
    order = batches.permutation(found["adam"][0].key_order, 0, len(dataset.train))
    times = {name: [] for name in found}
    for turn in range(rounds + 1):
        for name, pair in found.items():
            spent = timed(lambda pair=pair: advance(pair, order, 0, steps), steps)
            if turn:  # the first round warms up
                times[name].append(spent)
    return summary(times) | {"data": data, "batch": BATCH, **sizes, "steps": steps, "rounds": rounds}


def summary(times: dict) -> dict:
    row = {f"{name}_ms": statistics.median(pair[0] for pair in pairs) for name, pairs in times.items()}
    for name in times:
        if name != "adam":
            for clock, suffix in enumerate(("", "_cpu")):
                row[f"{name}_over_adam{suffix}"] = median_ratio(times, name, "adam", clock)
    return {name: round(value, 4) for name, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="binarized-mnist")
    parser.add_argument("--layers", default="200,200")
    parser.add_argument("--latent", type=int, default=50)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--methods", default=",".join(METHODS), help="those to measure; adam always is")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sizes = {"layers": tuple(map(int, given.layers.split(","))), "latent": given.latent}
    names = [name for name in METHODS if name == "adam" or name in given.methods.split(",")]
    row = measure(given.data, sizes, given.steps, given.rounds, names)
    print(json.dumps(row) if given.json else "\n".join(f"{name:28} {value}" for name, value in row.items()))


if __name__ == "__main__":
    run_benchmark(main)
