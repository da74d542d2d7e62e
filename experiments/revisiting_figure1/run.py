"""The paths of four methods on an auto-encoder with one hidden unit [revisiting fig. 1].

python -m experiments.revisiting_figure1.run          writes config.jsonl (seconds)
python -m experiments.revisiting_figure1.figure       reads it, writes figure.png, brackets.png and table.md
"""

import functools
import json
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from natgrad.layers.outputs import Output, per_row
from natgrad.layers.task import Examples, Task, TaskBatch
from natgrad.metrics.curvature import fisher, hessian
from natgrad.metrics.empirical import centered_covariance
from natgrad.models.network import presets
from natgrad.solvers.whole import dense_solve
from natgrad.updates.damping import constant
from natgrad.updates.lengths import learning_rate
from natgrad.updates.natural import Options

HERE = Path(__file__).parent
POINTS = [(0, 0), (0, 1), (1, 0), (1, 1)]  # start and step of the natural path at which divergences are drawn
METRICS = {"hessian": hessian(), "fisher": fisher(), "covariance": centered_covariance()}

# The paper minimizes the squared error, without the half of -log p, and measures by E[J^T J], beta = 1.
SQUARED_ERROR = Output(lambda r, t: -per_row((t - r) ** 2), lambda r, v: v)


def autoencoder(sign: int):
    """Parameters (b, w) and inputs [row, 1] to reconstructions w sigmoid(w x + b) + sign b."""
    return lambda p, x: p[1] * jax.nn.sigmoid(p[1] * x + p[0]) + sign * p[0]


def method(task: Task, settings: dict):
    if "metric" not in settings:
        return presets.plain(task, optax.sgd(settings["rate"]))
    options = Options(damping=constant(settings["damping"]), length=learning_rate(settings["rate"]))
    return presets.truncated(task, METRICS[settings["metric"]], dense_solve(), options)


def path(algorithm, start: list[float], rows: Examples, steps: int) -> np.ndarray:
    """The parameters before and after every step, [step, (b, w)]."""
    batch, key, begin = TaskBatch(rows), jax.random.key(0), jnp.asarray(start)

    def step(state, _):
        state, _ = algorithm.step(key, state, batch)
        return state, state.model

    _, found = jax.jit(lambda p: jax.lax.scan(step, algorithm.init(key, p, batch), None, length=steps))(begin)
    return np.concatenate([begin[None], found])


def shorter(task: Task, methods: dict, rows: Examples, side: int) -> int:
    """Grid points in [-6, 6]^2 where the natural step is shorter than the gradient's, Newton's longer."""
    batch, key = TaskBatch(rows), jax.random.key(0)

    def length(algorithm, start):
        moved = algorithm.step(key, algorithm.init(key, start, batch), batch)[0].model
        return jnp.linalg.norm(moved - start)

    places = jnp.stack(jnp.meshgrid(*[jnp.linspace(-6, 6, side)] * 2), axis=-1).reshape(-1, 2)
    found = {
        name: jax.jit(jax.vmap(functools.partial(length, method(task, methods[name]))))(places)
        for name in ("natural", "gradient", "newton")
    }
    return int(((found["natural"] < found["gradient"]) & (found["gradient"] < found["newton"])).sum())


def inputs(plan: dict) -> np.ndarray:
    return np.random.default_rng(plan["seed"]).normal(size=(plan["inputs"], 1))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    plan = tomllib.loads((HERE / "config.toml").read_text())
    x = jnp.asarray(inputs(plan))
    with (HERE / "config.jsonl").open("w") as stream:
        for form, given in plan["form"].items():
            task, natural = Task(autoencoder(given["sign"]), SQUARED_ERROR), {}
            for name, settings in plan["method"].items():
                for number, start in enumerate(given["starts"]):
                    found = path(method(task, settings), start, Examples(x, x), plan["steps"])
                    row = {"form": form, "method": name, "start": number, "path": np.round(found, 6).tolist()}
                    stream.write(json.dumps(row) + "\n")
                    if name == "natural":
                        natural[number] = found
            for point, (number, step) in enumerate(POINTS, 1):
                moves = {
                    name: (
                        path(method(task, settings), natural[number][step], Examples(x, x), 1)[1]
                        - natural[number][step]
                    )
                    for name, settings in plan["method"].items()
                }
                steps = {name: np.round(move, 6).tolist() for name, move in moves.items()}
                row = {"form": form, "point": point, "at": [number, step], "steps": steps}
                stream.write(json.dumps(row) + "\n")
            for scale in plan["scales"]:
                count = shorter(task, plan["method"], Examples(scale * x, scale * x), plan["grid"])
                stream.write(json.dumps({"form": form, "scale": scale, "shorter": count}) + "\n")


if __name__ == "__main__":
    main()
