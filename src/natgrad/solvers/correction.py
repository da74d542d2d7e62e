"""Solvers around a solver: what is done with an exact solution before it becomes a step.

`anchored` measures the damping from a guess instead of from zero. With the guess a share of the last
direction, that is SPRING [goldshlager2024]: momentum in the null space, where the residuals do not speak,

    x = argmin |R x - rho|^2 + damping |x - guess|^2 = guess + (damping I + F)^{-1} (g - F guess).

`accelerated` adds half the acceleration along the geodesic that the step begins [transtrum2012]: where
residuals bend, the straight step leaves the valley and the bent one follows it.
"""

from jaxtyping import Array

from natgrad import tree
from natgrad.core import Factor, Model, Product, Solution, Solver
from natgrad.errors import InputError


def anchored(solver: Solver) -> Solver:
    """From a guess: what an exact solver adds to it, and not a place to start iterating."""

    def solve(factor: Factor, gradient: Model, guess: Model | None) -> Solution:
        if guess is None:
            return solver.solve(factor, gradient, None)
        product = factor.operator.bind()
        found = solver.solve(factor, tree.subtract(gradient, product.mv(guess)), None)
        value = tree.add(guess, found.value)
        return found._replace(value=value, curvature=_length(product, value))

    return Solver(solver.prepare, solve)


def accelerated(solver: Solver, *, most: float = 0.75) -> Solver:
    """With half the acceleration, where twice the acceleration is at most that share of the step."""

    def solve(factor: Factor, gradient: Model, guess: Model | None) -> Solution:
        if not hasattr(factor.operator, "bend"):
            raise InputError(
                "acceleration needs the metric of residuals, and this one is another; leave it out"
            )
        found = solver.solve(factor, gradient, guess)
        bent = solver.solve(factor, factor.operator.bend(found.value), None).value
        small = tree.norm(bent) * 2 <= most * tree.norm(found.value)  # false where it is not finite
        value = tree.select(small, tree.axpy(0.5, bent, found.value), found.value)
        return found._replace(value=value, curvature=_length(factor.operator.bind(), value))

    return Solver(solver.prepare, solve)


def _length(product: Product, vector: Model) -> Array:
    """v^T F v, without a reverse pass where there is a factor."""
    if product.push is None:
        return tree.vdot(vector, product.mv(vector))
    pushed = product.push(vector)
    return pushed @ pushed
