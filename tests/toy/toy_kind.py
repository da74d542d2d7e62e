"""The same kind with JAX: the exact natural gradient of independent variables, with carried chains."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from natgrad.core import Estimate, Kind, Metric, Objective, Panel, Problem, Sheet
from natgrad.data import batches
from natgrad.data.batches import binary_rows
from natgrad.metrics.layered import LayeredFisher
from natgrad.solvers.whole import dense_solve
from natgrad.training.run import load
from natgrad.tree import pytree
from natgrad.updates.descent import descent
from natgrad.updates.first_order import steepest
from natgrad.updates.natural import natural
from natgrad.updates.parts import Block, Part, blockwise


@pytree
class Toy:
    """The logits of both halves."""

    left: jax.Array
    right: jax.Array

    def logits(self):
        return jnp.concatenate([self.left, self.right])


def fresh(key, settings, shape):
    half = shape.visible // 2
    return Toy(0.1 * jax.random.normal(key, (half,)), jnp.zeros((shape.visible - half,)))


def loss(model, rows):
    """-log p of rows [visible, row], on average."""
    return jax.nn.softplus(model.logits()).sum() - (model.logits() @ rows).mean()


def objective(settings):
    def init(key, model, batch):
        return jnp.zeros((settings.objective.chains, len(batch)), batch.dtype)

    def estimate(key, carry, model, batch):
        drawn = jax.random.bernoulli(key, jax.nn.sigmoid(model.logits()), carry.shape).astype(batch.dtype)
        phases = drawn.mean(axis=0) - batch.mean(axis=1)
        gradient = jax.grad(lambda model: phases @ model.logits())(model)
        return Estimate(loss(model, batch), gradient, batch, {"last_mean": carry.mean()}), drawn

    return Objective(init, estimate, loss)


def metric(name):
    """p (1 - p): the exact Fisher of one half."""

    def measure(key, carry, model, samples):
        p = jax.nn.sigmoid(getattr(model, name))
        return LayeredFisher({name: p * (1 - p)}), carry

    return Metric(lambda key, model, samples: (), measure)


def algorithm(settings, stage, pace):
    scale = Toy(-pace.cut * settings.rates.left, -pace.cut * settings.rates.right)
    halves = {name: Block(Part((name,)), natural(metric(name), dense_solve())) for name in ("left", "right")}
    direction = blockwise(halves) if settings.method == "natural" else steepest()
    return descent(objective(settings), direction, optax.identity(), scale=lambda steps: scale)


def problem(key, settings, dataset):
    held = {name: binary_rows(dataset, name, seed=settings.data.split_seed) for name in ("valid", "test")}
    return Problem(
        rows=batches.rows_of(dataset),
        number=len(dataset.train),
        draw=batches.in_order(settings.training.batch_size),
        algorithm=partial(algorithm, settings),
        rate=lambda pace: lambda steps: pace.cut * settings.rates.left,
        measure=lambda state: {f"{name}_loss": float(loss(state.used, rows)) for name, rows in held.items()},
        pictures=lambda state: {"chains": Sheet(np.asarray(state.objective)[:9], dataset.image_shape)},
    )


def trained(settings, shape, model, carry):
    return {"means": np.asarray(jax.nn.sigmoid(model.logits())), "chains": carry}


def panels(run, dataset):
    return {"Means": Panel("The means of all variables.", {"means": Sheet(run.model["means"][None])})}


def evaluate(run: Path, *, rows: int = 0) -> dict:
    """The mean of the model's means."""
    return {"run": str(run), "mean": float(load(run).model["means"].mean()), "rows": rows}


def sample(run: Path, *, number: int = 2, seed: int = 0) -> dict:
    """Draw rows."""
    means = load(run).model["means"]
    return {"run": str(run), "on": int(np.random.default_rng(seed).binomial(number, means).sum())}


def fisher(run: Path) -> dict:
    """The diagonal of the Fisher."""
    means = load(run).model["means"]
    return {"run": str(run), "fisher": (means * (1 - means)).tolist()}


KIND = Kind(fresh, problem, trained, panels)
