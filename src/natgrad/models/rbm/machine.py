"""A restricted Boltzmann machine: parameters, energies, conditional means, a new machine.

    p(v, h) = exp(-E(v, h)) / Z,      -E(v, h) = a^T v + b^T h + h^T W v + log base(v)

(a Gaussian visible unit has the base measure exp(-v^2 / 2)). Given one layer, the units of the other are
independent [nbm eq. 2, 3]. Arrays are [unit, row]; W is [hidden, visible].

Energies know no offsets. *Centering*, that is statistics v - m and h - l in place of v and h, is another
chart of the same machines [melchior2016]: with fixed offsets m, l

    a = a_c - W^T l,     b = b_c - W m,     W = W_c,

so gradients go over by the transpose of that map and directions by the map itself (`to_centered`,
`from_centered`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.layers.bernoulli import BINARY, Coding, Layer, logits_of_means
from natgrad.models.rbm.units import BernoulliUnits, GaussianUnits, LayerUnits, PerRow, UnitRows
from natgrad.tree import pytree, static


@pytree
class Boltzmann:
    """The parameters: the hidden layer's weights and biases, the visible biases; and what the units are."""

    hidden: Layer
    visible_bias: Float[Array, " visible"]
    visible_units: LayerUnits = static(default=BernoulliUnits(BINARY))
    hidden_units: BernoulliUnits = static(default=BernoulliUnits(BINARY))

    @property
    def sizes(self) -> tuple[int, int]:
        """Visible and hidden units."""
        return self.visible_bias.size, self.hidden.bias.size

    @property
    def weight(self) -> Float[Array, "hidden visible"]:
        """W."""
        return self.hidden.weight

    @property
    def hidden_bias(self) -> Float[Array, " hidden"]:
        """b."""
        return self.hidden.bias

    def with_arrays(self, weight: Array, hidden_bias: Array, visible_bias: Array) -> "Boltzmann":
        """A machine, a gradient or a direction of the same structure."""
        return Boltzmann(Layer(weight, hidden_bias), visible_bias, self.visible_units, self.hidden_units)


class Offsets(NamedTuple):
    """What centering takes from the statistics of each layer."""

    visible: Float[Array, " visible"]
    hidden: Float[Array, " hidden"]


def both_biases(model: Boltzmann) -> tuple[Array, Array]:
    """The biases of both layers. A step that is not finite shows it there: its weights sum the same rows."""
    return model.hidden_bias, model.visible_bias


def hidden_inputs(model: Boltzmann, visible: UnitRows) -> UnitRows:
    """W v + b."""
    return model.weight @ visible + model.hidden_bias[:, None]


def visible_inputs(model: Boltzmann, hidden: UnitRows) -> UnitRows:
    """W^T h + a."""
    return model.weight.T @ hidden + model.visible_bias[:, None]


def negative_energy(model: Boltzmann, visible: UnitRows, hidden: UnitRows) -> PerRow:
    """-E of every pair of rows."""
    pair = (hidden * hidden_inputs(model, visible)).sum(axis=0) + model.visible_bias @ visible
    return pair + model.visible_units.log_base(visible)


def negative_free_energy(model: Boltzmann, visible: UnitRows) -> PerRow:
    """log sum_h exp(-E(v, h)): log p(v) up to log Z."""
    return negative_free(model, visible, hidden_inputs(model, visible))


def negative_free(model: Boltzmann, visible: UnitRows, inputs: UnitRows) -> PerRow:
    """The same where the hidden units' inputs are known."""
    linear = model.visible_bias @ visible + model.visible_units.log_base(visible)
    return linear + model.hidden_units.log_partition(inputs)


def hidden_marginal(model: Boltzmann, hidden: UnitRows) -> PerRow:
    """log p(h) up to log Z: a sum, or an integral, over v in closed form."""
    return model.hidden_bias @ hidden + model.visible_units.log_partition(visible_inputs(model, hidden))


def swapped(model: Boltzmann) -> Boltzmann:
    """The same distribution with the layers' names exchanged; both must be Bernoulli."""
    assert isinstance(model.visible_units, BernoulliUnits)
    layer = Layer(model.weight.T, model.visible_bias)
    return Boltzmann(layer, model.hidden_bias, model.hidden_units, model.visible_units)


def statistics(model: Boltzmann, visible: UnitRows, hidden: UnitRows) -> Boltzmann:
    """The means over rows of the statistics (h v^T, h, v), as a tree like the machine."""
    rows = visible.shape[1]
    return model.with_arrays(hidden @ visible.T / rows, hidden.mean(axis=1), visible.mean(axis=1))


def to_centered(gradient: Boltzmann, offsets: Offsets) -> Boltzmann:
    """The gradient with respect to the parameters of the centered chart."""
    low, high = offsets
    shift = high[:, None] * gradient.visible_bias + gradient.hidden_bias[:, None] * low
    return gradient.with_arrays(gradient.weight - shift, gradient.hidden_bias, gradient.visible_bias)


def from_centered(direction: Boltzmann, offsets: Offsets) -> Boltzmann:
    """What a direction in the centered chart is in the machine's own parameters."""
    weight = direction.weight
    below = direction.visible_bias - offsets.hidden @ weight
    return direction.with_arrays(weight, direction.hidden_bias - weight @ offsets.visible, below)


def boltzmann(
    key: PRNGKeyArray,
    sizes: Sequence[int],
    *,
    coding: Coding = BINARY,
    gaussian: bool = False,
    deviation: float = 0.01,
    visible_bias: Array | np.ndarray | None = None,
    hidden_bias: float = 0.0,
) -> Boltzmann:
    """A new machine of (visible, hidden) units with small normal weights."""
    visible, hidden = sizes
    kind = jnp.zeros(()).dtype
    below = jnp.zeros((visible,), kind) if visible_bias is None else jnp.asarray(visible_bias, kind)
    layer = Layer(
        deviation * jax.random.normal(key, (hidden, visible), kind), jnp.full((hidden,), hidden_bias, kind)
    )
    units = GaussianUnits() if gaussian else BernoulliUnits(coding)
    return Boltzmann(layer, below, units, BernoulliUnits(coding))


def bias_of(units: LayerUnits, means: np.ndarray, rows: int) -> np.ndarray:
    """The visible biases under which independent units have the data's means."""
    return logits_of_means(means, rows) / units.span if isinstance(units, BernoulliUnits) else means
