"""Train on 3by3 with many seeds at once and record the exact KL(data || model) of each.

python -m experiments.nrws_3by3.run          writes config.jsonl
python -m experiments.nrws_3by3.figure       reads it, writes figure.png and table.md
"""

import json
import time
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.grid import trials
from natgrad import config
from natgrad.data import load
from natgrad.layers import generator
from natgrad.models.helmholtz import exact
from natgrad.models.helmholtz import methods as registry

HERE = Path(__file__).parent


def curves(settings: config.Config, seeds: int, steps: int, every: int) -> np.ndarray:
    """Exact KLs, [seed, evaluation]; batches drawn from the exact law."""
    law = load("3by3").law
    patterns, chances = jnp.asarray(law.patterns), jnp.log(jnp.asarray(law.probabilities))
    method = registry.algorithm(settings, steps)
    coding, rows = registry.CODINGS[settings.model.coding], settings.training.batch_size

    def step(state, key):
        key_rows, key_step = jax.random.split(key)
        chosen = patterns[jax.random.categorical(key_rows, chances, shape=(rows,))].T
        return method.step(key_step, state, coding.value(chosen))[0], None

    def stretch(state, key):
        state, _ = jax.lax.scan(step, state, jax.random.split(key, every))
        return state, exact.divergence(state.model, patterns, law.probabilities)

    def train(seed):
        key_model, key_state, key_run = jax.random.split(
            jax.random.fold_in(generator.key(settings.seed), seed), 3
        )
        model = registry.model(key_model, settings.model, patterns.shape[1])
        state = method.init(key_state, model, jax.ShapeDtypeStruct((patterns.shape[1], rows), jnp.float32))
        start = exact.divergence(model, patterns, law.probabilities)
        _, found = jax.lax.scan(stretch, state, jax.random.split(key_run, steps // every))
        return jnp.concatenate([start[None], found])

    return np.asarray(jax.jit(jax.vmap(train))(jnp.arange(seeds)))


def main() -> None:
    plan = tomllib.loads((HERE / "config.toml").read_text())
    with (HERE / "config.jsonl").open("w") as stream:
        for trial in trials({"base": plan["base"], "variant": plan["variant"], "seeds": [0]}):
            began = time.perf_counter()
            found = curves(config.resolve(trial["settings"]), plan["seeds"], plan["steps"], plan["every"])
            row = trial | {"every": plan["every"], "kl": np.round(found, 5).tolist()}
            stream.write(json.dumps(row) + "\n")
            final = np.median(found[:, -1])
            print(
                f"{final:.4f}  {time.perf_counter() - began:6.1f} s  {trial['variant']} {trial['settings']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
