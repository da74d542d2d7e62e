"""Fits of the same residuals, one after the other: nothing is compiled twice, and nothing is out of date."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natgrad
from natgrad.fitting import programs
from natgrad.fitting.methods import method_of

START = {"height": 0.5, "rate": 0.5}
OUTSIDE = {"scale": 1.0, "times": np.linspace(0, 1, 2000)}


def decay(p, times):
    return p["height"] * jnp.exp(-p["rate"] * times)


def plain(p, batch):
    return decay(p, OUTSIDE["times"]) - OUTSIDE["scale"] * np.exp(-OUTSIDE["times"])


def compiled_inside(p, batch):
    return jax.jit(lambda q: plain(q, batch))(p)


def in_a_loop(p, batch):
    """The numbers from outside are those of a body."""
    seen = jnp.asarray(OUTSIDE["times"][::100])
    body = lambda carry, t: (carry, decay(p, t) - OUTSIDE["scale"] * jnp.exp(-t))  # noqa: E731
    return jax.lax.scan(body, 0.0, seen)[1]


def height_of(residuals, batch=None):
    return float(natgrad.least_squares(residuals, START, batch).parameters["height"])


@pytest.mark.timeout(300)
def test_a_second_fit_starts_at_once_whatever_the_numbers_of_its_batch():
    calls = []

    def residuals(p, batch):
        calls.append(batch)
        return decay(p, batch[0]) - batch[1]

    times = jnp.linspace(0.0, 1.0, 20)
    assert height_of(residuals, (times, 2 * jnp.exp(-times))) == pytest.approx(2)
    first, known = len(calls), list(programs._kept)
    assert height_of(residuals, (times, 3 * jnp.exp(-times))) == pytest.approx(3)
    assert len(calls) - first <= 3 < first  # traced for the comparison, and nowhere else
    assert list(programs._kept) == known


@pytest.mark.parametrize("residuals", [plain, compiled_inside, in_a_loop])
@pytest.mark.few(2)
@pytest.mark.timeout(300)
def test_numbers_from_outside_are_those_of_the_moment(residuals, monkeypatch):
    for scale in (1.0, 2.0, 2.0):
        monkeypatch.setitem(OUTSIDE, "scale", scale)
        found = natgrad.least_squares(residuals, START)
        assert float(found.parameters["height"]) == pytest.approx(scale)
        assert float(jnp.abs(found.residuals).max()) < 1e-4
    monkeypatch.setitem(OUTSIDE, "times", OUTSIDE["times"] * 2)
    assert height_of(residuals) == pytest.approx(2)


def problem_of(residuals, weights=1.0):
    return programs.LeastSquaresProblem(residuals, weights, method_of("lm"), None)


def test_what_was_not_traced_yet_is_traced_with_the_function_of_this_fit():
    """The first fit was interrupted, and the number that its function reads has changed."""

    class Line:
        def __init__(self, slope):
            self.slope = slope

        def residuals(self, p, x):
            return p * x - self.slope * x

    (first, second), x = (Line(1.0), Line(1.0)), jnp.ones(3)
    kept = programs.programs_of(problem_of(first.residuals), jnp.asarray(0.5), x)
    first.slope = 3.0
    again = programs.programs_of(problem_of(second.residuals), jnp.asarray(0.5), x)
    assert again is kept
    np.testing.assert_allclose(again.programs(True).residuals(jnp.asarray(0.5), x), -0.5)


def test_names_of_arrays_and_calls_of_python_are_part_of_a_problem():
    named = lambda key: lambda p, x: {key: p * x - 1}  # noqa: E731
    calling = lambda call: lambda p, x: p * x - jax.pure_callback(call, x[0], x[0])  # noqa: E731
    start, x = jnp.asarray(0.5), jnp.ones(3)
    for make, values in ((named, "ab"), (calling, (np.sin, np.cos))):
        one, other = (programs.programs_of(problem_of(make(value)), start, x) for value in values)
        assert one is not other


@pytest.mark.timeout(300)
def test_a_function_made_again_shares_its_programs_if_it_computes_the_same(monkeypatch):
    monkeypatch.setattr(programs, "_kept", programs.deque(maxlen=2))
    made = lambda height: lambda p, times: decay(p, times) - height * jnp.exp(-times)  # noqa: E731
    times = jnp.linspace(0.0, 1.0, 20)
    for height, number in ((2.0, 1), (2.0, 1), (3.0, 2), (4.0, 2)):  # the last two are kept
        assert height_of(made(height), times) == pytest.approx(height)
        assert len(programs._kept) == number
