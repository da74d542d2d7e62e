"""A small convolutional network by the blocks of its layers, against Adam, muon and momentum.

    NATGRAD_DATA=... taskset -c 0 python -m benchmarks.convnet [--seconds 20] [--seeds 3]
    python -m benchmarks.convnet --page

Fashion-MNIST, ten classes; nats a row. How optimizers are compared: `benchmarks.race`.
"""

import jax
import jax.numpy as jnp
import optax

import natgrad.data
from benchmarks import run_benchmark
from benchmarks.race import Race, bounded_blocks, run
from natgrad.layers.convolution import convolutional, fresh_convolutional
from natgrad.optax import softmax

FILTERS, SIZES, IMAGE = (8, 16), (64, 10), (1, 28, 28)
DAMPING = 0.03
network = convolutional()


def loss(p, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(network(p, x), y).mean()


def fresh(seed: int):
    return fresh_convolutional(jax.random.key(seed), IMAGE, FILTERS, SIZES)


def rows():
    data = natgrad.data.load("fashion-mnist", binarize="gray")
    order = jax.random.permutation(jax.random.key(1), len(data.train))
    images = lambda found: jnp.asarray(found).reshape(-1, *IMAGE) / data.levels  # noqa: E731
    train = images(data.train)[order], jnp.asarray(data.labels["train"], jnp.int32)[order]
    return train, (images(data.test), jnp.asarray(data.labels["test"], jnp.int32))


OPTIMIZERS = {
    "blocks": (
        bounded_blocks(network, softmax(), jnp.zeros((1, *IMAGE)), damping=DAMPING),
        (0.00003, 0.0001, 0.0003, 0.001, 0.003),
    ),
    "muon": (optax.contrib.muon, (0.001, 0.003, 0.01, 0.03, 0.1)),
    "adam": (optax.adam, (0.0003, 0.001, 0.003, 0.01, 0.03)),
    "momentum": (lambda rate: optax.sgd(rate, 0.9), (0.003, 0.01, 0.03, 0.1, 0.3)),
}
RACE = Race("convnet", 3, 128, fresh, loss, rows, OPTIMIZERS)


if __name__ == "__main__":
    run_benchmark(lambda: run(RACE, __doc__))
