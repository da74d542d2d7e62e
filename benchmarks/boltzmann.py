"""What a step of a restricted Boltzmann machine costs: in one process, interleaved, as ratios.

    NATGRAD_DATA=... python -m benchmarks.boltzmann [--hidden 500] [--rounds 9] [--json]

The floor is the five matrix products of a step of persistent contrastive divergence and nothing else: hidden
units of the rows, both halves of a turn of the chains, and the gradient's two phases. scikit-learn's
BernoulliRBM makes the same steps on the same rows (`partial_fit`, batches of 100, no monitoring).
Last, log Z by 100 chains and 10,000 temperatures of annealing, forward, beside the two products of each.
"""

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.neural_network import BernoulliRBM

from benchmarks import run_benchmark
from benchmarks.step import advance, median_ratio, timed
from natgrad import config
from natgrad.data import batches
from natgrad.data import load as load_data
from natgrad.layers import generator
from natgrad.models.rbm.annealed import anneal, equally_spaced
from natgrad.training.compile import LONG, compiled
from natgrad.training.session import Session

BATCH = 100
REST = 0.3  # seconds before each: threads of NumPy's products wait awake for more of them
METHODS = {
    "plain": {"method": "plain", "centering": False},
    "centered": {"method": "plain", "centering": True},
    "natural": {"method": "natural"},
    "natural_kept": {"method": "natural", "refresh": 10},
}


def products(weight, rows, start, stop):
    """The products of so many steps, each depending on the one before."""

    def body(turn, carry):
        del turn
        weight, hidden = carry
        data = weight @ rows
        visible = weight.T @ hidden
        fantasy = weight @ visible
        moved = data @ rows.T - fantasy @ visible.T
        return weight - 1e-12 * moved, fantasy * 1e-6

    return jax.lax.fori_loop(start, stop, body, (weight, weight @ rows))


def sessions(data: str, hidden: int, dataset) -> dict:
    """A compiled session per method."""
    found = {}
    for name, settings in METHODS.items():
        common = {"model": "rbm", "data": data, "hidden": hidden, "negative": "pcd", "batch_size": BATCH}
        resolved = config.resolve(common | {"epochs": LONG, "learning_rate": 0.01} | settings)
        session = Session.begin(resolved, dataset)
        found[name] = (session, session._compile())
    return found


def measure(data: str, hidden: int, steps: int, rounds: int) -> dict:
    dataset = load_data(data)
    found = sessions(data, hidden, dataset)
    order = batches.permutation(found["plain"][0].key_order, 0, len(dataset.train))
    rows = jnp.asarray(dataset.train[:BATCH].T, jnp.float32)
    weight = jnp.asarray(np.random.default_rng(0).normal(0, 0.01, (hidden, dataset.visible)), jnp.float32)
    floor = compiled(products, weight, rows, 0, 1, steps=LONG)
    table = np.asarray(dataset.train[: BATCH * steps], np.float32)
    peer = BernoulliRBM(hidden, learning_rate=0.01, batch_size=BATCH, random_state=0)

    def peer_steps() -> None:
        for at in range(0, len(table), BATCH):
            peer.partial_fit(table[at : at + BATCH])

    actions = {"floor": lambda: jax.block_until_ready(floor(weight, rows, 0, steps)), "sklearn": peer_steps}
    actions |= {name: lambda pair=pair: advance(pair, order, 0, steps) for name, pair in found.items()}
    times = {name: [] for name in actions}
    for turn in range(rounds + 1):
        for name, action in actions.items():
            time.sleep(REST)
            spent = timed(action, steps)
            if turn:  # the first round warms up
                times[name].append(spent)
    row = summary(times) | annealing(found["plain"][0].state.model)
    return row | {"data": data, "hidden": hidden, "steps": steps, "rounds": rounds}


def annealing(model, chains: int = 100, temperatures: int = 10_000) -> dict:
    """The seconds of a forward estimate of log Z, compiled before, and those of its products alone."""
    weight, base = model.weight, model.visible_bias
    back = jnp.array(weight.T)
    alone = jax.jit(
        lambda visible: jax.lax.fori_loop(
            0, temperatures, lambda turn, v: 1e-3 * (back @ (weight @ v)), visible
        )
    )
    ones = jnp.ones((base.size, chains), weight.dtype)
    actions = {
        "annealing_seconds": lambda: anneal(
            generator.key(0), model, base, equally_spaced(temperatures, model), chains=chains
        ),
        "annealing_floor_seconds": lambda: jax.block_until_ready(alone(ones)),
    }
    row = {}
    for name, action in actions.items():
        action()
        began = time.perf_counter()
        action()
        row[name] = round(time.perf_counter() - began, 2)
    return row | {"annealing_over_floor": round(row["annealing_seconds"] / row["annealing_floor_seconds"], 4)}


def summary(times: dict) -> dict:
    row = {f"{name}_ms": statistics.median(pair[0] for pair in pairs) for name, pairs in times.items()}
    ratios = [("plain", "floor"), ("centered", "plain"), ("natural", "plain"), ("natural_kept", "plain")]
    for above, below in [*ratios, ("sklearn", "plain")]:
        for clock, suffix in enumerate(("", "_cpu")):
            row[f"{above}_over_{below}{suffix}"] = median_ratio(times, above, below, clock)
    return {name: round(value, 4) for name, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="binarized-mnist")
    parser.add_argument("--hidden", type=int, default=500)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    row = measure(given.data, given.hidden, given.steps, given.rounds)
    print(json.dumps(row) if given.json else "\n".join(f"{name:24} {value}" for name, value in row.items()))


if __name__ == "__main__":
    run_benchmark(main)
