"""Least squares by some of the rows: another subset for every step, drawn without replacement.

Gradient and metric are those of the subset; the loss, which decides whether a step is taken, is that of all
rows. A pass over all rows costs little where the system of all of them would cost much.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.core import Batch, Carry, Estimate, Metric, Model, Objective, Operator, stateless
from natgrad.errors import InputError
from natgrad.metrics.residuals import Residuals, Squares, batch_parts, half_square, residual_metric


class SomeRows(NamedTuple):
    """The rows of a step, and all of them."""

    drawn: Batch
    all_rows: Batch


def half_square_by_some(problem: Squares, residuals: Residuals, number: int) -> Objective:
    """The loss of all rows, with the gradient of about so many of them."""
    if not problem.by_row:
        raise InputError(
            "steps by some of the rows need rows that depend on their own part of a batch only, and a batch "
            "laid out as the residuals are; leave `rows` out, or give such a batch"
        )
    whole = half_square(problem)
    assert whole.revalue is not None
    value: Callable[[Model, Batch], Float[Array, ""]] = whole.revalue

    def estimate(key: PRNGKeyArray, model: Model, batch: Batch) -> Estimate:
        drawn = drawn_rows(key, residuals, model, batch, number)
        found, _ = whole.estimate(key, (), model, drawn)
        return found._replace(value=value(model, batch), samples=SomeRows(drawn, batch))

    return stateless(estimate, lambda model, samples: value(model, samples.all_rows))


def metric_by_some(problem: Squares) -> Metric:
    """The Gauss-Newton matrix of the rows of a step."""
    inner = residual_metric(problem)

    def measure(key: PRNGKeyArray, carry: Carry, model: Model, samples: SomeRows) -> tuple[Operator, Carry]:
        return inner.measure(key, carry, model, samples.drawn)

    return Metric(lambda key, model, samples: inner.init(key, model, samples.drawn), measure)


def drawn_rows(key: PRNGKeyArray, residuals: Residuals, model: Model, batch: Batch, number: int) -> Batch:
    """About so many rows: of every array of residuals the same share, at least one."""
    parts, structure = batch_parts(residuals, model, batch)
    sizes = [jax.tree.leaves(part)[0].shape[0] for part in parts]
    share = min(1.0, number / sum(sizes))

    def some(key: PRNGKeyArray, part: Batch, size: int) -> Batch:
        chosen = jax.random.permutation(key, size)[: max(1, round(share * size))]
        return jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=0), part)

    keys = jax.random.split(key, len(parts))
    return jax.tree.unflatten(structure, [some(*each) for each in zip(keys, parts, sizes, strict=True)])
