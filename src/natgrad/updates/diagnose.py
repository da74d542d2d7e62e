"""What a reader wants to know of a step, computed only where it is asked for.

This part of a program runs once per epoch, but it is compiled with every step: so small layers go
together, and all inner products of small vectors come from one matrix product.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad import tree
from natgrad.core import Info
from natgrad.layers import stacks
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, UnitBlocks, scaled
from natgrad.updates import truncated_newton
from natgrad.updates.natural import Evidence

Numbers = dict[str, Float[Array, "..."]]
Products = Callable[[int, int], Float[Array, ""]]
LARGE = 2**16  # numbers beyond which vectors are not copied side by side


def diagnose(info: Info) -> Numbers:
    """Norms and angle of the whole step; for natural directions also per layer, with the solver's residual.

    `step_kl` is the length of the step in nats to second order, (1/2) update^T F update; `condition` an
    estimate of the damped blocks' largest condition number. What there is for every layer is a vector.
    """
    products = _tree_products([info.gradient, info.direction, *([] if plain(info) else [info.shaped])])
    found = _angle(products(0, 0), products(1, 1), products(0, 1))
    found["step_norm"] = jnp.abs(info.scale) * (
        found["direction_norm"] if plain(info) else jnp.sqrt(products(2, 2))
    )
    if isinstance(info.evidence, Evidence):
        found |= _natural(info, info.evidence)
    if isinstance(info.evidence, truncated_newton.Evidence):
        found |= _truncated(info.evidence)
    return found


def plain(info: Info) -> bool:
    """Whether the optimiser left the direction as it is: then the step is known from it."""
    return info.shaped is info.direction


def named(found: dict[str, Any]) -> dict[str, float]:
    """Every number by name: the vector `generation.residual` as `generation.0.residual` and so on."""
    numbers = {}
    for name, value in found.items():
        if jnp.ndim(value) == 0:
            numbers[name] = float(value)
            continue
        network, key = name.split(".")
        numbers |= {f"{network}.{layer}.{key}": float(number) for layer, number in enumerate(value)}
    return numbers


def _truncated(evidence: truncated_newton.Evidence) -> Numbers:
    """What became of a truncated step; the reduction ratio is nan where nobody needed one."""
    return {
        "step_kl": evidence.divergence,
        "solver_iterations": evidence.iterations.astype(evidence.damping.dtype),
        "residual": evidence.residual,
        "damping": evidence.damping,
        "rate": evidence.rate,
        "reduction_ratio": evidence.ratio,
    }


def _natural(info: Info, evidence: Evidence) -> Numbers:
    fisher = evidence.fisher
    found: Numbers = {}
    length = jnp.zeros(()) if fisher.prior is None else (fisher.prior * info.shaped.prior**2).sum()
    if fisher.networks:
        parts = (evidence.solution, evidence.gradient, fisher, evidence.factors)
        *vectors, blocks, measured = (fisher.layers(part) for part in parts)
        together = all(isinstance(each, UnitBlocks) for each in blocks)  # dense ones know no padding
        each = stacks.at_once if together else tree.map_layers
        rows = each(_layer, *vectors, blocks, tuple(layer.damping for layer in measured))
        columns = _columns(jnp.stack(rows).T)
        lengths = columns.pop("length")
        if info.shaped is not evidence.solution:
            lengths = jnp.stack(each(_length, fisher.layers(info.shaped), blocks))
        length = length + lengths.sum()
        found = _apart(columns, {name: len(getattr(fisher, name)) for name in fisher.networks})
    counts = jnp.stack([jnp.zeros((), jnp.int32), *evidence.iterations])
    iterations = jnp.max(counts).astype(length.dtype)
    return found | {"step_kl": 0.5 * info.scale**2 * length, "solver_iterations": iterations}


def _length(vector: Layer, blocks: Blocks) -> Float[Array, ""]:
    """v^T F v of one layer."""
    return tree.vdot(vector, blocks.mv(vector))


def _apart(columns: Numbers, layers: dict[str, int]) -> Numbers:
    """The layers of each network, of columns that hold those of all, one network after the other."""
    found: Numbers = {}
    start = 0
    for name, count in layers.items():
        found |= {f"{name}.{key}": column[start : start + count] for key, column in columns.items()}
        start += count
    return found


def _layer(direction: Layer, gradient: Layer, blocks: Blocks, damping: Array) -> Float[Array, " seven"]:
    """What `_columns` makes numbers of, for one layer."""
    damping = jnp.broadcast_to(damping, gradient.bias.shape)
    seen = blocks.mv(direction)
    right = scaled(1 + damping, gradient)
    residual = tree.subtract(tree.add(seen, scaled(damping, direction)), right)
    products = _tree_products([gradient, direction, residual, right, seen])
    condition = jnp.max(jnp.where(damping > 0, 1 + blocks.leading() / damping, 0))
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
