"""Covariances of the gradients of single rows, at the data's own targets: Le Roux's metric (TONGA).

    U = (1/n) sum_i g_i g_i^T                        uncentred, "empirical Fisher"   [revisiting eq. 13]
    C = U - g g^T,   g = (1/n) sum_i g_i             centred                         [revisiting eq. 12]

Neither is the Fisher metric: the targets are the data's, not the model's. Their rank is at most the
number of rows, so that with more parameters than rows they are best solved in sample space. With the
same damping both give the same direction, U's shorter by 1 + g^T (damping + C)^{-1} g.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from natgrad import tree
from natgrad.core import Model
from natgrad.layers.supervised import Rows, Task, check_outputs, check_parameters, loss
from natgrad.metrics.curvature import Metric, Operator, cut, needs_targets, of_scores, row_weights

Diagonal = Callable[[PRNGKeyArray, Task, Model, Rows], Model]


def uncentred_covariance(*, chunk: int | None = None) -> Metric:
    """U, the mean of g_i g_i^T [revisiting eq. 13]."""

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Rows) -> Operator:
        del key
        check_parameters(parameters)
        check_outputs(task, parameters, rows)
        targets = jax.tree.map(lambda leaf: leaf[:, None], needs_targets(rows, "covariance"))
        return of_scores(task, parameters, Rows(rows.inputs, targets), 1, chunk)

    return measure


def centred_covariance(*, chunk: int | None = None) -> Metric:
    """C, the covariance of the g_i [revisiting eq. 12]."""

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Rows) -> Operator:
        whole = uncentred_covariance(chunk=chunk)(key, task, parameters, rows)
        mean = _mean_gradient(task, parameters, rows, chunk)

        def mv(v: Model) -> Model:
            return tree.axpy(-tree.vdot(mean, v), mean, whole.mv(v))

        def matrix() -> Array:
            found = whole.rows()  # type: ignore[misc]
            return found - found.mean(axis=0)

        return Operator(mv, matrix, whole.samples)

    return measure


def squared_gradients(*, chunk: int = 8) -> Diagonal:
    """The diagonal of U, the mean of the rows' squared gradients; `chunk` of them in memory at a time."""

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Rows) -> Model:
        del key
        needs_targets(rows, "covariance")
        size = min(chunk, rows.number)

        def one(row: Rows) -> Model:
            single = jax.tree.map(lambda leaf: leaf[None], row)
            return jax.tree.map(jnp.square, jax.grad(lambda p: loss(task, p, single))(parameters))

        def add(total: Model, piece: tuple[Rows, Array]) -> tuple[Model, None]:
            squares = jax.vmap(one)(piece[0])
            summed = jax.tree.map(lambda leaf: jnp.einsum("r...,r->...", leaf, piece[1]), squares)
            return tree.add(total, summed), None

        weights = row_weights(rows.number, size, jax.tree.leaves(parameters)[0].dtype)
        return jax.lax.scan(add, tree.zeros(parameters), (cut(rows, size), weights))[0]

    return measure


def squared_sums(probes: int = 1) -> Diagonal:
    """An unbiased estimate of U's diagonal, (sum_i +-g_i)^2 / n with random signs [chapelle2011]."""

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Rows) -> Model:
        targets = needs_targets(rows, "covariance")
        root = jnp.sqrt(jnp.asarray(rows.number, jax.tree.leaves(parameters)[0].dtype))
        values, pull = jax.vjp(lambda p: task.law.log_prob(task.network(p, rows.inputs), targets), parameters)

        def one(k: PRNGKeyArray) -> Model:
            signs = jax.random.rademacher(k, values.shape, values.dtype)
            return jax.tree.map(jnp.square, pull(signs / root)[0])

        found = jax.lax.map(one, jax.random.split(key, probes))
        return jax.tree.map(lambda leaf: leaf.mean(axis=0), found)

    return measure


def _mean_gradient(task: Task, parameters: Model, rows: Rows, chunk: int | None) -> Model:
    if chunk is None or chunk >= rows.number:
        return jax.grad(lambda p: loss(task, p, rows))(parameters)

    def add(total: Model, piece: tuple[Rows, Array]) -> tuple[Model, None]:
        part, weights = piece
        value = lambda p: -weights @ task.law.log_prob(task.network(p, part.inputs), part.targets)  # noqa: E731
        return tree.add(total, jax.grad(value)(parameters)), None

    weights = row_weights(rows.number, chunk, jax.tree.leaves(parameters)[0].dtype)
    return jax.lax.scan(add, tree.zeros(parameters), (cut(rows, chunk), weights))[0]
