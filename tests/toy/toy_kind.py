"""The same kind with JAX: the exact natural gradient of independent variables, with carried chains."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from toy_spec import Shape

from natgrad.core import Estimate, Kind, Metric, Objective, Panel, Problem, Sheet
from natgrad.data import batches
from natgrad.evaluate.held_out import binary_rows
from natgrad.metrics.layered import LayeredFisher
from natgrad.solvers.choice import always
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.units import per_layer
from natgrad.training.run import load
from natgrad.tree import pytree
from natgrad.updates.damping import constant
from natgrad.updates.descent import descent
from natgrad.updates.first_order import steepest
from natgrad.updates.natural import Options, natural
from natgrad.updates.parts import Block, Part, blockwise


@pytree
class Toy:
    """The logits of both halves."""

    left: jax.Array
    right: jax.Array


def logits(model):
    return jnp.concatenate([model.left, model.right])


def fresh(key, settings, shape):
    half = shape.visible // 2
    return Toy(0.1 * jax.random.normal(key, (half,)), jnp.zeros((shape.visible - half,)))


def loss(model, rows):
    """-log p of rows [row, visible], on average."""
    return (jax.nn.softplus(logits(model)) - rows * logits(model)).sum(axis=1).mean()


def objective(chains):
    def init(key, model, batch):
        return jnp.zeros((chains, batch.shape[1]), batch.dtype)

    def estimate(key, carry, model, batch):
        drawn = jax.random.bernoulli(key, jax.nn.sigmoid(logits(model)), carry.shape).astype(batch.dtype)
        flat = drawn.mean(axis=0) - batch.mean(axis=0)  # the difference of two phases
        half = model.left.size
        value = {"last_mean": carry.mean()}
        return Estimate(loss(model, batch), Toy(flat[:half], flat[half:]), batch, value), drawn

    return Objective(init, estimate, loss)


def metric(name):
    """p (1 - p): the exact Fisher of one half."""

    def measure(key, carry, model, samples):
        p = jax.nn.sigmoid(getattr(model, name))
        return LayeredFisher({name: p * (1 - p)}), carry

    return Metric(lambda key, model, samples: (), measure)


def algorithm(settings, stage, pace):
    def scale(steps):
        return Toy(-pace.cut * settings.rates.left, -pace.cut * settings.rates.right)

    solver = per_layer(always(diagonal()))
    options = Options(damping=constant(0.01))
    blocks = {
        name: Block(Part((name,)), natural(metric(name), solver, options)) for name in ("left", "right")
    }
    direction = blockwise(blocks) if settings.method == "natural" else steepest()
    return descent(objective(stage), direction, optax.identity(), scale=scale)


def problem(key, settings, dataset):
    def draw(key, rows, order, position):
        size = settings.training.batch_size
        return batches.take_batch(
            key, rows, jax.lax.dynamic_slice(order, (position * size,), (size,)), float
        ).T

    shape, seed = shape_of(settings, dataset), settings.data.split_seed
    held = {name: binary_rows(dataset, name, seed=seed).T for name in ("valid", "test")}
    return Problem(
        fresh=lambda key: fresh(key, settings, shape),
        rows=batches.on_device(dataset.train, dataset.levels, dataset.resample),
        number=len(dataset.train),
        draw=draw,
        stages=((0, settings.objective.chains),),
        algorithm=partial(algorithm, settings),
        rate=lambda pace: lambda steps: pace.cut * settings.rates.left,
        operations=lambda stage: 1000,
        ignorance=dataset.visible * float(np.log(2)),
        measure=lambda state: {f"{name}_loss": float(loss(state.used, rows)) for name, rows in held.items()},
        pictures=lambda state: {"chains": Sheet(np.asarray(state.objective)[:9], dataset.image_shape)},
    )


def shape_of(settings, dataset):
    return Shape(visible=dataset.visible)


def trained(settings, shape, model, carry):
    return {"means": np.asarray(jax.nn.sigmoid(logits(model))), "chains": carry}


def panels(run, dataset):
    return {"Means": Panel("The means of all variables.", {"means": Sheet(run.model["means"][None])})}


def evaluate(run: Path, *, rows: int = 0) -> dict:
    """The mean of the model's means."""
    return {"run": str(run), "mean": float(load(run).model["means"].mean()), "rows": rows}


def sample(run: Path, *, number: int = 2, seed: int = 0) -> dict:
    """Draw rows."""
    means = load(run).model["means"]
    drawn = np.random.default_rng(seed).random((number, len(means))) < means
    return {"run": str(run), "on": int(drawn.sum())}


def fisher(run: Path) -> dict:
    """The diagonal of the Fisher."""
    means = load(run).model["means"]
    return {
        "run": str(run),
        "layers": [{"variable": i, "fisher": float(p * (1 - p))} for i, p in enumerate(means)],
    }


KIND = Kind(shape_of, fresh, problem, trained, panels)
