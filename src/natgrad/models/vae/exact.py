"""The Fisher of p(x) and of p(x, z) exactly, for small models of binary data: sums over x, quadrature over z.

    marginal    E over p(x) of s s^T,       s = E over p(z | x) of the score of p(x, z)
    joint       E over p(x, z) of the score's outer product

The score of p(x) is a mean of those of p(x, z), so joint minus marginal is positive semi-definite.
Recognition does not change p: its rows and columns are zero in both. The order is that of `ravel_pytree`.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.models.vae.machine import Variational, log_visible

_LARGEST = 2**16  # pairs of a state and a node
Matrix = Float[Array, "parameter parameter"]


def marginal_fisher(model: Variational, nodes: int = 40) -> Matrix:
    """The Fisher of p(x), whose log is that of a sum over the nodes."""
    states, latent, weights = _grid(model, nodes)
    flat, unravel = ravel_pytree(model)

    def log_marginal(parameters: Array) -> Float[Array, " state"]:
        pairs = log_visible(unravel(parameters), states, latent)
        return jax.nn.logsumexp(pairs + jnp.log(weights), axis=1)

    scores, chances = jax.jacrev(log_marginal)(flat), jnp.exp(log_marginal(flat))
    return (scores.T * chances) @ scores


def joint_fisher(model: Variational, nodes: int = 40) -> Matrix:
    """The Fisher of p(x, z)."""
    states, latent, weights = _grid(model, nodes)
    flat, unravel = ravel_pytree(model)
    pairs = lambda parameters: log_visible(unravel(parameters), states, latent).reshape(-1)  # noqa: E731
    chances = (jnp.exp(pairs(flat)).reshape(len(states), -1) * weights).reshape(-1)
    scores = jax.jacrev(pairs)(flat)
    return (scores.T * chances) @ scores


def _grid(model: Variational, nodes: int) -> tuple[Array, Array, Array]:
    """All states, [state, visible]; for each the same nodes, [state, node, latent]; the weights of nodes."""
    visible = model.generation[-1].bias.size if isinstance(model.generation, tuple) else 0
    if model.gaussian or not visible or 2**visible * nodes**model.latent > _LARGEST:
        raise InputError(
            f"an exact Fisher needs a small dense model of binary data, at most {_LARGEST} pairs of a state "
            f"and a node, got {visible or 'filters to'} visible and {model.latent} latent units; use samples"
        )
    kind = jax.tree.leaves(model.generation)[0].dtype
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.array(list(itertools.product(points, repeat=model.latent)))
    products = np.prod(list(itertools.product(weights / weights.sum(), repeat=model.latent)), axis=1)
    states = np.array(list(itertools.product((0.0, 1.0), repeat=visible)))
    latent = np.broadcast_to(grid, (len(states), *grid.shape))
    return tuple(jnp.asarray(found, kind) for found in (states, latent, products))  # type: ignore[return-value]
