"""What a reader wants to know of a step, computed only where it is asked for."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad import tree
from natgrad.core import Info
from natgrad.metrics.blocks import Blocks, dot, scaled
from natgrad.models.bernoulli import Layer
from natgrad.updates import truncated_newton
from natgrad.updates.natural import Evidence, Measured

Scalars = dict[str, Float[Array, ""]]


def diagnose(info: Info) -> Scalars:
    """Norms and angle of the whole step; for natural directions also per layer, with the solver's residual.

    `step_kl` is the length of the step in nats to second order, (1/2) update^T F update; `condition` an
    estimate of the damped blocks' largest condition number.
    """
    found = {
        "gradient_norm": tree.norm(info.gradient),
        "direction_norm": tree.norm(info.direction),
        "step_norm": tree.norm(info.update),
        "cosine": _cosine(info.gradient, info.direction),
    }
    if isinstance(info.evidence, Evidence):
        found |= _natural(info, info.evidence)
    if isinstance(info.evidence, truncated_newton.Evidence):
        found |= _truncated(info.evidence)
    return found


def _truncated(evidence: truncated_newton.Evidence) -> Scalars:
    """What became of a truncated step; the reduction ratio is nan where nobody needed one."""
    return {
        "step_kl": evidence.divergence,
        "solver_iterations": evidence.iterations.astype(evidence.damping.dtype),
        "residual": evidence.residual,
        "damping": evidence.damping,
        "rate": evidence.rate,
        "reduction_ratio": evidence.ratio,
    }


def _natural(info: Info, evidence: Evidence) -> Scalars:
    fisher = evidence.fisher
    found: Scalars = {"step_kl": 0.5 * tree.vdot(info.update, fisher.mv(info.update))}
    counts = [jnp.asarray(count) for count in evidence.iterations]
    found["solver_iterations"] = (
        jnp.max(jnp.stack(counts)).astype(found["step_kl"].dtype) if counts else jnp.zeros(())
    )
    for name in ("generation", "recognition"):
        stack = getattr(fisher, name)
        for number, blocks in enumerate(stack or ()):
            parts = (evidence.factors, evidence.gradient, evidence.solution)
            layer = tuple(getattr(part, name)[number] for part in parts)
            found |= {f"{name}.{number}.{key}": value for key, value in _layer(blocks, *layer).items()}
    return found


def _layer(blocks: Blocks, measured: Measured, gradient: Layer, direction: Layer) -> Scalars:
    """One layer: norms, angle, relative residual of the solve, condition estimate."""
    damping = measured.damping
    right = scaled(1 + damping, gradient)
    residual = tree.subtract(tree.add(blocks.mv(direction), scaled(damping, direction)), right)
    return {
        "gradient_norm": tree.norm(gradient),
        "direction_norm": tree.norm(direction),
        "cosine": _cosine(gradient, direction),
        "residual": tree.norm(residual) / jnp.maximum(tree.norm(right), 1e-30),
        "condition": jnp.max((_largest(blocks, direction) + damping) / damping),
    }


def _largest(blocks: Blocks, vector: Layer) -> Float[Array, " out"]:
    """The largest eigenvalue of every block, from below, by three power iterations."""
    for _ in range(3):
        image = blocks.mv(vector)
        vector = scaled(1 / jnp.sqrt(jnp.maximum(dot(image, image), 1e-30)), image)
    return dot(vector, blocks.mv(vector))


def _cosine(left: Any, right: Any) -> Float[Array, ""]:
    return tree.vdot(left, right) / jnp.maximum(tree.norm(left) * tree.norm(right), 1e-30)
