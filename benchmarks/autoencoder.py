"""An autoencoder of 8 layers by the blocks of its layers, against Adam, muon and momentum, at equal seconds.

    NATGRAD_DATA=... taskset -c 0 python -m benchmarks.autoencoder [--seconds 20] [--seeds 3]
    python -m benchmarks.autoencoder --page

Fashion-MNIST, gray values as means of Bernoulli pixels; nats a row. It is a small version: the literature has
more and wider layers. Every optimizer has five settings and the same CPU seconds of steps; compiling and
evaluating are not counted, but the first step is told. Seed 0, which is not reported, decides each
optimizer's setting by the loss of the training rows at the end. Trials are added to
benchmarks/results/autoencoder.jsonl as they end, so that a record is completed by the same command; `--page`
writes the table into docs/networks.md.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

import natgrad.data
from benchmarks import run_benchmark
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
ROWS, EVALUATED, BATCH, LOOKS, TOGETHER = 10_000, 2000, 500, 20, 20
RECORD, PAGE = Path("benchmarks/results/autoencoder.jsonl"), Path("docs/networks.md")
BEGIN, END = (
    "<!-- measured: python -m benchmarks.autoencoder --page -->\n",
    "<!-- end of the measured table -->\n",
)
DAMPING = 0.03
Trial = dict[str, Any]


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


def blocks(radius: float):
    """K-FAC with a little momentum, renewed every 20 steps; no step is longer than so many nats a row."""
    length = divergence_ball(radius, longest=learning_rate(0.1))
    options = Options(damping=constant(DAMPING), refresh=20, length=length)
    parts = {"metric": kronecker_blocks(decay=0.8), "solver": factored_solve(), "options": options}
    measured = natural_gradient(network, sigmoid(), **parts, example=jnp.zeros((1, SIZES[0])))
    return linked(measured, optax.trace(0.5), optax.scale(-1.0))


OPTIMIZERS = {
    "blocks": (blocks, (0.003, 0.01, 0.03, 0.1, 0.3)),
    "muon": (optax.contrib.muon, (0.003, 0.01, 0.03, 0.1, 0.3)),
    "adam": (optax.adam, (0.0003, 0.001, 0.003, 0.01, 0.03)),
    "momentum": (lambda rate: optax.sgd(rate, 0.9), (0.0001, 0.0003, 0.001, 0.003, 0.01)),
}


def train(optimizer, seed: int, rows, test, seconds: float) -> Trial:
    """What is seen on the way, and the CPU seconds of the first step."""
    optimizer = optax.with_extra_args_support(optimizer)

    @jax.jit
    def step(params, state, key):
        x = rows[jax.random.randint(key, (BATCH,), 0, rows.shape[0])]
        updates, state = optimizer.update(jax.grad(loss)(params, x), state, params, inputs=x)
        return optax.apply_updates(params, updates), state

    value, params = jax.jit(loss), fresh(seed)
    state, spent, steps, curve = optimizer.init(params), 0.0, 0, []
    began = time.process_time()
    jax.block_until_ready(step(params, state, jax.random.key(0)))
    first = time.process_time() - began
    while spent < seconds:
        began = time.process_time()
        for _ in range(TOGETHER):
            steps += 1
            params, state = step(params, state, jax.random.fold_in(jax.random.key(seed), steps))
        jax.block_until_ready(params)
        spent += time.process_time() - began
        if not curve or spent >= curve[-1]["seconds"] + seconds / LOOKS or spent >= seconds:
            seen = {"train": value(params, rows[:EVALUATED]), "test": value(params, test[:EVALUATED])}
            losses = {name: round(float(number), 3) for name, number in seen.items()}
            curve.append({"seconds": round(spent, 2), "steps": steps} | losses)
    return {"curve": curve, "first_step_cpu_seconds": round(first, 1)}


def trials() -> list[Trial]:
    return [json.loads(line) for line in RECORD.read_text("utf-8").splitlines()] if RECORD.exists() else []


def chosen(name: str) -> float:
    """The setting with the smallest loss of seed 0; one without a finite loss is never it."""
    first = [found for found in trials() if (found["optimizer"], found["seed"]) == (name, 0)]
    return min(first, key=lambda found: _end(found, "train"))["setting"]


def _end(found: Trial, key: str) -> float:
    value = found["curve"][-1][key]
    return value if value == value else float("inf")


def complete(seconds: float, seeds: int) -> None:
    data = natgrad.data.load("fashion-mnist", binarize="gray")
    order = jax.random.permutation(jax.random.key(1), len(data.train))[:ROWS]
    rows, test = jnp.asarray(data.train)[order] / data.levels, jnp.asarray(data.test) / data.levels
    for seed in range(seeds + 1):
        for name, (make, settings) in OPTIMIZERS.items():
            for setting in (chosen(name),) if seed else settings:
                known = {"optimizer": name, "setting": setting, "seed": seed, "cpu_seconds": seconds}
                if any(found.items() >= known.items() for found in trials()):
                    continue
                found = known | train(make(setting), seed, rows, test, seconds)
                with RECORD.open("a", encoding="utf-8") as record:
                    record.write(json.dumps(found) + "\n")
                print(known, found["curve"][-1], file=sys.stderr, flush=True)


def table(found: list[Trial]) -> str:
    """A line for every optimizer: losses at equal seconds, and after the steps that all of them made."""
    told = {name: [one for one in found if one["optimizer"] == name and one["seed"]] for name in OPTIMIZERS}
    told = {name: own for name, own in told.items() if own}
    fewest = min(one["curve"][-1]["steps"] for own in told.values() for one in own)
    heads = ("optimizer", "setting (tried)", "seeds", "steps", "train", "test", f"train after {fewest} steps")
    lines = [f"| {' | '.join((*heads, 'first step, CPU s'))} |", "|---" * (len(heads) + 1) + "|"]
    for name, own in sorted(told.items(), key=lambda pair: _mean(pair[1], "train")):
        tried = ", ".join(f"{value:g}" for value in OPTIMIZERS[name][1])
        early = [min(one["curve"], key=lambda seen: abs(seen["steps"] - fewest))["train"] for one in own]
        first = statistics.median(one["first_step_cpu_seconds"] for one in own)
        numbers = [f"{_mean(own, 'steps'):.0f}", _spread(own, "train"), _spread(own, "test")]
        said = [name, f"{own[0]['setting']:g} ({tried})", str(len(own)), *numbers]
        lines.append(f"| {' | '.join([*said, f'{statistics.fmean(early):.1f}', f'{first:.0f}'])} |")
    return "\n".join(lines) + "\n"


def _mean(own: list[Trial], key: str) -> float:
    return statistics.fmean(_end(one, key) for one in own)


def _spread(own: list[Trial], key: str) -> str:
    ends = ", ".join(f"{_end(one, key):.1f}" for one in own)
    return f"{_mean(own, key):.1f} ({ends})"


def write_page() -> None:
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(trials())}\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seeds", type=int, default=3, help="that are reported")
    parser.add_argument("--page", action="store_true", help="write the table from the record and end")
    given = parser.parse_args()
    if not given.page:
        complete(given.seconds, given.seeds)
    write_page()


if __name__ == "__main__":
    run_benchmark(main)
