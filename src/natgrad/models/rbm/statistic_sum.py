"""A sum over rows of a machine's statistics, kept as its rows: how a gradient is known before it is stored.

    sum_k w_k T(v_k, h_k),     T = (h v^T, h, v)

All that a solve in sample space needs of a gradient are inner products with statistics of other rows, and
those come from the layers' own inner products, which take much less time than the sum itself.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.layers.bernoulli import Layer
from natgrad.models.rbm.machine import Boltzmann, Offsets
from natgrad.models.rbm.units import BernoulliUnits, LayerUnits, PerRow, UnitRows
from natgrad.tree import pytree, static


@pytree
class StatisticSum:
    """The rows' visible states, their hidden states or means times the rows' weights, and the weights."""

    visible: UnitRows
    hidden: UnitRows
    weights: PerRow
    visible_units: LayerUnits = static()
    hidden_units: BernoulliUnits = static()

    def whole(self) -> Boltzmann:
        """The sum, as a tree like the machine: one product for all rows."""
        layer = Layer(self.hidden @ self.visible.T, self.hidden.sum(axis=1))
        return Boltzmann(layer, self.visible @ self.weights, self.visible_units, self.hidden_units)

    def centered(self, offsets: Offsets) -> "StatisticSum":
        """The same gradient in the centered chart; its weights must sum to zero, as of a gradient they do."""
        low, high = offsets
        return self._with(
            self.visible - low[:, None], self.hidden - high[:, None] * self.weights, self.weights
        )

    def along(self, visible: UnitRows, hidden: UnitRows) -> Float[Array, " sample"]:
        """Its inner product with the statistics of each of some rows."""
        below, above = visible.T @ self.visible, hidden.T @ self.hidden
        return (below * above + above).sum(axis=1) + below @ self.weights

    def less(self, visible: UnitRows, hidden: UnitRows, weights: PerRow, *, fresh: bool) -> "StatisticSum":
        """Less weighted statistics of other rows; `fresh` says that these have its first visible states."""
        scaled = hidden * weights
        if not fresh:
            return self._with(
                jnp.concatenate([self.visible, visible], axis=1),
                jnp.concatenate([self.hidden, -scaled], axis=1),
                jnp.concatenate([self.weights, -weights]),
            )
        first = weights.size
        above = self.hidden.at[:, :first].add(-scaled)
        return self._with(self.visible, above, self.weights.at[:first].add(-weights))

    def _with(self, visible: UnitRows, hidden: UnitRows, weights: PerRow) -> "StatisticSum":
        return StatisticSum(visible, hidden, weights, self.visible_units, self.hidden_units)
