"""The units of a layer, given what comes in: p(v | y) is proportional to exp(v y) times a base measure.

Each kind of unit is an exponential family of one number with natural parameter y, its *input*:

    kind         values              log_partition A(y)              mean A'(y)           variance A''(y)
    Bernoulli    {low, high}         low y + softplus(s y)           low + s sigmoid(s y)     s^2 p (1 - p)
    Gaussian     real numbers        y^2 / 2 + log(2 pi) / 2         y                        1

with s = high - low. A machine, its Fisher and its likelihood are written in these terms only, so that they
hold for every coding and for Gaussian visible units. Arrays are [unit, row].
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.layers import bernoulli
from natgrad.layers.bernoulli import Coding

UnitRows = Float[Array, "unit row"]
PerRow = Float[Array, " row"]


class LayerUnits(Protocol):
    """What a layer's units are; hashable, since it is part of a machine's structure."""

    @property
    def finite(self) -> bool:
        """Whether a unit has two values only, so that states can be enumerated."""

    def mean(self, inputs: UnitRows) -> UnitRows:
        """The mean of every unit."""

    def variance(self, inputs: UnitRows) -> UnitRows:
        """The variance of every unit."""

    def drawn(self, key: PRNGKeyArray, inputs: UnitRows) -> UnitRows:
        """A value of every unit."""

    def log_partition(self, inputs: UnitRows) -> PerRow:
        """The sum over units of log sum_v exp(v y), or of the integral with the base measure."""

    def log_base(self, values: UnitRows) -> PerRow:
        """The logarithm of the base measure, summed over units."""


@dataclass(frozen=True)
class BernoulliUnits:
    """Units with two values, coded {0,1} or {-1,+1}."""

    coding: Coding

    @property
    def finite(self) -> bool:
        """They are."""
        return True

    @property
    def span(self) -> float:
        """The distance of the two values: the logit of a unit is so many times its input."""
        return self.coding.high - self.coding.low

    def mean(self, inputs: UnitRows) -> UnitRows:
        """The mean of every unit, in its coding."""
        return self.coding.low + self.span * jax.nn.sigmoid(self.span * inputs)

    def variance(self, inputs: UnitRows) -> UnitRows:
        """s^2 p (1 - p)."""
        chance = jax.nn.sigmoid(self.span * inputs)
        return self.span**2 * chance * (1 - chance)

    def drawn(self, key: PRNGKeyArray, inputs: UnitRows) -> UnitRows:
        """A value of every unit, in its coding."""
        uniform = jax.random.uniform(key, inputs.shape, inputs.dtype)
        return bernoulli.draw(uniform[..., None], self.span * inputs[..., None], self.coding)[..., 0]

    def log_partition(self, inputs: UnitRows) -> PerRow:
        """The sum of low y + softplus(s y)."""
        return _log_partition(self, inputs)

    def rise(self, inputs: UnitRows, before: Array, now: Array) -> PerRow:
        """How much `log_partition` of t times the inputs rises from one t to another."""
        z = self.span * inputs[..., None]
        steps = -bernoulli.log_ratio(now * z, before * z, jnp.zeros_like(z))[:, 0]
        return steps + (now - before) * self.coding.low * inputs.sum(axis=0) if self.coding.low else steps

    def log_base(self, values: UnitRows) -> PerRow:
        """Nothing: both values count alike."""
        return jnp.zeros_like(values[0])


@dataclass(frozen=True)
class GaussianUnits:
    """Real units of variance one around their input."""

    @property
    def finite(self) -> bool:
        """They are not."""
        return False

    def mean(self, inputs: UnitRows) -> UnitRows:
        """The inputs."""
        return inputs

    def variance(self, inputs: UnitRows) -> UnitRows:
        """One."""
        return jnp.ones_like(inputs)

    def drawn(self, key: PRNGKeyArray, inputs: UnitRows) -> UnitRows:
        """~ N(inputs, 1)."""
        return inputs + jax.random.normal(key, inputs.shape, inputs.dtype)

    def log_partition(self, inputs: UnitRows) -> PerRow:
        """The sum of y^2 / 2 + log(2 pi) / 2."""
        return 0.5 * (inputs**2).sum(axis=0) + 0.5 * math.log(2 * math.pi) * inputs.shape[0]

    def log_base(self, values: UnitRows) -> PerRow:
        """The sum of -v^2 / 2."""
        return -0.5 * (values**2).sum(axis=0)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_partition(units: BernoulliUnits, inputs: UnitRows) -> PerRow:
    nothing = jnp.zeros((inputs.shape[0], 1, 1), inputs.dtype)
    softplus = -bernoulli.log_prob(units.span * inputs[..., None], nothing)[:, 0]
    return softplus + units.coding.low * inputs.sum(axis=0) if units.coding.low else softplus


@_log_partition.defjvp
def _slope(units: BernoulliUnits, at: tuple[Array], change: tuple[Array]) -> tuple[Array, Array]:
    """The quick sum above has kinks at zero that its derivative has not."""
    (inputs,), (tangents,) = at, change
    return _log_partition(units, inputs), (units.mean(inputs) * tangents).sum(axis=0)
