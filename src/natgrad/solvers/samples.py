"""Conjugate gradients in sample space, for the units of all layers at once.

With few rows it is cheaper to look for one number per row [nrws eq. 32], as in `natgrad.solvers.dual`:

    (a I + F_j)^{-1} g = (g - R_j s) / a     where     (a I + R_j^T R_j) s = R_j^T g,     R_j = U sqrt(Q_j).

The units of all layers are cut into tiles of equal size, of which each has its layer's U^T U: so an iteration
is a few operations however many layers there are. Their number, more than their size, is what takes time. No
preconditioner: the mean input's eigenvalue, far above the others, takes one iteration. How this differs from
the conjugate gradients of JAX and lineax is said in `natgrad.solvers.krylov`.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.metrics.blocks import UnitBlocks
from natgrad.models.bernoulli import Layer
from natgrad.solvers.contract import Damping
from natgrad.solvers.dual import gram

TILE = 50  # units: a divisor of many layers, and enough for an efficient product
Rows = Float[Array, "tile unit row"]
Units = Float[Array, "tile unit"]


class System(NamedTuple):
    """What is to be solved for one layer: nothing is prepared, all is done in passing."""

    blocks: UnitBlocks
    damping: Damping


class Tiles(NamedTuple):
    """The systems of all units; units that fill up a tile have no curvature, and a damping of one."""

    gram: Float[Array, "tile row row"]
    root: Rows
    damping: Units


class Iterate(NamedTuple):
    """Where the iteration is; `power` is the residual's squared length, unit by unit."""

    solution: Rows
    residual: Rows
    direction: Rows
    power: Units


def solve_in_samples(systems: Sequence[System], gradients: Sequence[Layer], iterations: int) -> list[Layer]:
    """The solutions of all layers, which must have the same number of rows."""
    places = _places([gradient.bias.size for gradient in gradients])
    tiles = _cut(systems)
    bias = _tiled([gradient.bias for gradient in gradients], 0)
    seen = _tiled([g.weight @ system.blocks.inputs for system, g in zip(systems, gradients, strict=True)], 0)
    found = tiles.root * _iterated(tiles, tiles.root * (seen + bias[..., None]), iterations)  # sqrt(Q) s
    rows, bias = found.reshape(-1, found.shape[2]), (bias - found.sum(axis=2)) / tiles.damping

    def lifted(system: System, gradient: Layer, place: slice) -> Layer:
        back = gradient.weight - rows[place] @ system.blocks.inputs.T  # g - R s
        return Layer(back * (1 / system.damping)[:, None], bias.reshape(-1)[place])

    return [lifted(*one) for one in zip(systems, gradients, places, strict=True)]


def _cut(systems: Sequence[System]) -> Tiles:
    grams = ([gram(blocks)] * _tiles(damping.size) for blocks, damping in systems)
    root = jnp.sqrt(_tiled([system.blocks.curvature for system in systems], 0))
    damping = _tiled([system.damping for system in systems], 1)
    return Tiles(jnp.stack([*itertools.chain(*grams)]), root, damping)


def _tiles(units: int) -> int:
    return -(-units // TILE)


def _places(sizes: Sequence[int]) -> list[slice]:
    """Where every layer is among the units of all tiles."""
    starts = itertools.accumulate((TILE * _tiles(size) for size in sizes), initial=0)
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)]


def _tiled(layers: Sequence[Array], filling: float) -> Array:
    """Layers below each other, each filled up to whole tiles."""
    pieces = []
    for layer in layers:
        missing = TILE * _tiles(layer.shape[0]) - layer.shape[0]
        pieces += [layer, jnp.full((missing, *layer.shape[1:]), filling, layer.dtype)]
    return jnp.concatenate(pieces).reshape(-1, TILE, *layers[0].shape[1:])


def _iterated(tiles: Tiles, right: Rows, iterations: int) -> Rows:
    """Conjugate gradients from zero."""
    damping = tiles.damping[..., None]
    at = Iterate(jnp.zeros_like(right), right, right, _squared(right))
    for _ in range(iterations):
        product = tiles.root * ((tiles.root * at.direction) @ tiles.gram) + damping * at.direction
        step = quotient(at.power, (at.direction * product).sum(axis=2))[..., None]
        residual = at.residual - step * product
        power = _squared(residual)
        turned = residual + quotient(power, at.power)[..., None] * at.direction
        at = Iterate(at.solution + step * at.direction, residual, turned, power)
    return at.solution


def _squared(rows: Rows) -> Units:
    return (rows * rows).sum(axis=2)


def quotient(above: Array, below: Array) -> Array:
    """A quotient that is finite where there is nothing left to do."""
    return above / jnp.where(below > 0, below, 1)
