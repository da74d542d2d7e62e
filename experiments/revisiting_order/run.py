"""How much do different parts of an online training set decide the function that is learned?

    python -m experiments.revisiting_order.run [experiments/revisiting_order/config.toml]

The experiment of [revisiting sec. 6]. The rate of MSGD is the one of its list whose validation error is next
to that of natural gradient. Then each tenth of the first half is replaced by other images, several times; the
variance of the class probabilities on test images is a line of `<config>.jsonl`. Lines found there are kept.
"""

import argparse
import json
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import config
from natgrad.core import Pace
from natgrad.data import load
from natgrad.layers.task import Examples, TaskBatch
from natgrad.models.network import kind, methods
from natgrad.models.network.figures import misclassified
from natgrad.models.network.spec import Shape


class Images(NamedTuple):
    """Training images in the order in which they are seen, others to put in their place, held-out ones."""

    values: np.ndarray
    labels: np.ndarray
    sequence: np.ndarray
    others: np.ndarray
    valid: tuple[np.ndarray, np.ndarray]
    test: np.ndarray


def read(chosen: dict) -> Images:
    """The images of a config; `others` has a set for each repeat, none of them in the sequence."""
    found = load(chosen["data"], binarize="gray")
    assert found.labels is not None
    order = np.random.default_rng(chosen["seed"]).permutation(len(found.train))
    length = chosen["rows"] // 2 // chosen["segments"]
    spare = order[chosen["rows"] :][: chosen["repeats"] * length].reshape(chosen["repeats"], length)
    valid = (found.valid / np.float32(255), found.labels["valid"])
    sequence = order[: chosen["rows"]]
    return Images(found.train, found.labels["train"], sequence, spare, valid, found.test / np.float32(255))


def replaced(images: Images, segments: int, segment: int, repeat: int) -> np.ndarray:
    """The sequence with one tenth of its first half replaced."""
    length = len(images.sequence) // 2 // segments
    sequence = images.sequence.copy()
    sequence[segment * length : (segment + 1) * length] = images.others[repeat]
    return sequence


def trainer(chosen: dict, method: dict, images: Images) -> Callable[[np.ndarray], tuple]:
    """From a sequence to the class probabilities on test images and the validation error; compiled once."""
    size, steps = chosen["batch_size"], chosen["rows"] // chosen["batch_size"]
    settings = config.resolve({"model": "mlp", "layers": (chosen["hidden"],), "batch_size": size} | method)
    shape = Shape(visible=images.values.shape[1], outputs=int(images.labels.max()) + 1)
    task = kind.task_of(settings.model, shape)
    algorithm = methods.algorithm(settings, task, None, Pace(steps))
    key = jax.random.key(chosen["seed"])

    @jax.jit
    def train(sequence: jax.Array, images: Images) -> tuple[jax.Array, jax.Array]:
        def batch(places: jax.Array) -> TaskBatch:
            inputs = images.values[places].astype(jnp.float32) / 255
            return TaskBatch(Examples(inputs, images.labels[places].astype(jnp.int32)))

        portions = sequence[: steps * size].reshape(steps, size)
        state = algorithm.init(key, kind.fresh(key, settings, shape), batch(portions[0]))
        step = lambda state, at: (algorithm.step(key, state, batch(at))[0], None)  # noqa: E731
        model = jax.lax.scan(step, state, portions)[0].model
        wrong = misclassified(task.network(model, images.valid[0]), images.valid[1])
        return jax.nn.softmax(task.network(model, images.test)), wrong.mean()

    placed = jax.tree.map(jnp.asarray, images)
    return lambda sequence: tuple(map(np.asarray, train(jnp.asarray(sequence), placed)))


def nearest(chosen: dict, images: Images) -> dict[str, dict]:
    """Both methods with one rate: the first of natural gradient's, and the one of MSGD that matches it."""
    target, found = None, {}
    for name in ("natural", "msgd"):
        rates = chosen[name]["learning_rate"]
        settings = [chosen[name] | {"learning_rate": rate} for rate in rates]
        errors = [float(trainer(chosen, setting, images)(images.sequence)[1]) for setting in settings]
        print(name, dict(zip(rates, errors, strict=True)), flush=True)
        target = errors[0] if target is None else target
        best = int(np.argmin([abs(error - target) for error in errors]))
        found[name] = settings[best] | {"valid_error": errors[best]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, nargs="?", default=Path(__file__).with_name("config.toml"))
    path = parser.parse_args().config
    chosen = tomllib.loads(path.read_text())
    results, images = path.with_suffix(".jsonl"), read(chosen)
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {(line["method"], line["segment"]) for line in lines}
    for name, setting in nearest(chosen, images).items():
        error = setting.pop("valid_error")
        train = trainer(chosen, setting, images)
        for segment in (s for s in range(chosen["segments"]) if (name, s) not in done):
            began = time.perf_counter()
            ends = [
                train(replaced(images, chosen["segments"], segment, r))[0] for r in range(chosen["repeats"])
            ]
            line = {
                "method": name,
                "segment": segment,
                "rate": setting["learning_rate"],
                "valid_error": error,
            }
            line["variance"] = float(np.var(np.stack(ends), axis=0, ddof=1).mean())
            with results.open("a") as stream:
                stream.write(json.dumps(line | {"seconds": round(time.perf_counter() - began, 1)}) + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()
