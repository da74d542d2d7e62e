"""The blocks of hidden units as rows in sample space: no block is ever stored.

The weights and the bias of hidden unit j have the statistics h_j u, u = (v, 1). From n samples their block is

    F_j = R_j^T R_j,     row i of R_j = (h_ji u_i - mean) / sqrt n,
    R_j R_j^T = C (h_j h_j^T * K) C / n,     K_ik = u_i . u_k,     C takes means off,

n^2 numbers for every unit where the block has (visible + 1)^2. K is shared by all units, and a product with
all R_j is one product of matrices.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.devices import placed
from natgrad.layers.bernoulli import Layer
from natgrad.models.rbm.fisher import SampledFisher
from natgrad.models.rbm.units import UnitRows


def unit_grams(operator: SampledFisher) -> Float[Array, "hidden sample sample"]:
    """R_j R_j^T of every hidden unit."""
    visible, hidden = placed(operator.visible, None, None), placed(operator.hidden, "units", None)
    whole = hidden[:, :, None] * (visible.T @ visible + 1) * hidden[:, None, :]
    rows = whole - whole.mean(axis=1, keepdims=True)
    return placed((rows - rows.mean(axis=2, keepdims=True)) / visible.shape[1], "units", None, None)


def unit_push(operator: SampledFisher, vector: Layer) -> UnitRows:
    """R_j x_j of every hidden unit."""
    return _apart(operator.hidden * (vector.weight @ operator.visible + vector.bias[:, None]))


def unit_pull(operator: SampledFisher, rows: UnitRows) -> Layer:
    """R_j^T s_j of every hidden unit."""
    above = operator.hidden * _apart(rows)
    return Layer(above @ operator.visible.T, above.sum(axis=1))


def _apart(rows: UnitRows) -> UnitRows:
    """Rows less their mean, over the root of their number."""
    return (rows - rows.mean(axis=1, keepdims=True)) / jnp.sqrt(jnp.asarray(rows.shape[1], rows.dtype))
