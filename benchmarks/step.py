"""What a training step costs: in one process, interleaved, as ratios.

    NATGRAD_DATA=... python -m benchmarks.step --arch mini|mnist|three [--json]

The floor is the matrix products alone (benchmarks/floor.py). Every method starts from the same model,
trained for a short while on real rows, so that spectra are real. Programs are those of long trainings
(natgrad.training.compile). Every round runs all of them in turn; times are medians over rounds, ratios
medians of each round's own ratio.
"""

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import floor, run_benchmark
from natgrad import config
from natgrad.data import batches
from natgrad.data import load as load_data
from natgrad.metrics.blocks import join
from natgrad.training.compile import LONG, compiled
from natgrad.training.session import Session

ARCHITECTURES = {
    "mini": ("mini-mnist", (100, 50, 20, 10, 10)),
    "mnist": ("binarized-mnist", (300, 200, 100, 75, 50, 35, 30, 25, 20, 15, 10, 10)),
    "three": ("binarized-mnist", (200, 200, 200)),
}
METHODS = {
    "rws": {"method": "rws"},
    "nrws_fresh": {"method": "nrws"},
    "nrws_frozen": {"method": "nrws", "refresh": 1000},
    "dnrws": {"method": "dnrws"},
}


def sessions(data: str, layers: tuple[int, ...], dataset, methods: dict = METHODS) -> tuple[dict, dict]:
    """A compiled session per method, and the CPU seconds each compilation took."""
    found, seconds = {}, {}
    for name, settings in methods.items():
        resolved = config.resolve(
            {"data": data, "layers": layers, "epochs": LONG, "learning_rate": 0.02} | settings
        )
        session = Session.begin(resolved, dataset)
        began = time.process_time()
        advance = session._compile()
        seconds[name] = time.process_time() - began
        found[name] = (session, advance)
    return found, seconds


def advance(pair, order, start: int, stop: int) -> None:
    session, compiled = pair
    session.state, totals = compiled(
        session.key_steps, session.state, session._nothing(), session.rows, order, start, stop
    )
    jax.block_until_ready(totals)


def timed(action, steps: int) -> tuple[float, float]:
    """Wall and CPU milliseconds per step."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return (time.perf_counter() - wall) / steps * 1e3, (time.process_time() - cpu) / steps * 1e3


def one_step(session, model, order):
    """The info of one more natural step, from a model."""
    rows = batches.take_batch(
        session.key_steps, session.rows, order[: session.settings.training.batch_size], jnp.float32
    )
    state = session.state._replace(model=model)
    _, info = jax.jit(session.algorithm.step)(session.key_steps, state, model.coding.value(rows))
    return info


def systems(info) -> list[tuple]:
    """Blocks and right-hand side of every layer of both networks, and the direction found."""
    found = []
    for name, solved in info.evidence.items():
        stacks = solved.factor.operator.blocks[name], solved.right[name], getattr(info.direction, name)
        found += zip(*stacks, strict=True)
    return found


def direction_error(session, order, fresh=None, units: int = 24) -> float:
    """The relative error of a whole natural direction against dense float64 solves, on some units a layer.

    The metric is the one that the session uses, or the present one of another session.
    """
    used = systems(one_step(session, session.state.model, order))
    present = used if fresh is None else systems(one_step(fresh, session.state.model, order))
    damping = session.settings.metric.damping
    wrong = total = 0.0
    for (blocks, _, _), (_, gradient, found) in zip(present, used, strict=True):
        inputs = np.vstack([np.asarray(blocks.inputs, np.float64), np.ones(blocks.inputs.shape[1])])
        number = gradient.bias.shape[0]
        chosen = np.linspace(0, number - 1, min(units, number)).astype(int)
        right, got = np.asarray(join(gradient), np.float64), np.asarray(join(found), np.float64)
        share = number / len(chosen)
        for unit in chosen:
            matrix = (inputs * np.asarray(blocks.curvature[unit], np.float64)) @ inputs.T
            exact = (1 + damping) * np.linalg.solve(matrix + damping * np.eye(len(matrix)), right[unit])
            wrong += share * np.sum((got[unit] - exact) ** 2)
            total += share * np.sum(exact**2)
    return float(np.sqrt(wrong / total))


def metric_mb(session) -> float:
    """The memory of what a natural step keeps of the metric while it solves: rows, curvature, factors."""
    parts = jax.tree.leaves([solved.factor for solved in session.info.evidence.values()])
    return sum(leaf.size * leaf.dtype.itemsize for leaf in parts) / 2**20


def measure(arch: str, steps: int, rounds: int) -> dict:
    data, layers = ARCHITECTURES[arch]
    dataset = load_data(data)
    found, compile_seconds = sessions(data, layers, dataset)
    order = batches.permutation(found["rws"][0].key_order, 0, len(dataset.train))
    advance(found["rws"], order, 0, 500)
    trained = found["rws"][0].state.model
    for session, _ in found.values():
        session.state = session.state._replace(model=jax.tree.map(jnp.copy, trained))
    errors = {name: direction_error(found[name][0], order) for name in ("nrws_fresh", "nrws_frozen")}
    visible = jnp.asarray(dataset.train[:32].T, jnp.float32)
    products = compiled(floor.loop(10), trained, visible, 0, 1, steps=LONG)
    actions = {"floor": lambda: jax.block_until_ready(products(trained, visible, 0, steps))}
    actions |= {
        name: lambda pair=pair: advance(pair, order, 500, 500 + steps) for name, pair in found.items()
    }
    times = {name: [] for name in actions}
    for turn in range(rounds + 1):
        for name, action in actions.items():
            if turn:  # the first round warms up
                times[name].append(timed(action, steps))
            else:
                action()
    return summary(arch, times, compile_seconds) | {
        "direction_error": errors["nrws_fresh"],
        "frozen_direction_error": errors["nrws_frozen"],
        "frozen_direction_error_stale": direction_error(
            found["nrws_frozen"][0], order, found["nrws_fresh"][0]
        ),
        "metric_mb": metric_mb(found["nrws_fresh"][0]),
        "metric_frozen_mb": metric_mb(found["nrws_frozen"][0]),
        "steps": steps,
        "rounds": rounds,
    }


def median_ratio(times: dict, above: str, below: str, clock: int) -> float:
    """What one costs in terms of the other, in the same round; clock 0 is wall time, 1 CPU time."""
    return statistics.median(a[clock] / b[clock] for a, b in zip(times[above], times[below], strict=True))


def summary(arch: str, times: dict, compile_seconds: dict) -> dict:
    wall, cpu = (
        {name: statistics.median(pair[clock] for pair in pairs) for name, pairs in times.items()}
        for clock in (0, 1)
    )
    row = {"arch": arch, "floor_ms": wall["floor"], "rws_ms": wall["rws"]}
    for clock, suffix in enumerate(("", "_cpu")):
        row[f"rws_over_floor{suffix}"] = median_ratio(times, "rws", "floor", clock)
        for name in ("nrws_fresh", "nrws_frozen", "dnrws"):
            row[f"{name}_over_rws{suffix}"] = median_ratio(times, name, "rws", clock)
    row["rws_compile_seconds"], row["nrws_compile_seconds"] = (
        compile_seconds["rws"],
        compile_seconds["nrws_fresh"],
    )
    return row | {f"{name}_cpu_ms": value for name, value in cpu.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, default="mini")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    row = {
        k: round(v, 4) if isinstance(v, float) else v
        for k, v in measure(arguments.arch, arguments.steps, arguments.rounds).items()
    }
    print(
        json.dumps(row) if arguments.json else "\n".join(f"{name:24} {value}" for name, value in row.items())
    )


if __name__ == "__main__":
    run_benchmark(main)
