"""How the cost of a step grows: with the width of the layers, the batch and the number of samples.

    python -m benchmarks.growth [--json] [--rounds 3]

Every series varies one size of a machine (visible units, first hidden layer, 100 units on top) and
keeps the others. For every size: the matrix products alone (benchmarks/floor.py), a plain step, and
a natural step with a fresh Fisher, interleaved in one process; the memory of the metric. A fitted
exponent is the slope of log time against log size. Rows are random: only sizes matter here.
"""

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import floor
from natgrad import config
from natgrad.core import Pace
from natgrad.layers import generator
from natgrad.models.helmholtz import kind, methods
from natgrad.models.registry import Shape
from natgrad.training.compile import LONG, compiled

START = {"visible": 784, "hidden": 300, "batch": 32, "samples": 10}
SERIES = {
    "visible": (784, 3072, 12288),
    "hidden": (300, 600, 1200),
    "batch": (16, 32, 64, 128),
    "samples": (5, 10, 20, 40),
}
SECOND = 1000.0  # milliseconds a step may take and still be practical


class Machine:
    """Compiled loops of one size, and the metric's memory."""

    def __init__(self, visible: int, hidden: int, batch: int, samples: int) -> None:
        self.rows = jnp.where(jax.random.bernoulli(jax.random.key(1), 0.3, (visible, batch)), 1.0, -1.0)
        self.loops = {"floor": self._floor(hidden, samples)}
        for method in ("rws", "nrws"):
            self.loops[method] = self._steps(method, hidden, samples)

    def _settings(self, method: str, hidden: int, samples: int):
        sizes = {"layers": (hidden, 100), "samples": samples, "epochs": 1}
        return config.resolve({"method": method, "data": "binarized-mnist"} | sizes)

    def _model(self, settings):
        return kind.fresh(jax.random.key(0), settings, Shape(visible=self.rows.shape[0]))

    def _floor(self, hidden: int, samples: int):
        model = self._model(self._settings("rws", hidden, samples))
        run = compiled(floor.loop(samples), model, self.rows, 0, 1, steps=LONG)
        return lambda steps: run(model, self.rows, 0, steps)

    def _steps(self, method: str, hidden: int, samples: int):
        settings = self._settings(method, hidden, samples)
        algorithm = methods.algorithm(settings, samples, Pace(1000))
        state = algorithm.init(jax.random.key(0), self._model(settings), self.rows)
        _, info = jax.eval_shape(algorithm.step, jax.random.key(0), state, self.rows)
        evidence = dict(info.evidence)  # of a plain method there is none
        self.metric_mb = megabytes([solved.factor.operator for solved in evidence.values()])

        def loop(state, rows, steps):
            one = lambda turn, state: algorithm.step(generator.key(turn), state, rows)[0]  # noqa: E731
            return jax.lax.fori_loop(0, steps, one, state)

        run = compiled(loop, state, self.rows, 1, steps=LONG)
        return lambda steps: run(state, self.rows, steps)

    def times(self, rounds: int) -> dict[str, float]:
        """Milliseconds per step, medians over rounds, all loops in turn."""
        found: dict[str, list[float]] = {name: [] for name in self.loops}
        steps = max(1, int(0.2 / timed(self.loops["rws"], 1)))
        for turn in range(rounds + 1):
            for name, run in self.loops.items():
                seconds = timed(run, steps)
                if turn:  # the first round warms up
                    found[name].append(seconds / steps * 1e3)
        return {name: statistics.median(values) for name, values in found.items()}


def timed(run, steps: int) -> float:
    began = time.process_time()
    jax.block_until_ready(run(steps))
    return time.process_time() - began


def megabytes(tree) -> float:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)) / 2**20


def measure(name: str, sizes: tuple[int, ...], rounds: int) -> dict:
    """One series, with its exponents."""
    rows = []
    for size in sizes:
        machine = Machine(**START | {name: size})
        times = machine.times(rounds)
        rows.append(
            {"size": size, "metric_mb": machine.metric_mb, "nrws_over_rws": times["nrws"] / times["rws"]}
            | {f"{key}_ms": value for key, value in times.items()}
        )
    exponent = lambda key: slope(sizes, [row[key] for row in rows])  # noqa: E731
    keys = ("floor_ms", "rws_ms", "nrws_ms", "metric_mb")
    return {"rows": rows, "exponents": {key.removesuffix("_ms"): exponent(key) for key in keys}}


def slope(sizes: tuple[int, ...], values: list[float]) -> float:
    """The exponent of a power law through the points."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def practical(series: dict) -> float:
    """The size at which a natural step takes a second, by the fitted power law through the last point."""
    last = series["rows"][-1]
    return last["size"] * (SECOND / last["nrws_ms"]) ** (1 / series["exponents"]["nrws"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found = {name: measure(name, sizes, arguments.rounds) for name, sizes in SERIES.items()}
    found["visible"]["one_second_at"] = practical(found["visible"])
    found["hidden"]["one_second_at"] = practical(found["hidden"])
    if arguments.json:
        print(json.dumps(found))
        return
    for name, series in found.items():
        print(f"{name}: exponents " + ", ".join(f"{k} {v:.2f}" for k, v in series["exponents"].items()))
        for row in series["rows"]:
            print("   " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()))
        if "one_second_at" in series:
            print(f"   a natural step takes a second at about {series['one_second_at']:.3g}")


if __name__ == "__main__":
    main()
