"""How far the statistics of a machine are from white, in the chart that its training has.

    white_distance     ||Cov(z) - I, Cov(y) - I|| / ||I, I||         of whitened v and h
    fisher_distance    ||F - I|| / ||I||                             of all statistics together

in Frobenius norms. A chart in which nothing moves has a distance of one.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.core import State
from natgrad.models.rbm.covariance import joint_covariance
from natgrad.models.rbm.fisher import raveled, unraveled
from natgrad.models.rbm.limits import MOST_STATES
from natgrad.models.rbm.machine import Boltzmann, Offsets, visible_inputs
from natgrad.models.rbm.moments import Joint, Portion, covariances, enumerated_joint
from natgrad.models.rbm.monitor import is_cheap
from natgrad.models.rbm.partition import smaller_side
from natgrad.models.rbm.whitening import WhiteChart, Whitened, identity_chart, to_whitened

_MOST = 1024  # parameters of a Fisher that every evaluation may look at


def distances(state: State, *, biases: bool, chains: Any) -> dict[str, float]:
    """Both figures of a state, as far as they are cheap; `chains` are hidden states, if there are any."""
    model, offsets, kept = state.used, state.objective.offsets, state.direction
    chart = kept.chart if isinstance(kept, Whitened) else identity_chart(model)
    found = {}
    if is_cheap(model):
        found["white_distance"] = float(_exact_white_distance(model, chart))
    elif chains is not None:
        found["white_distance"] = float(_sampled_white_distance(model, chart, chains))
    if smaller_side(model) <= MOST_STATES and raveled(model).size <= _MOST:
        found["fisher_distance"] = float(_fisher_distance(model, chart, offsets, biases))
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


@jax.jit
def _exact_white_distance(model: Boltzmann, chart: WhiteChart) -> Float[Array, ""]:
    return white_distance(enumerated_joint(model), chart)


@jax.jit
def _sampled_white_distance(model: Boltzmann, chart: WhiteChart, hidden: Array) -> Float[Array, ""]:
    number = hidden.shape[1]
    only = Portion(hidden, visible_inputs(model, hidden), jnp.full((number,), 1 / number, hidden.dtype))
    return white_distance(Joint(lambda function: function(only), model.visible_units, True), chart)


_fisher_distance = jax.jit(fisher_distance, static_argnums=3)
