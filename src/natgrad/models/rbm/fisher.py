"""The Fisher of a machine: the covariance of its statistics T = (h v^T, h, v) under the joint model.

    F = Cov(T)     [nbm sec. 3] [grosse2015];     from n samples,  F = R^T R,  R_i = (T_i - mean T) / sqrt n

A row of R is an outer product and never stored: R x = h_i^T X v_i + ..., and (R R^T)_ij before the mean is
taken off is v_i.v_j h_i.h_j + h_i.h_j + v_i.v_j. With draws of h the rows are those of the joint model;
with the means of h given v in their place they are scores of p(v), and F is that of the *marginal* model. The
joint one exceeds it by E[Cov(T | v)], a positive semi-definite matrix.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.core import Carry, Metric, Product
from natgrad.devices import placed
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import DenseBlocks
from natgrad.metrics.layered import LayeredFisher
from natgrad.models.rbm.covariance import joint_covariance
from natgrad.models.rbm.machine import Boltzmann, Offsets, statistics, to_centered
from natgrad.models.rbm.objectives import Contrast
from natgrad.models.rbm.statistic_sum import StatisticSum
from natgrad.models.rbm.units import BernoulliUnits, LayerUnits, UnitRows
from natgrad.tree import pytree, static


@pytree
class SampledFisher:
    """The covariance of the statistics of samples; `offsets` are those of the chart that a solver may use."""

    visible: UnitRows
    hidden: UnitRows
    offsets: Offsets
    visible_units: LayerUnits = static()
    hidden_units: BernoulliUnits = static()

    def bind(self) -> Product:
        """Products with the rows of its factor."""
        factor = (self.push, self.pull, self.gram, self.visible.shape[1])
        return Product(self.mv, self.diagonal, *factor, rows=self.factor_rows)

    @property
    def like(self) -> Boltzmann:
        """A machine of zeros."""
        above, below = jnp.zeros_like(self.hidden[:, 0]), jnp.zeros_like(self.visible[:, 0])
        weight = jnp.zeros((above.size, below.size), above.dtype)
        return Boltzmann(Layer(weight, above), below, self.visible_units, self.hidden_units)

    def push(self, vector: Boltzmann | StatisticSum) -> Float[Array, " sample"]:
        """R x."""
        if isinstance(vector, StatisticSum):
            seen = vector.along(self.visible, self.hidden)
        else:
            responses = vector.weight @ self.visible + vector.hidden_bias[:, None]
            seen = (self.hidden * responses).sum(axis=0) + vector.visible_bias @ self.visible
        return (seen - seen.mean()) / self._root()

    def less(self, vector: StatisticSum, weights: Float[Array, " sample"], *, fresh: bool) -> StatisticSum:
        """x - R^T w; `fresh` says that the first rows of x are those of the metric."""
        return vector.less(self.visible, self.hidden, self._scaled(weights), fresh=fresh)

    def pull(self, weights: Float[Array, " sample"]) -> Boltzmann:
        """R^T w."""
        scaled = self._scaled(weights)
        above = self.hidden * scaled
        return self.like.with_arrays(above @ self.visible.T, above.sum(axis=1), self.visible @ scaled)

    def mv(self, vector: Boltzmann) -> Boltzmann:
        """F x."""
        return self.pull(self.push(vector))

    def gram(self) -> Float[Array, "sample sample"]:
        """R R^T, from the layers' own inner products."""
        below, above = self.visible.T @ self.visible, self.hidden.T @ self.hidden
        whole = below * above + below + above
        rows = whole - whole.mean(axis=0)
        return (rows - rows.mean(axis=1, keepdims=True)) / self.visible.shape[1]

    def diagonal(self) -> Boltzmann:
        """The variance of every statistic."""
        mean = statistics(self.like, self.visible, self.hidden)
        square = statistics(self.like, self.visible**2, self.hidden**2)
        return jax.tree.map(lambda s, m: s - m**2, square, mean)

    def mean_diagonal(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """trace / size, in the chart that is damped."""
        del key
        inner = self.centered().gram()
        return jnp.trace(inner) / sum(leaf.size for leaf in jax.tree.leaves(self.like))

    def factor_rows(self) -> Float[Array, "sample parameter"]:
        """R as a matrix, for small machines; on a mesh units are gathered for it, which are fewer numbers."""
        hidden, visible = placed(self.hidden, None, "rows"), placed(self.visible, None, "rows")
        outer = (hidden[:, None] * visible).reshape(-1, visible.shape[1])
        rows = jnp.concatenate([outer, hidden, visible]).T
        return (rows - rows.mean(axis=0)) / self._root()

    def centered(self) -> "SampledFisher":
        """The same metric in the centered chart: its statistics are less their offsets."""
        below, above = self.offsets
        nothing = jax.tree.map(jnp.zeros_like, self.offsets)
        moved = (self.visible - below[:, None], self.hidden - above[:, None], nothing)
        return SampledFisher(*moved, self.visible_units, self.hidden_units)

    def blocks(self) -> LayeredFisher:
        """A block for the weights and the bias of every hidden unit; of visible biases the diagonal."""
        number = self.visible.shape[1]
        inputs = jnp.concatenate([self.visible, jnp.ones_like(self.visible[:1])])
        whole = jnp.einsum("ji,ai,bi->jab", self.hidden**2 / number, inputs, inputs)
        mean = self.hidden @ inputs.T / number
        matrix = whole - mean[:, :, None] * mean[:, None, :]
        return _layered(self.like, matrix, self.visible.var(axis=1))

    def _scaled(self, weights: Float[Array, " sample"]) -> Float[Array, " sample"]:
        return (weights - weights.mean()) / self._root()

    def _root(self) -> Array:
        return jnp.sqrt(jnp.asarray(self.visible.shape[1], self.visible.dtype))


@pytree
class StoredFisher:
    """The matrix itself, in the order of the machine's leaves, for small machines."""

    matrix: Float[Array, "parameter parameter"]
    offsets: Offsets
    like: Boltzmann

    def bind(self) -> Product:
        """Products with the matrix."""
        return Product(self.mv, self.diagonal)

    def mv(self, vector: Boltzmann) -> Boltzmann:
        """F x."""
        return unraveled(self.like, self.matrix @ raveled(vector))

    def diagonal(self) -> Boltzmann:
        """The diagonal."""
        return unraveled(self.like, jnp.diagonal(self.matrix))

    def mean_diagonal(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """trace / size, in the chart that is damped."""
        del key
        return jnp.trace(self.centered().matrix) / len(self.matrix)

    def centered(self) -> "StoredFisher":
        """A^T F A, with A from the centered chart to the machine's own."""
        transposed = jax.vmap(lambda row: raveled(to_centered(unraveled(self.like, row), self.offsets)))
        nothing = jax.tree.map(jnp.zeros_like, self.offsets)
        return StoredFisher(transposed(transposed(self.matrix).T), nothing, self.like)

    def blocks(self) -> LayeredFisher:
        """A block for the weights and the bias of every hidden unit; of visible biases the diagonal."""
        visible, hidden = self.like.sizes
        own = jnp.arange(hidden)[:, None]
        places = jnp.concatenate([own * visible + jnp.arange(visible), hidden * visible + own], axis=1)
        matrix = self.matrix[places[:, :, None], places[:, None, :]]
        return _layered(self.like, matrix, jnp.diagonal(self.matrix)[-visible:])


def sampled_fisher(*, marginal: bool = False) -> Metric:
    """The metric of the chains of a step, joint or marginal."""

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Boltzmann, drawn: Contrast
    ) -> tuple[SampledFisher, Carry]:
        del key
        chains, units = drawn.chains, model.hidden_units
        assert chains is not None
        hidden = units.mean(chains.inputs) if marginal else chains.hidden
        return SampledFisher(chains.visible, hidden, drawn.offsets, model.visible_units, units), carry

    return Metric(lambda key, model, drawn: (), measure)


def exact_fisher(*, marginal: bool = False) -> Metric:
    """The metric of a small machine by enumeration."""

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Boltzmann, drawn: Contrast
    ) -> tuple[StoredFisher, Carry]:
        del key
        return StoredFisher(joint_covariance(model, marginal=marginal), drawn.offsets, model), carry

    return Metric(lambda key, model, drawn: (), measure)


def raveled(model: Boltzmann) -> Float[Array, " parameter"]:
    """All numbers in the order of the leaves."""
    return jnp.concatenate([leaf.ravel() for leaf in (model.weight, model.hidden_bias, model.visible_bias)])


def unraveled(like: Boltzmann, numbers: Float[Array, " parameter"]) -> Boltzmann:
    """The inverse of `raveled`."""
    visible, hidden = like.sizes
    weight, above, below = jnp.split(numbers, (visible * hidden, visible * hidden + hidden))
    return like.with_arrays(weight.reshape(hidden, visible), above, below)


def _layered(like: Boltzmann, matrix: Array, below: Array) -> LayeredFisher:
    tree: Any = partial(Boltzmann, visible_units=like.visible_units, hidden_units=like.hidden_units)
    return LayeredFisher(tree(hidden=DenseBlocks(matrix), visible_bias=below))
