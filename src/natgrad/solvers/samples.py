"""Conjugate gradients in sample space, for the units of all layers at once.

With few rows it is cheaper to look for one number per row [nrws eq. 32], as in `natgrad.solvers.dual`:

    (a I + F_j)^{-1} g = (g - R_j s) / a     where     (a I + R_j^T R_j) s = R_j^T g,     R_j = U sqrt(Q_j).

The units of all layers are cut into tiles of equal size, of which each has its layer's U^T U: so an iteration
is a few operations however many layers there are. Their number, more than their size, is what takes time. No
preconditioner: the mean input's eigenvalue, far above the others, takes one iteration. How this differs from
the conjugate gradients of JAX and lineax is said in `natgrad.solvers.unit_cg`. On a mesh whose devices split
units, each has tiles of its own, made of its share of every layer: nothing is sent.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.devices import by_first_axis, parts, placed
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import UnitBlocks
from natgrad.solvers.units import LayerSolution, LayerSystem, needs_rows

UNROLLED = 16  # iterations that are written out: hundreds would compile for minutes
TILE = 50  # units: a divisor of many layers, and enough for an efficient product
SampleVectors = Float[Array, "tile unit row"]
_At = TypeVar("_At")
_Units = Float[Array, "tile unit"]


class Tiles(NamedTuple):
    """The systems of all units; units that fill up a tile have no curvature, and a damping of one."""

    gram: Float[Array, "tile row row"]
    root: SampleVectors
    damping: _Units


class SampleIterate(NamedTuple):
    """Where the iteration is; `power` is the residual's squared length, unit by unit."""

    solution: SampleVectors
    residual: SampleVectors
    direction: SampleVectors
    power: _Units


def solve_in_samples(
    systems: Sequence[LayerSystem], gradients: Sequence[Layer], iterations: int
) -> list[LayerSolution]:
    """The solutions of all layers, which must have the same number of rows.

    Their curvature comes for nothing: R^T x = s + r / a, with r what the iteration leaves in sample space.
    """
    units, devices = [gradient.bias.size for gradient in gradients], parts("units")
    blocks = [*map(needs_rows, [system.blocks for system in systems], itertools.repeat("cg"))]
    tiles = _cut(systems, blocks, devices)
    bias = _tiled([gradient.bias for gradient in gradients], 0, devices)
    seen = _tiled([g.weight @ rows.inputs for rows, g in zip(blocks, gradients, strict=True)], 0, devices)
    end = _iterated(tiles, tiles.root * (seen + bias[..., None]), iterations)
    found = tiles.root * end.solution  # sqrt(Q) s
    squares = _squared(end.solution + end.residual / tiles.damping[..., None])
    untiled = [found, (bias - found.sum(axis=2)) / tiles.damping, squares]
    rows, biases, lengths = (_untiled(each, units, devices) for each in untiled)

    def lifted(number: int) -> LayerSolution:
        system, gradient = systems[number], gradients[number]
        back = gradient.weight - rows[number] @ blocks[number].inputs.T  # g - R s
        value = Layer(back * (1 / system.damping)[:, None], biases[number])
        return LayerSolution(value, iterations, lengths[number].sum())

    return [lifted(number) for number in range(len(systems))]


def _cut(systems: Sequence[LayerSystem], blocks: Sequence[UnitBlocks], devices: int) -> Tiles:
    counts = [_tiles(len(rows.curvature), devices) for rows in blocks]
    grams = itertools.starmap(itertools.repeat, zip([rows.gram() for rows in blocks], counts, strict=True))
    root = jnp.sqrt(_tiled([rows.curvature for rows in blocks], 0, devices))
    damping = _tiled([system.damping for system in systems], 1, devices)
    own = jnp.stack([*itertools.chain(*grams)])
    every = own if devices == 1 else _on_every_device(own, devices)
    return Tiles(every, root, damping)


def _on_every_device(tiles: Float[Array, "tile row row"], devices: int) -> Float[Array, "every row row"]:
    """The same tiles for every device that splits units."""
    whole = placed(tiles, *(None,) * tiles.ndim)
    copies = jnp.broadcast_to(whole, (devices, *whole.shape))
    return by_first_axis(by_first_axis(copies, "units").reshape(-1, *whole.shape[1:]), "units")


def _share(units: int, devices: int) -> int:
    """The units of a layer that a device has, at most."""
    return -(-units // devices)


def _tiles(units: int, devices: int) -> int:
    """The tiles of a layer on a device."""
    return -(-_share(units, devices) // TILE)


def _tiled(layers: Sequence[Array], filling: float, devices: int) -> Array:
    """Layers below each other, each filled up to whole tiles; device by device, where several split units."""
    if devices == 1:
        filled = [_filled(layer, TILE * _tiles(len(layer), 1), filling) for layer in layers]
        pieces = [*itertools.chain(*filled)]
        return jnp.concatenate(pieces).reshape(-1, TILE, *layers[0].shape[1:])
    shares = []
    for layer in layers:
        whole = jnp.concatenate(_filled(layer, devices * _share(len(layer), devices), filling))
        own = by_first_axis(whole.reshape(devices, -1, *layer.shape[1:]), "units")
        missing = TILE * _tiles(len(layer), devices) - own.shape[1]
        shares += [own, jnp.full((devices, missing, *layer.shape[1:]), filling, layer.dtype)]
    side_by_side = by_first_axis(jnp.concatenate(shares, axis=1), "units")
    return by_first_axis(side_by_side.reshape(-1, TILE, *layers[0].shape[1:]), "units")


def _filled(layer: Array, units: int, filling: float) -> list[Array]:
    return [layer, jnp.full((units - len(layer), *layer.shape[1:]), filling, layer.dtype)]


def _untiled(tiles: Array, sizes: Sequence[int], devices: int) -> list[Array]:
    """The layers again, from tiles of them."""
    rest = tiles.shape[2:]
    shares = tiles.reshape(devices, -1, *rest)
    starts = itertools.accumulate((TILE * _tiles(size, devices) for size in sizes), initial=0)
    found = []
    for start, size in zip(starts, sizes, strict=False):
        own = shares[:, start : start + _share(size, devices)].reshape(-1, *rest)[:size]
        found.append(own if devices == 1 else by_first_axis(own, "units"))
    return found


def _iterated(tiles: Tiles, right: SampleVectors, iterations: int) -> SampleIterate:
    """Conjugate gradients from zero."""
    damping = tiles.damping[..., None]

    def turn(at: SampleIterate) -> SampleIterate:
        product = tiles.root * ((tiles.root * at.direction) @ tiles.gram) + damping * at.direction
        step = quotient(at.power, (at.direction * product).sum(axis=2))[..., None]
        residual = at.residual - step * product
        power = _squared(residual)
        turned = residual + quotient(power, at.power)[..., None] * at.direction
        return SampleIterate(at.solution + step * at.direction, residual, turned, power)

    start = SampleIterate(jnp.zeros_like(right), right, right, _squared(right))
    return repeat_turn(iterations, turn, start)


def repeat_turn(times: int, turn: Callable[[_At], _At], at: _At) -> _At:
    """The same turn so many times: unrolled, which is faster, where that compiles quickly, else a loop."""
    if times > UNROLLED:
        return jax.lax.fori_loop(0, times, lambda _, at: turn(at), at)
    for _ in range(times):
        at = turn(at)
    return at


def _squared(rows: SampleVectors) -> _Units:
    return (rows * rows).sum(axis=2)


def quotient(above: Array, below: Array) -> Array:
    """A quotient that is finite where there is nothing left to do."""
    return above / jnp.where(below > 0, below, 1)
