"""What a step with the blocks of layers costs, against a step of Adam, on a small convolutional network.

    python -m benchmarks.blocks [--json] [--rows 128] [--refresh 20] [--rounds 7]

A turn is as many steps as the blocks serve: one of them measures and inverts. Both optimizers take turns, on
the same rows, compiled once each; medians over rounds, and the ratio of each round.
"""

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
import optax

from natgrad.optax import layer_report, layerwise_gradient, linked, softmax


def network(p, x):
    for name in ("first", "second"):
        axes = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, p[name]["filters"], (1, 1), "SAME", dimension_numbers=axes)
        x = jax.nn.relu(x + p[name]["bias"])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p["hidden"]["weight"] + p["hidden"]["bias"])
    return x @ p["last"]["weight"] + p["last"]["bias"]


def fresh(filters: tuple[int, int] = (8, 16), hidden: int = 64, seed: int = 0):
    sizes = {
        "first": ("filters", (3, 3, 1, filters[0])),
        "second": ("filters", (3, 3, filters[0], filters[1])),
        "hidden": ("weight", (49 * filters[1], hidden)),
        "last": ("weight", (hidden, 10)),
    }
    keys = jax.random.split(jax.random.key(seed), len(sizes))
    found = {}
    for key, (name, (kind, shape)) in zip(keys, sizes.items(), strict=True):
        scale = (shape[-1] / jnp.prod(jnp.asarray(shape))) ** 0.5
        found[name] = {kind: scale * jax.random.normal(key, shape), "bias": jnp.zeros(shape[-1])}
    return found


def measure(rows: int, refresh: int, rounds: int, filters: tuple[int, int], hidden: int) -> dict:
    params = fresh(filters, hidden)
    x = jax.random.uniform(jax.random.key(1), (rows, 28, 28, 1))
    y = jax.random.randint(jax.random.key(2), (rows,), 0, 10)
    loss = lambda p: optax.softmax_cross_entropy_with_integer_labels(network(p, x), y).mean()  # noqa: E731
    blocks = layerwise_gradient(network, softmax(), x, damping=1e-2, refresh=refresh)
    optimizers = {
        "adam": optax.with_extra_args_support(optax.adam(1e-3)),
        "blocks": linked(blocks, optax.scale(-1e-3)),
    }
    turns = {name: turn(optimizer, loss, params, x, refresh) for name, optimizer in optimizers.items()}
    first = {name: timed(action)[1] for name, action in turns.items()}
    times = {name: [] for name in turns}
    for _ in range(rounds):
        for name, action in turns.items():
            times[name].append(timed(action))
    found = {}
    for index, kind in enumerate(("wall", "cpu")):
        for name, pairs in times.items():
            found[f"{name}_{kind}_ms"] = 1e3 * statistics.median(pair[index] for pair in pairs) / refresh
        ratios = [b[index] / a[index] for a, b in zip(times["adam"], times["blocks"], strict=True)]
        found[f"ratio_{kind}"] = statistics.median(ratios)
    about = {"rows": rows, "refresh": refresh, "rounds": rounds, "layers": layer_report(network, params, x)}
    return found | {f"{name}_first_turn_cpu_seconds": value for name, value in first.items()} | about


def turn(optimizer, loss, params, x, steps: int):
    """So many steps, each an own call of one compiled step."""

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params, inputs=x)
        return optax.apply_updates(params, updates), state

    start = params, optimizer.init(params)

    def action() -> None:
        now = start
        for _ in range(steps):
            now = step(*now)
        jax.block_until_ready(now)

    return action


def timed(action) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--refresh", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--filters", default="8,16")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    first, second = (int(size) for size in given.filters.split(","))
    row = measure(given.rows, given.refresh, given.rounds, (first, second), given.hidden)
    row = {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}
    print(json.dumps(row) if given.json else "\n".join(f"{name:32} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
