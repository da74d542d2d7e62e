"""Covariances of the gradients of single rows, at the data's own targets: Le Roux's metric (TONGA).

    U = (1/n) sum_i g_i g_i^T                        uncentered, "empirical Fisher"   [revisiting eq. 13]
    C = U - g g^T,   g = (1/n) sum_i g_i             centered                         [revisiting eq. 12]

Neither is the Fisher metric: the targets are the data's, not the model's. Their rank is at most the
number of rows, so that with more parameters than rows they are best solved in sample space. With the
same damping both give the same direction, U's shorter by 1 + g^T (damping + C)^{-1} g.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad import tree
from natgrad.core import Carry, Metric, Model, Operator, Product
from natgrad.layers.task import Examples, Task, TaskBatch, task_loss
from natgrad.metrics.curvature import (
    Curvature,
    Form,
    TaskMetric,
    checked_outputs,
    measuring,
    needs_targets,
    of_scores,
)
from natgrad.metrics.portions import portions, row_weights, summed
from natgrad.metrics.probing import mean_diagonal
from natgrad.tree import pytree

_Diagonal = Callable[[PRNGKeyArray, Task, Model, Examples], Model]


@pytree
class Centered:
    """C = U - g g^T, from U and the mean gradient."""

    whole: Curvature
    mean: Model

    def bind(self) -> Product:
        """Products; the rows of its factor are those of U less their mean."""
        inner = self.whole.bind()
        assert inner.push is not None
        assert inner.pull is not None
        assert inner.gram is not None
        push, pull, gram = inner.push, inner.pull, inner.gram
        mv = lambda v: tree.axpy(-tree.vdot(self.mean, v), self.mean, inner.mv(v))  # noqa: E731
        return Product(
            mv,
            None,
            lambda v: _less_mean(push(v)),
            lambda w: pull(_less_mean(w)),
            lambda: _less_mean(_less_mean(gram()).T),
            inner.samples,
            rows=self.factor_rows,
        )

    @property
    def like(self) -> Model:
        """The parameters."""
        return self.whole.parameters

    def mean_diagonal(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """An unbiased estimate of trace / size."""
        return mean_diagonal(key, self.bind().mv, self.like)

    def factor_rows(self) -> Float[Array, "sample parameter"]:
        """The factor as a matrix, for small problems."""
        return _less_mean(self.whole.factor_rows())


@pytree
class WithDiagonal:
    """Any operator, with a diagonal measured apart from it: for preconditioners."""

    operator: Operator
    diagonal: Model

    def bind(self) -> Product:
        """The operator's products."""
        return self.operator.bind()._replace(diagonal=lambda: self.diagonal)

    @property
    def like(self) -> Model:
        """The parameters."""
        return self.operator.like

    def mean_diagonal(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """The operator's."""
        return self.operator.mean_diagonal(key)


def uncentered_covariance(*, rows_at_once: int | None = None) -> TaskMetric:
    """U, the mean of g_i g_i^T [revisiting eq. 13]."""

    def of_task(task: Task) -> Metric:
        form = of_scores(task, 1)

        def look(key: PRNGKeyArray, parameters: Model, rows: Examples) -> tuple[Model, Form]:
            del key, parameters
            return jax.tree.map(lambda leaf: leaf[:, None], needs_targets(rows, "covariance")), form

        return measuring(task, rows_at_once, look)

    return of_task


def centered_covariance(*, rows_at_once: int | None = None) -> TaskMetric:
    """C, the covariance of the g_i [revisiting eq. 12]."""

    def of_task(task: Task) -> Metric:
        uncentered = uncentered_covariance(rows_at_once=rows_at_once)(task)

        def measure(
            key: PRNGKeyArray, carry: Carry, model: Model, batch: TaskBatch
        ) -> tuple[Centered, Carry]:
            whole, carry = uncentered.measure(key, carry, model, batch)
            return Centered(whole, _mean_gradient(task, model, batch.metric_rows, rows_at_once)), carry

        return Metric(uncentered.init, measure)

    return of_task


def with_diagonal(metric: TaskMetric, diagonal: _Diagonal) -> TaskMetric:
    """A metric whose operator also has a diagonal, which a solver may take as its preconditioner."""

    def of_task(task: Task) -> Metric:
        inner = metric(task)

        def measure(
            key: PRNGKeyArray, carry: Carry, model: Model, batch: TaskBatch
        ) -> tuple[WithDiagonal, Carry]:
            key_metric, key_diagonal = jax.random.split(key)
            operator, carry = inner.measure(key_metric, carry, model, batch)
            return WithDiagonal(operator, diagonal(key_diagonal, task, model, batch.metric_rows)), carry

        return Metric(inner.init, measure)

    return of_task


def squared_gradients(*, rows_at_once: int = 8) -> _Diagonal:
    """The diagonal of U, the mean of the rows' squared gradients; so many of them in memory at a time."""

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Examples) -> Model:
        del key
        needs_targets(rows, "covariance")
        size = min(rows_at_once, rows.number)

        def one(row: Examples) -> Model:
            single = jax.tree.map(lambda leaf: leaf[None], row)
            return jax.tree.map(jnp.square, jax.grad(lambda p: task_loss(task, p, single))(parameters))

        def add(total: Model, piece: tuple[Examples, Array]) -> tuple[Model, None]:
            squares = jax.vmap(one)(piece[0])
            summed = jax.tree.map(lambda leaf: jnp.einsum("r...,r->...", leaf, piece[1]), squares)
            return tree.add(total, summed), None

        weights = row_weights(rows.number, size, jax.tree.leaves(parameters)[0].dtype)
        return jax.lax.scan(add, tree.zeros(parameters), (portions(rows, size), weights))[0]

    return measure


def squared_sums(probes: int = 1) -> _Diagonal:
    """An unbiased estimate of U's diagonal, (sum_i +-g_i)^2 / n with random signs [chapelle2011]."""

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Examples) -> Model:
        targets = needs_targets(rows, "covariance")
        root = jnp.sqrt(jnp.asarray(rows.number, jax.tree.leaves(parameters)[0].dtype))
        values, pull = jax.vjp(
            lambda p: task.output.log_prob(task.network(p, rows.inputs), targets), parameters
        )

        def one(k: PRNGKeyArray) -> Model:
            signs = jax.random.rademacher(k, values.shape, values.dtype)
            return jax.tree.map(jnp.square, pull(signs / root)[0])

        found = jax.lax.map(one, jax.random.split(key, probes))
        return jax.tree.map(lambda leaf: leaf.mean(axis=0), found)

    return measure


def _mean_gradient(task: Task, parameters: Model, rows: Examples, rows_at_once: int | None) -> Model:
    checked_outputs(task, parameters, rows, rows_at_once)
    if rows_at_once is None or rows_at_once >= rows.number:
        return jax.grad(lambda p: task_loss(task, p, rows))(parameters)

    def add(total: Model, piece: tuple[Examples, Array]) -> tuple[Model, None]:
        return tree.add(total, jax.grad(lambda p: summed(task, p, *piece))(parameters)), None

    weights = row_weights(rows.number, rows_at_once, jax.tree.leaves(parameters)[0].dtype)
    return jax.lax.scan(add, tree.zeros(parameters), (portions(rows, rows_at_once), weights))[0]


def _less_mean(rows: Array) -> Array:
    return rows - rows.mean(axis=0)
