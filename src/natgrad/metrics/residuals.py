"""Least squares: residuals in any tree of arrays, and their Gauss-Newton matrix as an operator.

    loss = (1/2) sum_k weight_k mean(r_k^2) = (1/2) |rho|^2,    rho = (sqrt(weight_k / size_k) r_k)_k
    F = R^T R,   gradient = R^T rho,   R = d rho / d parameters

For Gaussian targets F is the Fisher metric. Where every row of the residuals depends on its own row of the
batch only, and the batch is laid out as they are, R is made by one reverse pass for each row (`by_row`);
without that, by a pass over everything for each parameter or each residual, whichever are fewer. By rows R
takes about as long as the gradient: gradient and products are then made from it, where it fits in memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.core import Batch, Carry, Estimate, Metric, Model, Objective, Product, stateless
from natgrad.devices import row_products
from natgrad.errors import InputError, clipped, number_of
from natgrad.layers.task import check_parameters
from natgrad.metrics.probing import mean_diagonal
from natgrad.tree import pytree, static

Residuals = Callable[[Model, Batch], Any]
_Rows = Float[Array, "sample parameter"]
LARGEST_MB = 512.0  # of R, where products are made from it


class Squares(NamedTuple):
    """A sum of squares: (parameters, batch) -> rho, and (parameters, batch) -> R, made row by row or not."""

    stacked: Callable[[Model, Batch], Float[Array, " sample"]]
    rows: Callable[[Model, Batch], _Rows]
    by_row: bool = False

    def has_cheap_rows(self, parameters: Model, batch: Batch) -> bool:
        """Whether R takes no longer than a gradient, and fits in memory."""
        return self.by_row and self.fits(parameters, batch)

    def fits(self, parameters: Model, batch: Batch) -> bool:
        """Whether R fits in memory."""
        rho = jax.eval_shape(self.stacked, parameters, batch)
        size = rho.size * sum(leaf.size for leaf in jax.tree.leaves(parameters))
        return size * rho.dtype.itemsize <= LARGEST_MB * 2**20


def squares(residuals: Residuals, weights: Any = 1.0, *, by_row: bool = False) -> Squares:
    """The sum of squares of residuals, `weights` being a number or a tree of them for the arrays."""

    def stacked(parameters: Model, batch: Batch) -> Float[Array, " sample"]:
        found = jax.tree.map(jnp.asarray, residuals(parameters, batch))
        leaves, scales = _checked(found), scales_of(found, weights)
        return jnp.concatenate([s * leaf.reshape(-1) for s, leaf in zip(scales, leaves, strict=True)])

    if not by_row:
        return Squares(stacked, lambda parameters, batch: _jacobian(lambda p: stacked(p, batch), parameters))

    def rows(parameters: Model, batch: Batch) -> _Rows:
        shapes = jax.eval_shape(residuals, parameters, batch)
        scales = scales_of(shapes, weights)
        parts = [
            s * part for s, part in zip(scales, rows_made_apart(residuals, parameters, batch), strict=True)
        ]
        return jnp.concatenate(parts)

    return Squares(stacked, rows, by_row=True)


def half_square(problem: Squares) -> Objective:
    """The loss (1/2) |rho|^2; what is handed on to the metric is the batch."""

    def value(model: Model, batch: Batch) -> Float[Array, ""]:
        rho = problem.stacked(model, batch)
        return 0.5 * rho @ rho

    def estimate(key: PRNGKeyArray, model: Model, batch: Batch) -> Estimate:
        del key
        check_parameters(model)
        if not problem.has_cheap_rows(model, batch):
            return Estimate(*jax.value_and_grad(value)(model, batch), batch, {})
        rho, unravel = problem.stacked(model, batch), ravel_pytree(model)[1]
        return Estimate(0.5 * rho @ rho, unravel(problem.rows(model, batch).T @ rho), batch, {})

    return stateless(estimate, value)


def residual_metric(problem: Squares) -> Metric:
    """The Gauss-Newton matrix of the residuals at the batch."""

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Model, batch: Batch
    ) -> tuple["ResidualCurvature", Carry]:
        del key
        check_parameters(model)
        return ResidualCurvature(model, batch, problem), carry

    return Metric(lambda key, model, batch: (), measure)


@pytree
class ResidualCurvature:
    """F = R^T R at the parameters and the batch."""

    parameters: Model
    batch: Batch
    problem: Squares = static()

    def bind(self) -> Product:
        """Products with R, or, where that is not cheap, linearized once.

        Both are made here and not when the first product is asked for: that may be inside of a loop, whose
        values cannot be used outside of it. What nobody uses, the compiler leaves out.
        """
        push, pull = self._by_rows() if self._cheap() else self._linearized()
        samples = jax.eval_shape(self._rho, self.parameters).size
        return Product(lambda v: pull(push(v)), None, push, pull, self._gram, samples, rows=self.factor_rows)

    @property
    def like(self) -> Model:
        """The parameters."""
        return self.parameters

    def mean_diagonal(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """An unbiased estimate of trace / size."""
        return mean_diagonal(key, self.bind().mv, self.parameters)

    def factor_rows(self) -> _Rows:
        """R as a matrix in the order of `ravel_pytree`."""
        return self.problem.rows(self.parameters, self.batch)

    def bend(self, vector: Model) -> Model:
        """R^T times the second derivative of rho along a vector: how residuals curve on the way."""

        def slope(at: Model) -> Array:
            return jax.jvp(self._rho, (at,), (vector,))[1]

        second = jax.jvp(slope, (self.parameters,), (vector,))[1]
        pull = self.bind().pull
        assert pull is not None
        return pull(second)

    def _cheap(self) -> bool:
        return self.problem.has_cheap_rows(self.parameters, self.batch)

    def _by_rows(self) -> tuple[Callable[[Model], Array], Callable[[Array], Model]]:
        """v -> R v and w -> R^T w, from R; equal programs are one, so it is made once in a step."""
        rows, unravel = self.factor_rows(), ravel_pytree(self.parameters)[1]
        return lambda v: rows @ ravel_pytree(v)[0], lambda w: unravel(rows.T @ w)

    def _linearized(self) -> tuple[Callable[[Model], Array], Callable[[Array], Model]]:
        linear = jax.linearize(self._rho, self.parameters)[1]
        transposed = jax.linear_transpose(linear, self.parameters)
        return linear, lambda w: transposed(w)[0]

    def _rho(self, parameters: Model) -> Array:
        return self.problem.stacked(parameters, self.batch)

    def _gram(self) -> Float[Array, "sample sample"]:
        rows = self.factor_rows()
        return row_products(rows)


def _checked(found: Any) -> list[Array]:
    """The arrays of residuals, which must be there and floating-point."""
    leaves = jax.tree.leaves(found)
    if not leaves or not all(jnp.issubdtype(jnp.result_type(leaf), jnp.floating) for leaf in leaves):
        kinds = ", ".join(str(jnp.result_type(leaf)) for leaf in leaves) or "none"
        raise InputError(f"expected floating-point arrays of residuals, got {kinds}; return at least one")
    if any(leaf.size == 0 for leaf in leaves):
        raise InputError("expected at least one residual in every array, got an empty one; leave it out")
    return leaves


def check_forward(residuals: Residuals, parameters: Model, batch: Batch) -> None:
    """Refuse residuals that have reverse derivatives only."""
    try:
        along = jax.jit(lambda p, b: jax.jvp(lambda q: residuals(q, b), (p,), (p,)))
        along.lower(parameters, batch)  # only then it is noticed
    except TypeError as error:
        if "custom_vjp" not in str(error):
            raise
        raise InputError(
            "residuals need derivatives forward, got a function of jax.custom_vjp, which has them in reverse "
            "only; write it with jax.custom_jvp"
        ) from None


def scales_of(found: Any, weights: Any) -> list[Array]:
    """sqrt(weight / size) of every array."""
    leaves, structure = jax.tree.leaves(found), jax.tree.structure(found)
    given: Any = jax.tree.structure(weights)
    numbers = [number_of(weight) for weight in jax.tree.leaves(weights)]
    one = given == jax.tree.structure(0)
    if not (one or given == structure) or not all(0 <= number < float("inf") for number in numbers):
        raise InputError(
            f"expected one weight, or one for each of {len(leaves)} arrays of residuals under its own key, "
            f"zero or positive, got {clipped(repr(weights), 80)}; give a tree like that of the residuals"
        )
    each = numbers * len(leaves) if one else numbers
    return [jnp.sqrt(jnp.asarray(w / leaf.size, leaf.dtype)) for w, leaf in zip(each, leaves, strict=True)]


def weighed(found: Any, weights: Any) -> int:
    """How many residuals have a weight that is not zero."""
    leaves, scales = jax.tree.leaves(found), scales_of(found, weights)
    return sum(leaf.size for leaf, scale in zip(leaves, scales, strict=True) if scale > 0)


def _jacobian(function: Callable[[Model], Array], parameters: Model) -> _Rows:
    """By forward or by reverse mode, whichever takes fewer passes."""
    rho, push = jax.linearize(function, parameters)
    flat, unravel = ravel_pytree(parameters)
    if flat.size <= rho.size:
        return jax.vmap(lambda v: push(unravel(v)), out_axes=1)(jnp.eye(flat.size, dtype=flat.dtype))
    return _pulled(jax.linear_transpose(push, parameters), rho)


def _pulled(pull: Callable[[Array], tuple[Model]], like: Array) -> _Rows:
    """The Jacobian from its transpose: a reverse pass for each of its rows."""
    leaves = jax.tree.leaves(jax.vmap(pull)(jnp.eye(like.size, dtype=like.dtype)))
    return jnp.concatenate([leaf.reshape(like.size, -1) for leaf in leaves], axis=1)


def rows_made_apart(residuals: Residuals, parameters: Model, batch: Batch) -> list[_Rows]:
    """The Jacobian of every array of residuals, each of its rows from a batch of one row."""
    parts, structure = batch_parts(residuals, parameters, batch)
    firsts = [jax.tree.map(lambda leaf: leaf[:1], part) for part in parts]

    def jacobian(place: int, row: Any) -> _Rows:
        single = jax.tree.map(lambda leaf: leaf[None], row)
        given = jax.tree.unflatten(structure, [*firsts[:place], single, *firsts[place + 1 :]])
        own = lambda p: jax.tree.leaves(residuals(p, given))[place].reshape(-1)  # noqa: E731
        value, pull = jax.vjp(own, parameters)
        return _pulled(pull, value)

    found = [
        jax.vmap(lambda row, place=place: jacobian(place, row))(part) for place, part in enumerate(parts)
    ]
    return [rows.reshape(-1, rows.shape[-1]) for rows in found]


def batch_parts(residuals: Residuals, parameters: Model, batch: Batch) -> tuple[list[Any], Any]:
    """The part of the batch that belongs to every array of residuals, and the structure of the residuals."""
    shapes = jax.eval_shape(residuals, parameters, batch)
    structure: Any = jax.tree.structure(shapes)
    try:
        parts = structure.flatten_up_to(batch)
    except ValueError:
        parts = []
    numbers = [{leaf.shape[:1] for leaf in jax.tree.leaves(part)} for part in parts]
    expected = [{shape.shape[:1]} for shape in jax.tree.leaves(shapes)]
    if numbers != expected or {()} in expected or not _single(residuals, parameters, batch, shapes):
        raise InputError(
            "residuals by row need a batch laid out as the residuals are, with as many rows in every part; "
            "give by_row=False, or a batch with the keys of the residuals"
        )
    return parts, structure


def _single(residuals: Residuals, parameters: Model, batch: Batch, shapes: Any) -> bool:
    """Whether a batch of one row has residuals of one row."""
    first = jax.eval_shape(lambda b: jax.tree.map(lambda leaf: leaf[:1], b), batch)
    found = jax.eval_shape(residuals, parameters, first)
    return jax.tree.all(jax.tree.map(lambda one, all_: one.shape == (1, *all_.shape[1:]), found, shapes))
