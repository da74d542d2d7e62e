"""How far the statistics of a machine are from white, in the chart that its training has.

    white_distance     ||Cov(z) - I, Cov(y) - I|| / ||I, I||         of whitened v and h
    fisher_distance    ||F - I|| / ||I||                             of all statistics together

in Frobenius norms. A chart in which nothing moves has a distance of one. The Fisher of a small machine is
enumerated. Of others ||F - I||^2 = tr F^2 - 2 tr F + size is estimated from chains, without bias if these are
independent: the inner products of their statistics suffice [zhou2017].
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.core import State
from natgrad.layers import generator
from natgrad.models.rbm.covariance import joint_covariance
from natgrad.models.rbm.fisher import raveled, unraveled
from natgrad.models.rbm.fisher_moments import is_storable
from natgrad.models.rbm.machine import Boltzmann, Offsets, visible_inputs
from natgrad.models.rbm.moments import Joint, Portion, covariances, enumerated_joint
from natgrad.models.rbm.monitor import is_cheap
from natgrad.models.rbm.partition import smaller_side
from natgrad.models.rbm.units import UnitRows
from natgrad.models.rbm.whitening import WhiteChart, Whitened, identity_chart, to_whitened

_MOST = 2**33  # products of an enumerated Fisher that every evaluation may take
_LEAST = 4  # chains of an estimate


def distances(state: State, *, biases: bool, chains: Any) -> dict[str, float]:
    """Both figures of a state, as far as they are cheap; `chains` are hidden states, if there are any."""
    model, offsets, kept = state.used, state.objective.offsets, state.direction
    chart = kept.chart if isinstance(kept, Whitened) else identity_chart(model)
    found = {}
    if is_cheap(model):
        found["white_distance"] = float(_exact_white_distance(model, chart))
    elif chains is not None:
        found["white_distance"] = float(_sampled_white_distance(model, chart, chains))
    if is_storable(model) and 2 ** smaller_side(model) * raveled(model).size ** 2 <= _MOST:
        found["fisher_distance"] = float(_fisher_distance(model, chart, offsets, biases))
    elif chains is not None and chains.shape[1] >= _LEAST:
        visible = _visible(generator.key(0), model, chains)
        found["fisher_distance"] = float(
            _sampled_fisher_distance(visible, chains, chart, offsets, biases=biases)
        )
    return found


def white_distance(joint: Joint, chart: WhiteChart) -> Float[Array, ""]:
    """How far the covariances of U v and V h are from the identity."""
    found = covariances(joint)
    visible, hidden = (found.yy, found.xx) if joint.hidden_first else (found.xx, found.yy)
    below = chart.visible @ visible @ chart.visible.T - jnp.eye(len(visible), dtype=visible.dtype)
    above = chart.hidden @ hidden @ chart.hidden.T - jnp.eye(len(hidden), dtype=hidden.dtype)
    return jnp.sqrt((jnp.vdot(below, below) + jnp.vdot(above, above)) / (len(visible) + len(hidden)))


def fisher_distance(model: Boltzmann, chart: WhiteChart, offsets: Offsets, biases: bool) -> Float[Array, ""]:
    """How far A^T F A is from the identity, with A from the chart to the machine's own parameters."""

    def row(numbers: Array) -> Array:
        return raveled(to_whitened(unraveled(model, numbers), chart, offsets, biases=biases))

    matrix = jax.vmap(row)(jax.vmap(row)(joint_covariance(model)).T)
    apart = matrix - jnp.eye(len(matrix), dtype=matrix.dtype)
    return jnp.linalg.norm(apart) / jnp.sqrt(jnp.asarray(len(matrix), matrix.dtype))


def sampled_fisher_distance(
    visible: UnitRows, hidden: UnitRows, chart: WhiteChart, offsets: Offsets, *, biases: bool
) -> Float[Array, ""]:
    """The same, estimated from samples of v and h."""
    v, h = visible - offsets.visible[:, None], hidden - offsets.hidden[:, None]
    z, y = chart.visible @ v, chart.hidden @ h
    below, above = (z, y) if biases else (v, h)
    gram = (z.T @ z) * (y.T @ y) + below.T @ below + above.T @ above
    trace, square = _traces(gram)
    size = jnp.asarray(v.shape[0] * h.shape[0] + v.shape[0] + h.shape[0], gram.dtype)
    return jnp.sqrt(jnp.maximum(square - 2 * trace + size, 0) / size)


def _traces(gram: Float[Array, "sample sample"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """tr F and tr F^2 without bias, from the inner products of n samples of statistics [zhou2017]."""
    n = len(gram)
    rows = gram - gram.mean(axis=0)
    apart = rows - rows.mean(axis=1, keepdims=True)
    lengths = jnp.diagonal(apart)
    trace, square = lengths.sum() / (n - 1), jnp.vdot(apart, apart) / (n - 1) ** 2
    fourth = jnp.vdot(lengths, lengths) / (n - 1)
    factor = (n - 1) / (n * (n - 2) * (n - 3))
    return trace, factor * ((n - 1) * (n - 2) * square + trace**2 - n * fourth)


@jax.jit
def _visible(key: PRNGKeyArray, model: Boltzmann, hidden: UnitRows) -> UnitRows:
    return model.visible_units.drawn(key, visible_inputs(model, hidden))


@jax.jit
def _exact_white_distance(model: Boltzmann, chart: WhiteChart) -> Float[Array, ""]:
    return white_distance(enumerated_joint(model), chart)


@jax.jit
def _sampled_white_distance(model: Boltzmann, chart: WhiteChart, hidden: Array) -> Float[Array, ""]:
    number = hidden.shape[1]
    only = Portion(hidden, visible_inputs(model, hidden), jnp.full((number,), 1 / number, hidden.dtype))
    return white_distance(Joint(lambda function: function(only), model.visible_units, True), chart)


_fisher_distance = jax.jit(fisher_distance, static_argnums=3)
_sampled_fisher_distance = jax.jit(sampled_fisher_distance, static_argnames="biases")
