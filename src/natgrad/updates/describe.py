"""What a reader wants to know of a step, computed only where it is asked for.

This part of a program runs once per epoch, but it is compiled with every step: so small layers go
together, and all inner products of small vectors come from one matrix product.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad import tree
from natgrad.core import Info, Numbers
from natgrad.layers import stacks
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, UnitBlocks, scaled
from natgrad.metrics.layered import nodes
from natgrad.updates.natural import Solved

Products = Callable[[int, int], Float[Array, ""]]
LARGE = 2**16  # numbers beyond which vectors are not copied side by side


def of_step(info: Info) -> Numbers:
    """Norms and angle of the whole step."""
    plain = info.shaped is info.direction  # the optimizer left the direction as it is
    products = _tree_products([tree.whole(info.gradient), info.direction, *([] if plain else [info.shaped])])
    found = _angle(products(0, 0), products(1, 1), products(0, 1))
    if isinstance(info.scale, jax.Array | float):
        norm = found["direction_norm"] if plain else jnp.sqrt(products(2, 2))
        return found | {"step_norm": jnp.abs(info.scale) * norm}
    return found | {"step_norm": tree.norm(info.update)}


def of_system(info: Info) -> Numbers:
    """What became of the solve of a whole model; the reduction ratio is nan where nobody needed one.

    `step_kl` is the length of the step in nats to second order, (1/2) update^T F update.
    """
    solved: Solved = info.evidence
    length = solved.curvature
    if info.shaped is not info.direction:
        length = tree.vdot(info.shaped, solved.factor.operator.bind().mv(info.shaped))
    evidence = solved.evidence
    return {
        "step_kl": 0.5 * info.scale**2 * length,
        "solver_iterations": evidence.iterations.astype(length.dtype),
        "residual": evidence.residual,
        "damping": evidence.damping,
        "rate": jnp.abs(jnp.asarray(info.scale, length.dtype)),
        "reduction_ratio": evidence.ratio,
    }


def of_layers(*, gain: bool) -> Callable[[Info], Numbers]:
    """Layer by layer: norms and angle, the solver's residual, the condition; and `step_kl` of all.

    `condition` estimates the damped blocks' largest condition number. With `gain`, the right-hand side was
    multiplied by 1 + damping.
    """

    def describe(info: Info) -> Numbers:
        solved: Solved = info.evidence
        found, length = _layers(info, solved, gain)
        iterations = solved.evidence.iterations.astype(length.dtype)
        return found | {"step_kl": 0.5 * info.scale**2 * length, "solver_iterations": iterations}

    return describe


def numbers_by_name(found: dict[str, Any]) -> dict[str, float]:
    """Every number by name: the vector `left.residual` as `left.0.residual` and so on."""
    numbers = {}
    for name, value in found.items():
        if jnp.ndim(value) == 0:
            numbers[name] = float(value)
            continue
        part, _, key = name.rpartition(".")
        numbers |= {f"{part or 'layers'}.{at}.{key}": float(number) for at, number in enumerate(value)}
    return numbers


def _layers(info: Info, solved: Solved, gain: bool) -> tuple[Numbers, Float[Array, ""]]:
    """Numbers for every layer, and the squared length of the optimizer's result in the metric."""
    factor = solved.factor
    columns = [*map(nodes, (info.direction, solved.right, info.shaped, factor.operator.blocks))]
    given = factor.damping  # one for every node, or the same for all
    dampings = given if isinstance(given, tuple) else (given,) * len(columns[0])
    every = list(zip(*columns, dampings, strict=True))
    alone = [each for each in every if not isinstance(each[0], Layer)]
    length = sum(((block * shaped**2).sum() for _, _, shaped, block, _ in alone), jnp.zeros(()))
    layers = [each for each in every if isinstance(each[0], Layer)]
    if not layers:
        return {}, length
    directions, rights, shaped, blocks, dampings = zip(*layers, strict=True)
    together = all(isinstance(each, UnitBlocks) for each in blocks)  # dense ones know no padding
    each = stacks.at_once if together else tree.map_layers
    rows = each(functools.partial(_layer, gain=gain), directions, rights, blocks, dampings)
    numbers = _columns(jnp.stack(rows).T)
    lengths = numbers.pop("length")
    if info.shaped is not info.direction:
        lengths = jnp.stack(each(_length, shaped, blocks))
    return numbers, length + lengths.sum()


def _length(vector: Layer, blocks: Blocks) -> Float[Array, ""]:
    """v^T F v of one layer."""
    return tree.vdot(vector, blocks.mv(vector))


def _layer(
    direction: Layer, gradient: Layer, blocks: Blocks, damping: Array, *, gain: bool
) -> Float[Array, " seven"]:
    """What `_columns` makes numbers of, for one layer."""
    damping = jnp.broadcast_to(damping, gradient.bias.shape)
    seen, leading = blocks.mv(direction), blocks.leading()
    damped = scaled(damping, direction)
    right = scaled(1 + damping, gradient) if gain else gradient
    residual = jax.tree.map(lambda own, added, given: own + added - given, seen, damped, right)
    products = _tree_products([gradient, direction, residual, right, seen])
    condition = jnp.max(jnp.where(damping > 0, 1 + leading / damping, 0))
    return jnp.stack([*map(products, (0, 1, 0, 2, 3, 1), (0, 1, 1, 2, 3, 4)), condition])


def _columns(found: Float[Array, "seven layer"]) -> Numbers:
    """Every layer's norms, angle, relative residual of the solve, condition, the solution's length."""
    gradient, direction, between, residual, right, length, condition = found
    return _angle(gradient, direction, between) | {
        "residual": jnp.sqrt(residual / jnp.maximum(right, 1e-30)),
        "condition": condition,
        "length": length,
    }


def _tree_products(trees: list[Any]) -> Products:
    """The inner products of some trees of the same structure, by their numbers."""
    leaves = [jax.tree.leaves(each) for each in trees]
    large = [number for number, leaf in enumerate(leaves[0]) if leaf.size > LARGE]
    none = jnp.zeros((0,), leaves[0][0].dtype)
    small = [[leaf.ravel() for leaf in each if leaf.size <= LARGE] for each in leaves]
    rows = jnp.stack([jnp.concatenate([none, *each]) for each in small])
    together = rows @ rows.T

    def product(one: int, other: int) -> Float[Array, ""]:
        apart = (jnp.vdot(leaves[one][number], leaves[other][number]) for number in large)
        return sum(apart, together[one, other])

    return product


def _angle(gradient: Array, direction: Array, between: Array) -> Numbers:
    """Norms and cosine, from the squares and the product of gradient and direction."""
    norms = jnp.sqrt(gradient), jnp.sqrt(direction)
    cosine = between / jnp.maximum(norms[0] * norms[1], 1e-30)
    return {"gradient_norm": norms[0], "direction_norm": norms[1], "cosine": cosine}
