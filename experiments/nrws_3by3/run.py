"""Train on 3by3 with many seeds at once and record the exact KL(data || model) of each.

python -m experiments.nrws_3by3.run          writes config.jsonl
python -m experiments.nrws_3by3.figure       reads it, writes figure.png and table.md
"""

import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import config
from natgrad.core import Pace
from natgrad.data import load
from natgrad.layers import generator
from natgrad.layers.bernoulli import CODINGS
from natgrad.models.helmholtz import exact, kind, methods
from natgrad.models.registry import Shape
from natgrad.sweep import plan as plans

HERE = Path(__file__).parent
STEPS, EVERY = 20_000, 250


def curves(settings: config.RunSettings, seeds: tuple[int, ...]) -> np.ndarray:
    """Exact KLs, [seed, evaluation]; batches drawn from the exact distribution."""
    distribution = load("3by3").distribution
    patterns, chances = jnp.asarray(distribution.patterns), jnp.log(jnp.asarray(distribution.probabilities))
    method = methods.algorithm(settings, settings.objective.samples, Pace(STEPS))
    coding, rows = CODINGS[settings.model.coding], settings.training.batch_size

    def step(state, key):
        key_rows, key_step = jax.random.split(key)
        chosen = patterns[jax.random.categorical(key_rows, chances, shape=(rows,))].T
        return method.step(key_step, state, coding.value(chosen))[0], None

    def stretch(state, key):
        state, _ = jax.lax.scan(step, state, jax.random.split(key, EVERY))
        return state, exact.data_divergence(state.model, patterns, distribution.probabilities)

    def train(seed):
        key_model, key_state, key_run = jax.random.split(
            jax.random.fold_in(generator.key(settings.seed), seed), 3
        )
        model = kind.fresh(key_model, settings, Shape(visible=patterns.shape[1]))
        state = method.init(key_state, model, jax.ShapeDtypeStruct((patterns.shape[1], rows), jnp.float32))
        start = exact.data_divergence(model, patterns, distribution.probabilities)
        _, found = jax.lax.scan(stretch, state, jax.random.split(key_run, STEPS // EVERY))
        return jnp.concatenate([start[None], found])

    return np.asarray(jax.jit(jax.vmap(train))(jnp.asarray(seeds)))


def main() -> None:
    plan = plans.read_plan(HERE / "config.toml", {})
    with (HERE / "config.jsonl").open("w") as stream:
        for variant, setting, seeds in plan.candidates:
            began = time.perf_counter()
            found = curves(plans.resolved(setting, 0), seeds)
            row = {"variant": variant, "settings": setting, "every": EVERY, "kl": np.round(found, 5).tolist()}
            stream.write(json.dumps(row) + "\n")
            final = np.median(found[:, -1])
            print(f"{final:.4f}  {time.perf_counter() - began:6.1f} s  {variant} {setting}", flush=True)


if __name__ == "__main__":
    main()
