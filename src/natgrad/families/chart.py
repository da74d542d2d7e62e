"""Charts of a family, and how tensors change between them.

A chart is a pair of maps to and from the natural parameters, with its Fisher matrix in closed form.
Gradients are covectors (they pull back by the transposed Jacobian), natural gradients are tangent
vectors (they push forward by the Jacobian), and the Fisher is the metric between the two.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.families.family import Family, Natural

Coordinates = Float[Array, " parameter"]
_Matrix = Float[Array, "parameter parameter"]


class Chart(NamedTuple):
    """Coordinates xi of a family: `natural` is theta(xi), `coordinates` is xi(theta), `fisher` is I(xi)."""

    natural: Callable[[Coordinates], Natural]
    coordinates: Callable[[Natural], Coordinates]
    fisher: Callable[[Coordinates], _Matrix]


class Fisher(NamedTuple):
    """The Fisher of a family at a point of a chart, as an operator; only `dense` forms the matrix."""

    family: Family
    chart: Chart
    point: Coordinates

    def mv(self, vector: Coordinates) -> Coordinates:
        """I(xi) v = J^T Hess psi(theta) J v, by differentiation along v: nothing is stored."""
        theta, pushed = jax.jvp(self.chart.natural, (self.point,), (vector,))
        _, raised = jax.jvp(self.family.expectation, (theta,), (pushed,))
        return jax.vjp(self.chart.natural, self.point)[1](raised)[0]

    def dense(self) -> _Matrix:
        """The chart's closed form."""
        return self.chart.fisher(self.point)

    def diagonal(self) -> Coordinates:
        """The diagonal of the closed form."""
        return jnp.diagonal(self.dense())

    def solve(self, gradient: Coordinates) -> Coordinates:
        """I(xi)^-1 g, through the dual chart: see `chart_natural_gradient`."""
        return chart_natural_gradient(self.family, self.chart, self.point, gradient)


def natural_chart(family: Family) -> Chart:
    """theta itself."""
    return Chart(lambda theta: theta, lambda theta: theta, family.natural_fisher)


def expectation_chart(family: Family) -> Chart:
    """eta = E[T]."""
    return Chart(family.natural, family.expectation, family.expectation_fisher)


def change(source: Chart, target: Chart, point: Coordinates) -> Coordinates:
    """The same distribution in another chart."""
    return target.coordinates(source.natural(point))


def push(source: Chart, target: Chart, point: Coordinates, tangent: Coordinates) -> Coordinates:
    """A tangent vector at a point in another chart: the Jacobian times it."""
    return jax.jvp(lambda xi: change(source, target, xi), (point,), (tangent,))[1]


def pull(source: Chart, target: Chart, point: Coordinates, gradient: Coordinates) -> Coordinates:
    """The gradient in `source` of a function whose gradient in `target` is given."""
    return jax.vjp(lambda xi: change(source, target, xi), point)[1](gradient)[0]


def chart_natural_gradient(
    family: Family, chart: Chart, point: Coordinates, gradient: Coordinates
) -> Coordinates:
    """I(xi)^-1 grad F(xi) without a Fisher matrix.

    The gradient is pulled back to theta, where it is the natural gradient in eta already, and that
    tangent vector is pushed forward from eta to the chart. What is needed is the chart's Jacobian to eta.
    """
    natural, expectation = natural_chart(family), expectation_chart(family)
    theta = chart.natural(point)
    tangent = pull(natural, chart, theta, gradient)
    return push(expectation, chart, family.expectation(theta), tangent)


def transformed_fisher(source: Chart, target: Chart, point: Coordinates) -> _Matrix:
    """The Fisher at a point of `target`, from that of `source`: J^T I J with J the Jacobian of the change."""
    jacobian = jax.jacfwd(lambda xi: change(target, source, xi))(point)
    return jacobian.T @ source.fisher(change(target, source, point)) @ jacobian
