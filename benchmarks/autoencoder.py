"""An autoencoder of 8 layers by the blocks of its layers, against Adam, muon and momentum, at equal seconds.

    NATGRAD_DATA=... python -m benchmarks.autoencoder [--json] [--seconds 20] [--rows 10000] [--seed 0]

Fashion-MNIST, grey values as means of Bernoulli pixels; nats a row. Every optimizer has several rates and the
same CPU seconds of steps; compiling and evaluating is not counted, but the first step is shown. The best rate
of each is by the training loss at the end. It is a small version: the literature has more and wider layers.
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import optax

import natgrad.data
from natgrad.optax import (
    Options,
    constant,
    divergence_ball,
    factored_solve,
    kronecker_blocks,
    learning_rate,
    linked,
    natural_gradient,
    sigmoid,
)

SIZES = (784, 200, 100, 50, 10, 50, 100, 200, 784)
EVALUATED = 2000


def network(p, x):
    for layer in p[:-1]:
        x = jnp.tanh(x @ layer["weight"] + layer["bias"])
    return x @ p[-1]["weight"] + p[-1]["bias"]


def loss(p, x):
    return optax.sigmoid_binary_cross_entropy(network(p, x), x).sum(axis=1).mean()


def fresh(seed: int):
    keys = jax.random.split(jax.random.key(seed), len(SIZES))
    pairs = zip(keys, SIZES, SIZES[1:], strict=False)
    return [{"weight": jax.random.normal(k, (a, b)) / a**0.5, "bias": jnp.zeros(b)} for k, a, b in pairs]


def blocks(damping: float, radius: float, example, refresh: int = 20):
    """K-FAC with a little momentum; no step is longer than so many nats a row."""
    length = divergence_ball(radius, longest=learning_rate(0.1))
    options = Options(damping=constant(damping), refresh=refresh, length=length)
    metric, solver = kronecker_blocks(decay=0.8), factored_solve()
    parts = {"metric": metric, "solver": solver, "options": options, "example": example}
    return linked(natural_gradient(network, sigmoid(), **parts), optax.trace(0.5), optax.scale(-1.0))


def optimizers(example) -> dict:
    """By name, then by setting."""
    return {
        "adam": {f"{rate:g}": optax.adam(rate) for rate in (3e-4, 1e-3, 3e-3, 1e-2)},
        "muon": {f"{rate:g}": optax.contrib.muon(rate) for rate in (3e-3, 1e-2, 3e-2, 1e-1)},
        "momentum": {f"{rate:g}": optax.sgd(rate, 0.9) for rate in (1e-4, 3e-4, 1e-3)},
        "blocks": {
            f"damping {damping:g}, radius {radius:g}": blocks(damping, radius, example)
            for damping, radius in ((0.1, 0.03), (0.1, 0.1), (0.3, 0.1), (0.03, 0.03))
        },
    }


def train(optimizer, seed: int, rows, test, *, seconds: float, batch: int = 500) -> dict:
    optimizer = optax.with_extra_args_support(optimizer)

    @jax.jit
    def step(params, state, key):
        x = rows[jax.random.randint(key, (batch,), 0, rows.shape[0])]
        updates, state = optimizer.update(jax.grad(loss)(params, x), state, params, inputs=x)
        return optax.apply_updates(params, updates), state

    value, params = jax.jit(loss), fresh(seed)
    state, spent, steps, curve = optimizer.init(params), 0.0, 0, []
    began = time.process_time()
    jax.block_until_ready(step(params, state, jax.random.key(0)))
    first = time.process_time() - began
    while spent < seconds:
        began = time.process_time()
        for _ in range(20):
            steps += 1
            params, state = step(params, state, jax.random.fold_in(jax.random.key(seed), steps))
        jax.block_until_ready(params)
        spent += time.process_time() - began
        if len(curve) < 1 or spent >= curve[-1][0] + seconds / 8 or spent >= seconds:
            curve.append((round(spent, 2), steps, round(float(value(params, rows[:EVALUATED])), 3)))
    found = {"train": curve[-1][2], "test": round(float(value(params, test[:EVALUATED])), 3)}
    return found | {"steps": steps, "first_step_cpu_seconds": round(first, 1), "curve": curve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rows", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    data = natgrad.data.load("fashion-mnist", binarize="grey")
    order = jax.random.permutation(jax.random.key(1), len(data.train))[: given.rows]
    rows, test = jnp.asarray(data.train)[order] / data.levels, jnp.asarray(data.test) / data.levels
    found: dict = {"seconds": given.seconds, "rows": given.rows, "seed": given.seed, "sizes": SIZES}
    for name, settings in optimizers(rows[:1]).items():
        if given.only and name not in given.only:
            continue
        tried = {}
        for setting, optimizer in settings.items():
            tried[setting] = train(optimizer, given.seed, rows, test, seconds=given.seconds)
            if not given.json:
                print(f"{name:10} {setting:26} {tried[setting]}", flush=True)
        best = min(tried, key=lambda setting: tried[setting]["train"])
        found[name] = {
            "best": best,
            "train": tried[best]["train"],
            "test": tried[best]["test"],
            "tried": tried,
        }
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
