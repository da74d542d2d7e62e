"""The penalty of correlation, and its exact gradient.

    loss = (1 - gamma) (-log p) + gamma ||Cov||^2                                              [nbm sec. 4]

Cov is that of v and h, of v, of h, or all three; the norm is Frobenius'. With the covariances C as they are,

    s = sum over chosen blocks of (x - E x)^T C (y - E y),     E s = ||C||^2,     d||C||^2 = 2 Cov(s, T),

which is the exact gradient: dE[g]/dw_ij = Cov(g, v_i h_j), and the rule of products, for every block at
once. It takes one number for every state and never a Fisher matrix.

The report's own *practical* version drops the factor C and the trace, sets every change of a weight to one,
and adds what remains, the change of Cov(v, h) in a step, to the gradient of the weights; as an average over
the last steps. Changes add up, so that average is (C_t - C_{t-15}) / 15; the report's own difference of
products overshoots it (docs/errata.md). Its gamma rises while a share of the entries is larger than a
threshold, and falls otherwise.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import Estimate, Objective
from natgrad.models.rbm.machine import Boltzmann
from natgrad.models.rbm.moments import (
    Covariances,
    Joint,
    Portion,
    covariances,
    joint_of,
    third_cumulants,
)
from natgrad.models.rbm.objectives import Carried
from natgrad.models.rbm.units import UnitRows

LEAST, MOST = 1e-5, 1.0  # gamma of the practical version
WINDOW = 15  # steps of its average
_FACTOR = 1.1  # how gamma rises and falls; the report does not say


class Penalties(NamedTuple):
    """Which covariances are penalized."""

    visible: bool = False
    hidden: bool = False
    between: bool = True


BLOCKS = {
    "vh": Penalties(),
    "vv": Penalties(True, False, False),
    "hh": Penalties(False, True, False),
    "all": Penalties(True, True, True),
}


def covariance_penalty(
    model: Boltzmann, joint: Joint, blocks: Penalties
) -> tuple[Float[Array, ""], Boltzmann]:
    """||Cov||^2 of the chosen blocks and its exact gradient, as a tree like the machine."""
    found = _chosen(covariances(joint), blocks, hidden_first=joint.hidden_first)
    value = sum((jnp.vdot(block, block) for block in found[2:]), jnp.zeros((), found.x.dtype))

    def products(each: Portion) -> tuple[Array, Array, Array]:
        means = joint.others.mean(each.inputs)
        scores, slopes = _given(each, found, joint, means)
        apart = (scores - value) * each.chances
        moved = means * apart + slopes * each.chances  # E[(s - E s) y | x]
        return each.states @ moved.T, each.states @ apart, moved.sum(axis=1)

    both, first, second = (2 * each for each in joint.total(products))
    if joint.hidden_first:
        return value, model.with_arrays(both, first, second)
    return value, model.with_arrays(both.T, second, first)


def penalized(objective: Objective, gamma: float, blocks: Penalties) -> Objective:
    """A share gamma of the penalty in place of as much of the likelihood."""

    def estimate(key: PRNGKeyArray, carry: Any, model: Boltzmann, rows: UnitRows) -> tuple[Estimate, Any]:
        found, later = objective.estimate(key, carry, model, rows)
        penalty, slope = covariance_penalty(model, joint_of(model, found.samples), blocks)
        value = (1 - gamma) * found.value + gamma * penalty
        gradient = tree.blend(1 - gamma, found.gradient, slope)
        numbers = found.diagnostics | {"penalty": penalty}
        return found._replace(value=value, gradient=gradient, diagnostics=numbers), later

    return Objective(objective.init, estimate)


class PracticalCarry(NamedTuple):
    """What the practical version keeps: the likelihood's carry, Cov(h, v) of the last steps, gamma."""

    chains: Any
    offsets: Any
    covariances: Float[Array, "step hidden visible"]
    gamma: Float[Array, ""]
    steps: Int[Array, ""]


def practically_penalized(objective: Objective, gamma: float, *, threshold: float, share: float) -> Objective:
    """The report's practical version: the average change of Cov(v, h), and a gamma that follows its size.

    The value is the likelihood's: what is added to its gradient is no gradient of anything.
    """

    def init(key: PRNGKeyArray, model: Boltzmann, batch: UnitRows) -> PracticalCarry:
        begun = objective.init(key, model, batch)
        history = jnp.zeros((WINDOW, *model.weight.shape), model.weight.dtype)
        return PracticalCarry(
            begun.chains, begun.offsets, history, jnp.asarray(gamma, history.dtype), jnp.zeros((), jnp.int32)
        )

    def estimate(
        key: PRNGKeyArray, carry: PracticalCarry, model: Boltzmann, rows: UnitRows
    ) -> tuple[Estimate, PracticalCarry]:
        found, later = objective.estimate(key, Carried(carry.chains, carry.offsets), model, rows)
        joint = joint_of(model, found.samples)
        now = _between(covariances(joint), hidden_first=joint.hidden_first)
        place = carry.steps % WINDOW
        oldest = jnp.where(carry.steps < WINDOW, carry.covariances[0], carry.covariances[place])
        number = jnp.clip(carry.steps, 1, WINDOW).astype(now.dtype)
        change = jnp.where(carry.steps == 0, 0, (now - oldest) / number)
        weight, history = carry.gamma, carry.covariances.at[place].set(now)
        gradient = tree.scale(1 - weight, found.gradient)
        gradient = gradient.with_arrays(
            gradient.weight + weight * change, gradient.hidden_bias, gradient.visible_bias
        )
        large = (jnp.abs(change) > threshold).mean(dtype=change.dtype) > share
        renewed = jnp.clip(jnp.where(large, weight * _FACTOR, weight / _FACTOR), LEAST, MOST)
        numbers = found.diagnostics | {"penalty": jnp.vdot(now, now), "gamma": weight}
        after = PracticalCarry(later.chains, later.offsets, history, renewed, carry.steps + 1)
        return found._replace(gradient=gradient, diagnostics=numbers), after

    return Objective(init, estimate)


def _between(found: Covariances, *, hidden_first: bool) -> Float[Array, "hidden visible"]:
    return found.xy if hidden_first else found.xy.T


def _chosen(found: Covariances, blocks: Penalties, *, hidden_first: bool) -> Covariances:
    """Zeros in place of the blocks that are not penalized."""
    first, second = (blocks.hidden, blocks.visible) if hidden_first else (blocks.visible, blocks.hidden)
    kept = zip(found[2:], (first, second, blocks.between), strict=True)
    return Covariances(*found[:2], *(block if wanted else jnp.zeros_like(block) for block, wanted in kept))


def _given(
    each: Portion, found: Covariances, joint: Joint, means: UnitRows
) -> tuple[Float[Array, " state"], UnitRows]:
    """E[s | x], and Cov(s, y | x): y is independent given x, with known cumulants."""
    below, above = each.states - found.x[:, None], means - found.y[:, None]
    variance, own = joint.others.variance(each.inputs), jnp.diagonal(found.yy)
    across, within = found.xy.T @ below, found.yy @ above
    scores = (
        (below * (found.xx @ below)).sum(axis=0) + (above * (across + within)).sum(axis=0) + own @ variance
    )
    slopes = (across + 2 * within) * variance + own[:, None] * third_cumulants(joint.others, each.inputs)
    return scores, slopes
