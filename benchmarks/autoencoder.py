"""An autoencoder of 8 layers by the blocks of its layers, against Adam, muon and momentum, at equal seconds.

    NATGRAD_DATA=... taskset -c 0 python -m benchmarks.autoencoder [--seconds 20] [--seeds 3]
    python -m benchmarks.autoencoder --page

Fashion-MNIST, gray values as means of Bernoulli pixels; nats a row. It is a small version: the literature has
more and wider layers. How optimizers are compared: `benchmarks.race`.
"""

import jax
import jax.numpy as jnp
import optax

import natgrad.data
from benchmarks import run_benchmark
from benchmarks.race import Race, bounded_blocks, run
from natgrad.optax import sigmoid

SIZES = (784, 200, 100, 50, 10, 50, 100, 200, 784)
ROWS = 10_000
DAMPING = 0.03


def network(p, x):
    for layer in p[:-1]:
        x = jnp.tanh(x @ layer["weight"] + layer["bias"])
    return x @ p[-1]["weight"] + p[-1]["bias"]


def loss(p, x, y):
    return optax.sigmoid_binary_cross_entropy(network(p, x), y).sum(axis=1).mean()


def fresh(seed: int):
    keys = jax.random.split(jax.random.key(seed), len(SIZES))
    pairs = zip(keys, SIZES, SIZES[1:], strict=False)
    return [{"weight": jax.random.normal(k, (a, b)) / a**0.5, "bias": jnp.zeros(b)} for k, a, b in pairs]


def rows():
    data = natgrad.data.load("fashion-mnist", binarize="gray")
    order = jax.random.permutation(jax.random.key(1), len(data.train))[:ROWS]
    train, test = jnp.asarray(data.train)[order] / data.levels, jnp.asarray(data.test) / data.levels
    return (train, train), (test, test)


OPTIMIZERS = {
    "blocks": (
        bounded_blocks(network, sigmoid(), jnp.zeros((1, SIZES[0])), damping=DAMPING),
        (0.003, 0.01, 0.03, 0.1, 0.3),
    ),
    "muon": (optax.contrib.muon, (0.003, 0.01, 0.03, 0.1, 0.3)),
    "adam": (optax.adam, (0.0003, 0.001, 0.003, 0.01, 0.03)),
    "momentum": (lambda rate: optax.sgd(rate, 0.9), (0.0001, 0.0003, 0.001, 0.003, 0.01)),
}
RACE = Race("autoencoder", 1, 500, fresh, loss, rows, OPTIMIZERS)


if __name__ == "__main__":
    run_benchmark(lambda: run(RACE, __doc__))
