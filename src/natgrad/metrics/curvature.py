"""The metric of any network as an operator, by forward and reverse mode, never stored.

    G v = (1/n) sum_i J_i^T M_i J_i v,      J_i the Jacobian of row i's outputs    [revisiting eq. 8-11]

One forward-mode pass gives J v, the output distribution's M multiplies it row by row, one reverse-mode pass
brings it back; whatever is in the parameters is in the metric. Which matrix stands for M is chosen by name:
`fisher` (the distribution's own), `gauss_newton` (second derivative of the loss),
`monte_carlo_fisher` (sampled targets) and, in `metrics.empirical`, the data's targets. With `rows_at_once`,
only that many rows are in memory at a time, and every product repeats their forward pass.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.core import Carry, Metric, Model, Product
from natgrad.devices import by_own_rows, row_products
from natgrad.errors import InputError
from natgrad.layers.apart import check_apart
from natgrad.layers.outputs import Output
from natgrad.layers.task import Examples, Task, TaskBatch, check_outputs, check_parameters, task_loss
from natgrad.metrics.portions import over_portions, portions, summed
from natgrad.metrics.probing import mean_diagonal
from natgrad.tree import pytree, static

TaskMetric = Callable[[Task], Metric]


class Form(NamedTuple):
    """What a metric does to the outputs of some rows, given their data.

    Attributes:
        product: (outputs, data, v): M v, row by row.
        root: (outputs, data, w): S w with S S^T = M, from [row, rank] to outputs; None where there is none.
        rank: (outputs of all rows, data): how many columns S has for a row.
    """

    product: Callable[[Array, Any, Array], Array]
    root: Callable[[Array, Any, Array], Array] | None = None
    rank: Callable[[Array, Any], int] = lambda outputs, data: 0


@pytree
class Curvature:
    """(1/n) sum_i J_i^T M_i J_i at the parameters, for rows of inputs with the data that M needs."""

    parameters: Model
    inputs: Any
    data: Any
    task: Task = static()
    form: Form = static()
    rows_at_once: int | None = static(default=None)

    @property
    def rows(self) -> Examples:
        """The rows, with the form's data as their targets."""
        return Examples(self.inputs, self.data)

    def bind(self) -> Product:
        """Products with all rows linearized once, or with so many at a time."""
        if self.form.root is None:
            return Product(self._product())
        outputs = jax.eval_shape(self.task.network, self.parameters, self.inputs)
        rank = self.form.rank(outputs, self.data)
        shape = (self.rows.number * rank, rank)
        gram = lambda: row_products(self.factor_rows())  # noqa: E731
        return Product(self._product(), None, *self._factor(), gram, *shape, self.factor_rows)

    @property
    def like(self) -> Model:
        """The parameters."""
        return self.parameters

    def mean_diagonal(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """An unbiased estimate of trace / size."""
        return mean_diagonal(key, self._product(), self.parameters)

    def factor_rows(self) -> Float[Array, "sample parameter"]:
        """R as a matrix in the order of `ravel_pytree`, for small problems; a device makes its own rows."""
        check_apart(self.task.network, self.parameters, self.inputs)

        def made(parameters: Model, rows: Examples) -> Array:
            size = min(self.rows_at_once or rows.number, rows.number)
            found = jax.lax.map(lambda row: self._row(parameters, row), rows, batch_size=size)
            return found.reshape(-1, found.shape[-1])

        return by_own_rows(made, self.parameters, self.rows)

    def _product(self) -> Callable[[Model], Model]:
        def part(v: Model, piece: Examples, weights: Array) -> Model:
            outputs, push, pull = linearized(self.task, self.parameters, piece.inputs)
            multiplied = self.form.product(outputs, piece.targets, push(v))
            return pull(weights.reshape(-1, *[1] * (multiplied.ndim - 1)) * multiplied)

        number = self.rows.number
        if self.rows_at_once is not None and self.rows_at_once < number:
            return over_portions(part, self.parameters, self.rows, self.rows_at_once)
        outputs, push, pull = linearized(self.task, self.parameters, self.inputs)
        return lambda v: pull(self.form.product(outputs, self.data, push(v)) / number)

    def _factor(self) -> tuple[Callable[[Model], Array], Callable[[Array], Model]]:
        """R v and R^T w, with R_i = S_i^T J_i / sqrt n."""
        outputs, push, pull = linearized(self.task, self.parameters, self.inputs)
        rank = self.form.rank(outputs, self.data)
        number = self.rows.number
        root = lambda w: self.form.root(outputs, self.data, w)  # type: ignore[misc]  # noqa: E731
        like = jax.ShapeDtypeStruct((number, rank), outputs.dtype)
        scale = jnp.sqrt(jnp.asarray(number, outputs.dtype))
        down = lambda v: jax.linear_transpose(root, like)(push(v) / scale)[0].reshape(-1)  # noqa: E731
        return down, lambda w: pull(root(w.reshape(number, rank)) / scale)

    def _row(self, parameters: Model, row: Examples) -> Float[Array, "rank parameter"]:
        single = jax.tree.map(lambda leaf: leaf[None], row)
        outputs, pull = jax.vjp(lambda p: self.task.network(p, single.inputs), parameters)
        rank = self.form.rank(outputs, single.targets)
        basis = jnp.eye(rank, dtype=outputs.dtype)[:, None]
        root = lambda w: self.form.root(outputs, single.targets, w)  # type: ignore[misc]  # noqa: E731
        pulled = jax.vmap(lambda w: pull(root(w))[0])(basis)
        leaves = [leaf.reshape(rank, -1) for leaf in jax.tree.leaves(pulled)]
        return jnp.concatenate(leaves, axis=1) / jnp.sqrt(jnp.asarray(self.rows.number, outputs.dtype))


@pytree
class Hessian:
    """The second derivative of the loss at the parameters."""

    parameters: Model
    rows: Examples
    task: Task = static()
    rows_at_once: int | None = static(default=None)

    def bind(self) -> Product:
        """Products, with the gradient linearized once or with so many rows at a time."""
        return Product(self._product())

    @property
    def like(self) -> Model:
        """The parameters."""
        return self.parameters

    def mean_diagonal(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """An unbiased estimate of trace / size."""
        return mean_diagonal(key, self._product(), self.parameters)

    def _product(self) -> Callable[[Model], Model]:
        if self.rows_at_once is None or self.rows_at_once >= self.rows.number:
            return jax.linearize(jax.grad(lambda p: task_loss(self.task, p, self.rows)), self.parameters)[1]

        def part(v: Model, piece: Examples, weights: Array) -> Model:
            value = lambda p: summed(self.task, p, piece, weights)  # noqa: E731
            return jax.jvp(jax.grad(value), (self.parameters,), (v,))[1]

        return over_portions(part, self.parameters, self.rows, self.rows_at_once)


def fisher(*, rows_at_once: int | None = None) -> TaskMetric:
    """The Fisher metric of the output distribution [revisiting eq. 9-11]; needs no targets."""

    def of_task(task: Task) -> Metric:
        output = task.output
        form = _rooted(Form(lambda r, _, v: output.fisher(r, v)), output)
        return measuring(task, rows_at_once, lambda key, parameters, rows: ((), form))

    return of_task


def gauss_newton(*, rows_at_once: int | None = None) -> TaskMetric:
    """The extended Gauss-Newton matrix J^T H J, H = -d^2 log p / dr^2 at the targets [revisiting eq. 14].

    Where the outputs are natural parameters, H is the output's Fisher whatever the targets: so is its root.
    """

    def of_task(task: Task) -> Metric:
        def product(r: Array, t: Any, v: Array) -> Array:
            slope = jax.grad(lambda at: -task.output.log_prob(at, t).sum())
            return jax.jvp(slope, (r,), (v,))[1]

        form = _rooted(Form(product), task.output) if task.output.natural else Form(product)
        return measuring(
            task, rows_at_once, lambda key, parameters, rows: (needs_targets(rows, "Gauss-Newton"), form)
        )

    return of_task


def monte_carlo_fisher(samples: int = 1, *, rows_at_once: int | None = None) -> TaskMetric:
    """The mean over drawn targets of the scores' outer products: unbiased for `fisher`, of lower rank."""
    if samples < 1:
        raise InputError(f"a Monte Carlo metric needs at least one sample per row, got {samples}")

    def of_task(task: Task) -> Metric:
        form = of_scores(task, samples)

        def draw(key: PRNGKeyArray, parameters: Model, rows: Examples) -> tuple[Any, Form]:
            sample = task.output.sample
            if sample is None:
                raise InputError(
                    "a Monte Carlo metric needs a distribution with `sample`, got one without; use fisher"
                )
            outputs = jax.lax.stop_gradient(_outputs(task, parameters, rows.inputs, rows_at_once))
            keys = jax.random.split(key, samples)
            return jax.vmap(lambda k: sample(k, outputs), out_axes=1)(keys), form  # ~ p(t | r)

        return measuring(task, rows_at_once, draw)

    return of_task


def hessian(*, rows_at_once: int | None = None) -> TaskMetric:
    """The exact Hessian of the loss, for comparison: not a metric, it may have negative eigenvalues."""

    def of_task(task: Task) -> Metric:
        def measure(key: PRNGKeyArray, carry: Carry, model: Model, batch: TaskBatch) -> tuple[Hessian, Carry]:
            del key
            checked_outputs(task, model, batch.metric_rows, rows_at_once)
            needs_targets(batch.metric_rows, "Hessian")
            return Hessian(model, batch.metric_rows, task, rows_at_once), carry

        return Metric(lambda key, model, batch: (), measure)

    return of_task


def measuring(
    task: Task, rows_at_once: int | None, look: Callable[[PRNGKeyArray, Model, Examples], tuple[Any, Form]]
) -> Metric:
    """A metric on a batch's metric rows, from what gives their data and the form of M."""

    def measure(key: PRNGKeyArray, carry: Carry, model: Model, batch: TaskBatch) -> tuple[Curvature, Carry]:
        rows = batch.metric_rows
        checked_outputs(task, model, rows, rows_at_once)
        data, form = look(key, model, rows)
        return Curvature(model, rows.inputs, data, task, form, rows_at_once), carry

    return Metric(lambda key, model, batch: (), measure)


def of_scores(task: Task, samples: int) -> Form:
    """M = (1/samples) sum_k s_k s_k^T, s_k the score at target k of [row, sample, ...]."""

    def scores(r: Array, t: Any) -> Array:
        score = jax.grad(lambda at, target: task.output.log_prob(at, target).sum())
        return jax.vmap(score, (None, 1), 1)(r, t)

    def product(r: Array, t: Any, v: Array) -> Array:
        s = scores(r, t)
        return jnp.einsum("rk...,rk->r...", s, jnp.einsum("rk...,r...->rk", s, v)) / samples

    def root(r: Array, t: Any, w: Array) -> Array:
        return jnp.einsum("rk...,rk->r...", scores(r, t), w) / jnp.sqrt(jnp.asarray(samples, r.dtype))

    return Form(product, root, lambda r, t: samples)


def needs_targets(rows: Examples, name: str) -> Any:
    """The targets, or a sentence that says why the metric cannot do without."""
    if rows.targets is None:
        raise InputError(
            f"the {name} metric needs targets, but its rows are unlabeled; use fisher or monte_carlo_fisher"
        )
    return rows.targets


def checked_outputs(
    task: Task, parameters: Model, rows: Examples, rows_at_once: int | None
) -> jax.ShapeDtypeStruct:
    """The outputs' shape, of rows and parameters that a metric can be measured on."""
    if rows_at_once is not None and rows_at_once < 1:
        raise InputError(
            f"rows_at_once: expected at least one row, got {rows_at_once}; give None for all rows at once"
        )
    check_parameters(parameters)
    return check_outputs(task, parameters, rows)


def linearized(task: Task, parameters: Model, inputs: Any) -> tuple[Array, Callable, Callable]:
    """Outputs, J and J^T at the parameters, from one forward pass."""
    outputs, push = jax.linearize(lambda p: task.network(p, inputs), parameters)
    transposed = jax.linear_transpose(push, parameters)
    return outputs, push, lambda w: transposed(w)[0]


def _rooted(form: Form, output: Output) -> Form:
    """With the root of the output's Fisher, where it has one."""
    if (root := output.root) is None:
        return form
    return form._replace(
        root=lambda r, _, w: root(r, w.reshape(r.shape)), rank=lambda r, _: r.size // r.shape[0]
    )


def _outputs(task: Task, parameters: Model, inputs: Any, rows_at_once: int | None) -> Array:
    rows = Examples(inputs)
    if rows_at_once is None or rows_at_once >= rows.number:
        return task.network(parameters, inputs)
    outputs = jax.lax.map(lambda piece: task.network(parameters, piece), portions(rows, rows_at_once).inputs)
    return outputs.reshape(-1, *outputs.shape[2:])[: rows.number]
