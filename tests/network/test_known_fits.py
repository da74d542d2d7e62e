"""`natgrad.least_squares` on reference problems of NIST: certified minima, whatever the units [nist]."""

import jax.numpy as jnp
import numpy as np
import pytest

import natgrad


def column(text):
    return np.array(text.split(), float)


MISRA = (
    column("77.6 114.9 141.1 190.8 239.9 289.0 332.8 378.4 434.8 477.3 536.8 593.1 689.1 760.0"),
    column("10.07 14.73 17.94 23.93 29.61 35.18 40.02 44.82 50.76 55.05 61.01 66.40 75.47 81.78"),
)
MEYER = (
    np.arange(50.0, 126.0, 5.0),
    column("34780 28610 23650 19630 16370 13720 11540 9744 8261 7030 6005 5147 4427 3820 3307 2872"),
)
OXYGEN = column("1 2 3 5 7 10"), column("109 149 149 191 213 224")


def saturating(p, data):
    x, y = data
    return p[0] * (1 - jnp.exp(-p[1] * x)) - y


def exponential(p, data):
    x, y = data
    return p[0] * jnp.exp(p[1] / (x + p[2])) - y


KNOWN = {  # residuals, data, start, certified parameters, their certified standard errors
    "Misra1a, far": (saturating, MISRA, (500, 1e-4), (238.94212918, 5.5015643181e-4)),
    "Misra1a, near": (saturating, MISRA, (250, 5e-4), (238.94212918, 5.5015643181e-4)),
    "BoxBOD": (saturating, OXYGEN, (100, 0.75), (213.80940889, 0.54723748542)),
    "MGH10": (exponential, MEYER, (0.02, 4000, 250), (5.6096364710e-3, 6181.3463463, 345.22363462)),
}
ERRORS = {
    "Misra1a, near": (2.7070075241, 7.2668688436e-6),
    "BoxBOD": (12.354515176, 0.10455993237),
    "MGH10": (1.5687892471e-4, 23.309021107, 0.78486103508),
}
FAST = ("Misra1a, far", "BoxBOD")
SOME = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in KNOWN]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.few(1)
def test_a_fit_that_is_called_a_success_is_at_the_certified_minimum(name):
    residuals, data, start, certified = KNOWN[name]
    found = natgrad.least_squares(residuals, jnp.asarray(start, float), data)
    assert found.success
    np.testing.assert_allclose(found.parameters, certified, rtol=1e-6)
    assert found.cosine < 1e-5
    if name in ERRORS:
        np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), ERRORS[name], rtol=1e-4)


@pytest.mark.few(1)
def test_units_of_parameters_do_not_matter():
    """The same steps, in meters or in millimeters."""
    fits, start, units = [], jnp.asarray([250, 5e-4]), jnp.asarray([2.0**20, 2.0**-30])
    for unit in (jnp.ones(2), units):
        measured = lambda p, data, unit=unit: saturating(p * unit, data)  # noqa: E731
        fits.append(natgrad.least_squares(measured, start / unit, MISRA, steps=6))
    np.testing.assert_allclose(fits[0].history["loss"], fits[1].history["loss"], rtol=1e-6)
    np.testing.assert_allclose(fits[0].parameters, fits[1].parameters * units, rtol=1e-6)


def test_a_fit_that_is_stuck_away_from_a_minimum_is_no_success():
    """One parameter has lost its effect: the residuals are far from right angles to the other's."""
    found = natgrad.least_squares(saturating, jnp.asarray([1.0, 1.0]), OXYGEN)
    assert not found.success
    assert found.status < 0
    assert found.cosine > 0.001
    assert "not at a minimum" in found.message


def test_everything_is_of_the_parameters_that_are_returned():
    fit = lambda p, x: x @ p - 1.0  # noqa: E731
    x = jnp.asarray(np.random.default_rng(0).normal(size=(30, 4)))
    one = natgrad.least_squares(fit, jnp.zeros(4), x, method="gauss-newton", steps=1)
    gradient = np.asarray(x).T @ np.asarray(fit(one.parameters, x)) / 30
    np.testing.assert_allclose(one.optimality, np.abs(gradient).max(), rtol=1e-6, atol=1e-12)
    assert (one.status, one.nit, one.accepted) == (0, 1, 1)
    enough = natgrad.least_squares(
        fit, jnp.zeros(4), x, method="gauss-newton", steps=1, target=1.01 * one.loss
    )
    assert enough.success
    again = natgrad.least_squares(fit, jnp.zeros(4), x, method="gauss-newton", target=1.01 * one.loss)
    assert (again.success, again.nit, again.accepted) == (True, 1, 1)


@pytest.mark.timeout(300)
def test_residuals_of_no_weight_do_not_count_as_measurements():
    """The covariance is that of the fit without them."""
    x = jnp.linspace(0.0, 1.0, 12)
    measured = 1 + 2 * x + 0.1 * jnp.cos(40 * x)
    line = lambda p, b: {"seen": p[0] + p[1] * x - measured, "unseen": p[0] * jnp.ones(200)}  # noqa: E731
    weighted = natgrad.least_squares(line, jnp.zeros(2), weights={"seen": 1.0, "unseen": 0.0})
    alone = natgrad.least_squares(lambda p, b: line(p, b)["seen"], jnp.zeros(2))
    np.testing.assert_allclose(weighted.covariance, alone.covariance, rtol=1e-6)
