"""Geodesics of the two flat connections of any exponential family.

e-geodesics are straight lines in theta, m-geodesics straight lines in eta. A line in theta of the discrete
families never ends; one in eta ends at the boundary, and one in theta of a Gaussian where Theta is no longer
negative definite. The steps of `natgrad.geometry.retractions` stay inside whatever their length.
"""

from jaxtyping import Array, Float

from natgrad.families.family import Expectation, Family, Natural

_Time = float | Float[Array, ""]


def e_exponential(theta: Natural, tangent: Natural, time: _Time = 1.0) -> Natural:
    """theta + t v, for a tangent vector in theta."""
    return theta + time * tangent


def m_exponential(eta: Expectation, tangent: Expectation, time: _Time = 1.0) -> Expectation:
    """eta + t v, for a tangent vector in eta."""
    return eta + time * tangent


def e_geodesic(left: Natural, right: Natural, time: _Time) -> Natural:
    """The distribution at time t in [0, 1] between two: p_left^(1 - t) p_right^t, normalized."""
    return (1 - time) * left + time * right


def m_geodesic(family: Family, left: Natural, right: Natural, time: _Time) -> Natural:
    """The distribution of the family, in theta, whose expectations are (1 - t) eta_left + t eta_right."""
    return family.natural((1 - time) * family.expectation(left) + time * family.expectation(right))
