"""The metric of any network as an operator, by forward and reverse mode, never stored.

    G v = (1/n) sum_i J_i^T M_i J_i v,      J_i the Jacobian of row i's outputs    [revisiting eq. 8-11]

One forward-mode pass gives J v, the output law's M bends it row by row, one reverse-mode pass brings it
back; whatever is in the parameters is in the metric. Which matrix stands for M is the user's choice,
by name: `fisher` (the law's own), `gauss_newton` (second derivative of the loss), `monte_carlo_fisher`
(sampled targets) and, in `metrics.empirical`, the data's targets. With `chunk`, only that many rows
are in memory at a time, and every product computes their forward pass anew.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad import tree
from natgrad.core import Model
from natgrad.errors import InputError
from natgrad.layers.supervised import Rows, Task, check_outputs, check_parameters, loss

Bend = Callable[[Array, Any, Array], Array]
Spread = Callable[[Array, Any], Array]


class Operator(NamedTuple):
    """A symmetric map on the parameters, and where there is one its factor R, with F = R^T R.

    `rows` makes R as a matrix [sample, parameter], in the order of `jax.flatten_util.ravel_pytree`;
    `samples` says in advance how many rows it has.
    """

    mv: Callable[[Model], Model]
    rows: Callable[[], Float[Array, "sample parameter"]] | None = None
    samples: int | None = None


Metric = Callable[[PRNGKeyArray, Task, Model, Rows], Operator]


def fisher(*, chunk: int | None = None) -> Metric:
    """The Fisher metric of the output law [revisiting eq. 9-11]; needs no targets."""

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Rows) -> Operator:
        del key
        law, outputs = task.law, _checked(task, parameters, rows, chunk)
        mv = _pulled_back(task, parameters, rows.inputs, (lambda r, _, v: law.fisher(r, v), ()), chunk)
        if law.root is None:
            return Operator(mv)

        def spread(r: Array, _: Any) -> Array:
            basis = jnp.eye(r.size, dtype=r.dtype).reshape(r.size, 1, *r.shape)
            return jax.vmap(lambda w: law.root(r[None], w)[0])(basis)  # type: ignore[misc]

        return _with_rows(mv, task, parameters, (rows.inputs, ()), (spread, outputs.size), chunk)

    return measure


def gauss_newton(*, chunk: int | None = None) -> Metric:
    """The extended Gauss-Newton matrix J^T H J, H = -d^2 log p / dr^2 at the targets [revisiting eq. 14]."""

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Rows) -> Operator:
        del key
        _checked(task, parameters, rows, chunk)
        targets = needs_targets(rows, "Gauss-Newton")

        def bend(r: Array, t: Any, v: Array) -> Array:
            slope = jax.grad(lambda at: -task.law.log_prob(at, t).sum())
            return jax.jvp(slope, (r,), (v,))[1]

        return Operator(_pulled_back(task, parameters, rows.inputs, (bend, targets), chunk))

    return measure


def monte_carlo_fisher(samples: int = 1, *, chunk: int | None = None) -> Metric:
    """The mean over drawn targets of the scores' outer products: unbiased for `fisher`, of lower rank."""
    if samples < 1:
        raise InputError(f"a Monte Carlo metric needs at least one sample per row, got {samples}")

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Rows) -> Operator:
        _checked(task, parameters, rows, chunk)
        sample = task.law.sample
        if sample is None:
            raise InputError("a Monte Carlo metric needs a law with `sample`, got one without; use fisher")
        outputs = jax.lax.stop_gradient(_outputs(task, parameters, rows.inputs, chunk))
        drawn = jax.vmap(lambda k: sample(k, outputs), out_axes=1)(
            jax.random.split(key, samples)
        )  # ~ p(t | r)
        return of_scores(task, parameters, Rows(rows.inputs, drawn), samples, chunk)

    return measure


def hessian(*, chunk: int | None = None) -> Metric:
    """The exact Hessian of the loss, for comparison: not a metric, it may have negative eigenvalues."""

    def measure(key: PRNGKeyArray, task: Task, parameters: Model, rows: Rows) -> Operator:
        del key
        _checked(task, parameters, rows, chunk)
        needs_targets(rows, "Hessian")
        if chunk is None or chunk >= rows.number:
            return Operator(jax.linearize(jax.grad(lambda p: loss(task, p, rows)), parameters)[1])

        def part(v: Model, piece: Rows, weights: Array) -> Model:
            weighted = lambda p: -weights @ task.law.log_prob(task.network(p, piece.inputs), piece.targets)  # noqa: E731
            return jax.jvp(jax.grad(weighted), (parameters,), (v,))[1]

        return Operator(_over_chunks(part, parameters, rows, chunk))

    return measure


def of_scores(task: Task, parameters: Model, rows: Rows, samples: int, chunk: int | None) -> Operator:
    """The mean of g g^T over rows and their targets [row, sample, ...], g a log-probability's gradient."""

    def scores(r: Array, t: Any) -> Array:
        return jax.vmap(jax.grad(lambda at, target: task.law.log_prob(at, target).sum()), (None, 1), 1)(r, t)

    def bend(r: Array, t: Any, v: Array) -> Array:
        s = scores(r, t)
        return jnp.einsum("rk...,rk->r...", s, jnp.einsum("rk...,r...->rk", s, v)) / samples

    def spread(r: Array, t: Any) -> Array:
        one = jax.tree.map(lambda leaf: leaf[None], t)
        return scores(r[None], one)[0] / jnp.sqrt(jnp.asarray(samples, r.dtype))

    mv = _pulled_back(task, parameters, rows.inputs, (bend, rows.targets), chunk)
    return _with_rows(mv, task, parameters, rows, (spread, rows.number * samples), chunk)


def dense(operator: Operator, like: Model) -> Float[Array, "parameter parameter"]:
    """The operator as a matrix, in the order of `ravel_pytree`: a product per parameter, for small models."""
    flat, unravel = ravel_pytree(like)
    column = lambda v: ravel_pytree(operator.mv(unravel(v)))[0]  # noqa: E731
    return jax.vmap(column, out_axes=1)(jnp.eye(flat.size, dtype=flat.dtype))


def mean_diagonal(key: PRNGKeyArray, operator: Operator, like: Model) -> Float[Array, ""]:
    """An unbiased estimate of trace / size from one product with random signs."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    signs = [jax.random.rademacher(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    probe = jax.tree.unflatten(structure, signs)
    return tree.vdot(probe, operator.mv(probe)) / sum(leaf.size for leaf in leaves)


def needs_targets(rows: Rows, name: str) -> Any:
    """The targets, or a sentence that says why the metric cannot do without."""
    if rows.targets is None:
        raise InputError(
            f"the {name} metric needs targets, but its rows are unlabelled; use fisher or monte_carlo_fisher"
        )
    return rows.targets


def _checked(task: Task, parameters: Model, rows: Rows, chunk: int | None) -> jax.ShapeDtypeStruct:
    if chunk is not None and chunk < 1:
        raise InputError(f"a chunk needs at least one row, got {chunk}; give None for all rows at once")
    check_parameters(parameters)
    return check_outputs(task, parameters, rows)


def _pulled_back(
    task: Task, parameters: Model, inputs: Any, inner: tuple[Bend, Any], chunk: int | None
) -> Callable[[Model], Model]:
    """v -> (1/n) sum_i J_i^T bend_i(J_i v); the forward pass is made once where all rows fit."""
    bend, data = inner
    rows = Rows(inputs, data)

    def part(v: Model, piece: Rows, weights: Array) -> Model:
        outputs, push, pull = _linear(task, parameters, piece.inputs)
        bent = bend(outputs, piece.targets, push(v))
        return pull(weights.reshape(-1, *[1] * (bent.ndim - 1)) * bent)

    if chunk is not None and chunk < rows.number:
        return _over_chunks(part, parameters, rows, chunk)
    outputs, push, pull = _linear(task, parameters, inputs)
    return lambda v: pull(bend(outputs, data, push(v)) / rows.number)


def _linear(task: Task, parameters: Model, inputs: Any) -> tuple[Array, Callable, Callable]:
    """Outputs, J and J^T at the parameters, from one forward pass."""
    outputs, push = jax.linearize(lambda p: task.network(p, inputs), parameters)
    transposed = jax.linear_transpose(push, parameters)
    return outputs, push, lambda w: transposed(w)[0]


def _over_chunks(
    part: Callable[[Model, Rows, Array], Model], parameters: Model, rows: Rows, chunk: int
) -> Callable[[Model], Model]:
    pieces, weights = cut(rows, chunk), row_weights(rows.number, chunk, jax.tree.leaves(parameters)[0].dtype)

    def mv(v: Model) -> Model:
        add = lambda total, piece: (tree.add(total, part(v, *piece)), None)  # noqa: E731
        return jax.lax.scan(add, tree.zeros(v), (pieces, weights))[0]

    return mv


def cut(rows: Rows, chunk: int) -> Rows:
    """Rows as [piece, chunk, ...]; the last piece is filled with rows from the start, for weight zero."""
    pieces = -(-rows.number // chunk)

    def split(leaf: Array) -> Array:
        filled = leaf if pieces * chunk == rows.number else leaf[jnp.arange(pieces * chunk) % rows.number]
        return filled.reshape(pieces, chunk, *leaf.shape[1:])

    return jax.tree.map(split, rows)


def row_weights(count: int, chunk: int, dtype: Any) -> Float[Array, "piece chunk"]:
    """1/n for every row, 0 for those that only fill the last piece."""
    pieces = -(-count // chunk)
    return (jnp.arange(pieces * chunk) < count).astype(dtype).reshape(pieces, chunk) / count


def _outputs(task: Task, parameters: Model, inputs: Any, chunk: int | None) -> Array:
    rows = Rows(inputs)
    if chunk is None or chunk >= rows.number:
        return task.network(parameters, inputs)
    outputs = jax.lax.map(lambda piece: task.network(parameters, piece), cut(rows, chunk).inputs)
    return outputs.reshape(-1, *outputs.shape[2:])[: rows.number]


def _with_rows(
    mv: Callable, task: Task, parameters: Model, data: Any, factor: tuple[Spread, int], chunk: int | None
) -> Operator:
    """The operator with its factor: `spread` gives the columns of a row's root of M, [rank, output...]."""
    spread, samples = factor
    rows = Rows(*data)

    def one(row: Rows) -> Array:
        single = jax.tree.map(lambda leaf: leaf[None], row.inputs)
        outputs, pull = jax.vjp(lambda p: task.network(p, single)[0], parameters)
        pulled = jax.vmap(lambda w: pull(w)[0])(spread(outputs, row.targets))
        leaves = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(pulled)]
        return jnp.concatenate(leaves, axis=1) / jnp.sqrt(jnp.asarray(rows.number, outputs.dtype))

    def matrix() -> Array:
        found = jax.lax.map(one, rows, batch_size=min(chunk or rows.number, rows.number))
        return found.reshape(-1, found.shape[-1])

    return Operator(mv, matrix, samples)
