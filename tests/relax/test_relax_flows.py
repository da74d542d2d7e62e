"""Flows end where theory says, are the same in every chart, and can be drawn; expressions are read."""

import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.errors import InputError
from natgrad.families import chart, gaussian
from natgrad.families.gaussian_charts import deviation_chart, moment_chart
from natgrad.families.independence import Independence, probability_chart
from natgrad.families.interactions import pairwise
from natgrad.geometry import flows
from natgrad.relax import examples
from natgrad.relax.expressions import parse
from natgrad.relax.relaxation import enumerated_mean, gaussian_expectation

TOY = parse("x1 + 2 x2 + 3 x1 x2")
MEMBER = Independence(2)
VALUE = enumerated_mean(TOY, MEMBER)
STARTS = jnp.array([[0.5, 0.2], [0.1, 0.6]])  # one in each basin of the natural flow


def ends(found):
    return np.stack([path.points[-1] for path in found])


@pytest.mark.slow
def test_natural_flows_end_at_vertices_and_are_the_same_curves_in_mu_and_theta():
    mu, theta = probability_chart(MEMBER), chart.natural_chart(MEMBER)
    there = flows.integrate(flows.natural_field(VALUE, mu), STARTS, 3.0, frames=20)
    np.testing.assert_allclose(ends(there), [[1, 0], [0, 1]], atol=1e-2)
    starts = jnp.stack([mu.natural(point) for point in STARTS])
    here = flows.integrate(flows.natural_field(VALUE, theta), starts, 3.0, frames=20)
    for left, right in zip(there, here, strict=True):
        np.testing.assert_allclose(left.points, np.asarray(mu.coordinates(right.points)), atol=1e-4)
    wrong = flows.integrate(flows.natural_field(VALUE, theta), jnp.array([[-0.6, 0.2]]), 2.0, frames=4)
    assert np.all(ends(wrong)[0] * [-1, 1] > 1)  # to (-1, +1), where another family finds the minimum


@pytest.mark.slow
def test_the_vanilla_flow_in_mu_leaves_the_square():
    def inside(point):
        return jnp.all((point > 0) & (point < 1))

    found = flows.integrate(
        flows.vanilla_field(VALUE, probability_chart(MEMBER)), STARTS, 3.0, frames=20, inside=inside
    )
    assert all(path.left for path in found)
    for path in found:
        assert all(map(inside, path.points))
        assert np.min(np.abs(path.points[-1] - np.array([[0.0], [1.0]]))) < 1e-12  # it stopped at an edge


@pytest.mark.parametrize("frames", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flow_stops_at_the_edge_of_its_domain_however_far_a_step_goes(frames):
    """Straight lines are followed in steps of any length; they end where they cross the circle."""
    starts = jnp.array([[0.0, 0.0], [0.6, 0.0], [-0.6, 0.0]])
    directions = jnp.array([0.3, 0.4])
    found = flows.integrate(
        lambda point: directions, starts, 50.0, frames=frames, inside=lambda point: point @ point < 1
    )
    for path, start in zip(found, np.asarray(starts), strict=True):
        end = path.points[-1]
        assert path.left
        assert np.all(np.sum(path.points**2, axis=1) < 1)
        np.testing.assert_allclose(end @ end, 1, rtol=1e-12)
        np.testing.assert_allclose(end, start + path.times[-1] * np.asarray(directions), rtol=1e-6)
        assert np.all(np.diff(path.times) >= 0)


@pytest.mark.slow
def test_a_flow_that_shrinks_a_variance_keeps_it_positive():
    member = gaussian.diagonal_gaussian(1)
    used = moment_chart(member)
    value = gaussian_expectation(parse("x - 3x^2"), member)
    (path,) = flows.integrate(
        flows.vanilla_field(value, used, sign=1.0),
        jnp.array([[0.5, 1.0]]),
        5.0,
        frames=50,
        inside=lambda point: point[1] > 0,
    )
    assert path.left
    assert 0 < path.points[-1, 1] < 1e-9
    assert np.all(path.points[:, 1] > 0)


@pytest.mark.slow
def test_a_flow_that_stays_is_whole():
    inside = lambda point: jnp.all(jnp.abs(point) < 2)  # noqa: E731
    (path,) = flows.integrate(lambda point: -point, jnp.array([[1.0, 1.0]]), 1.0, frames=9, inside=inside)
    assert (path.left, len(path.points), path.times[-1]) == (False, 9, 1.0)
    np.testing.assert_allclose(path.points[-1], np.exp(-1), rtol=1e-6)


def test_a_start_outside_is_refused():
    inside = lambda point: jnp.all(jnp.abs(point) < 2)  # noqa: E731
    with pytest.raises(InputError, match="starts inside its domain, got start 1 outside"):
        flows.integrate(lambda point: -point, jnp.array([[1.0, 1.0], [3.0, 0.0]]), 1.0, inside=inside)


def test_over_a_family_that_spans_f_the_flow_is_a_line_to_the_global_minimum():
    """From a start in the independence model's basin of the local minimum (-1, +1)."""
    member = pairwise(2)
    field = flows.natural_field(enumerated_mean(TOY, member), chart.natural_chart(member))
    start = jnp.array([[-0.6, 0.2, 0.0]])
    (path,) = flows.integrate(field, start, 2.0, frames=4)
    np.testing.assert_allclose(path.points[-1], start[0] - 2 * jnp.array([1.0, 2.0, 3.0]), rtol=1e-4)
    points = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    chances = np.exp(np.asarray(member.statistics(jnp.asarray(points))) @ path.points[-1])
    assert chances[1] / chances.sum() > 0.9


@pytest.mark.slow
def test_polarization_ends_at_its_extrema_and_likelihood_at_the_estimate(tmp_path):
    found = examples.draw_polarization(tmp_path / "flow.png")["ends"]
    halves, points = [[0.5, 0.5], [0, 0.5], [0.5, 0]], [[1, 0], [0, 1], [0, 0]]
    for name, extrema in (("maximization", halves), ("minimization", points)):
        places = np.array(found[f"natural, {name}"])
        uneven = places[
            np.abs(places - 1 / 3).max(axis=1) > 0.02
        ]  # symmetric starts end at the uniform distribution
        assert len(uneven) > len(places) / 2
        assert np.abs(uneven[:, None] - np.array(extrema)).max(axis=2).min(axis=1).max() < 1e-2
    ascent = examples.draw_likelihood(tmp_path / "flow.png")["ends"]
    for places in ascent.values():
        np.testing.assert_allclose(places, [[examples.MEAN, examples.DEVIATION]] * len(places), atol=1e-3)


@pytest.mark.slow
def test_gaussian_flows_climb_to_the_maxima_and_their_basins_differ():
    member = gaussian.diagonal_gaussian(1)
    used = deviation_chart(member)
    value = gaussian_expectation(parse("6x + 8x^2 - x^3 - 2x^4"), member)
    start = jnp.array([[-1.2, 1.0]])
    (natural,) = flows.integrate(flows.natural_field(value, used, sign=1.0), start, 200.0, frames=5)
    (plain,) = flows.integrate(flows.vanilla_field(value, used, sign=1.0), start, 5.0, frames=5)
    assert abs(natural.points[-1, 0] - np.sqrt(2)) < 0.02
    assert abs(plain.points[-1, 0] + np.sqrt(2)) < 0.02


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("x - 3x^2", {(0,): 1, (0, 0): -3}),
        ("6*x + 8*x**2 - x^3 - 2 x^4", {(0,): 6, (0, 0): 8, (0, 0, 0): -1, (0, 0, 0, 0): -2}),
        ("x1 + 2 x2 - 3 x1^2 - 2 x1 x2", {(0,): 1, (1,): 2, (0, 0): -3, (0, 1): -2}),
        ("-1.5 + x2 x1", {(): -1.5, (0, 1): 1}),
    ],
)
def test_expressions_are_read(text, terms):
    found = parse(text)
    assert dict(zip(found.terms, found.coefficients, strict=True)) == terms


@pytest.mark.parametrize("text", ["", "y + 1", "x1 +", "x0", "x1 2 x2", "sin(x)"])
def test_other_expressions_are_refused(text):
    with pytest.raises(InputError, match="expected a polynomial"):
        parse(text)
