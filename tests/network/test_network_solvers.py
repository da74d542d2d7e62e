"""Every solver of whole systems against dense algebra."""

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg
from network_cases import Factored, Given, preconditioned, solved

from natgrad.core import Product, Solver
from natgrad.errors import InputError
from natgrad.fitting import methods
from natgrad.solvers import cost, results, subspace, whole
from natgrad.solvers import rows as rows_solvers
from natgrad.solvers.minres import minres_qlp
from natgrad.solvers.nystrom import nystrom_gradient, sketch
from natgrad.solvers.truncated import SolveProgress, conjugate_gradient, little_progress, small_residual
from natgrad.solvers.whole import System
from natgrad.tree import pytree


def symmetric(values, seed=0):
    """A symmetric matrix with the given eigenvalues."""
    q = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return q @ np.diag(values) @ q.T


def given(matrix, diagonal=None):
    return Given(jnp.asarray(matrix), diagonal)


def factored(rows):
    return Factored(jnp.asarray(rows))


def system(matrix):
    return System(given(matrix).bind(), jnp.asarray(0.0))


def right(size, seed=1):
    return jnp.asarray(np.random.default_rng(seed).normal(size=size))


SPREAD = np.geomspace(1e-2, 10, 12)


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_solvers_agree_with_elimination(damping):
    matrix, g = symmetric(SPREAD), right(12)
    expected = np.linalg.solve(matrix + damping * np.eye(12), g)
    for solver in (
        conjugate_gradient(60, stop=small_residual(1e-12)),
        minres_qlp(60, tolerance=1e-12),
        whole.dense_solve(),
    ):
        found = jax.jit(lambda g, solver=solver: solved(solver, given(matrix), g, damping))(g)
        np.testing.assert_allclose(found.value, expected, rtol=1e-8, atol=1e-9)
        left = g - (matrix + damping * np.eye(12)) @ np.asarray(found.value)
        np.testing.assert_allclose(found.residual, np.linalg.norm(left) / np.linalg.norm(g), atol=1e-9)
        assert found.result == results.CONVERGED


@pytest.mark.parametrize("start", ["zero", "guess"])
@pytest.mark.parametrize("name", ["dense", "dual", "cg", "preconditioned", "minres"])
@pytest.mark.few(4)
def test_curvature_and_residual_are_those_of_the_solution(name, start):
    """x^T F x and |g - (damping I + F) x| / |g|, also where the iteration is stopped early."""
    rows, g, damping = np.random.default_rng(0).normal(size=(4, 15)), right(15), 0.3
    solver = {
        "dense": whole.dense_solve(),
        "dual": whole.dual_solve(),
        "cg": conjugate_gradient(2),
        "preconditioned": conjugate_gradient(2, precondition=0.75),
        "minres": minres_qlp(2),
    }[name]
    guess = None if start == "zero" else right(15, 3)
    found = jax.jit(lambda g: solved(solver, factored(rows), g, damping, guess))(g)
    x = np.asarray(found.value)
    np.testing.assert_allclose(found.curvature, (rows @ x) @ (rows @ x), rtol=1e-9)
    left = np.linalg.norm(g - rows.T @ (rows @ x) - damping * x) / np.linalg.norm(g)
    np.testing.assert_allclose(found.residual, left, rtol=1e-9, atol=1e-12)
    truncated = name in ("cg", "preconditioned", "minres")
    assert (found.result, found.iterations) == ((results.LIMIT, 2) if truncated else (results.CONVERGED, 0))
    assert left > 1e-3 if truncated else left < 1e-12


def test_conjugate_gradients_are_exact_after_as_many_iterations_as_distinct_eigenvalues():
    matrix, g = symmetric([1.0] * 5 + [4.0] * 4 + [9.0]), right(10)
    found = solved(conjugate_gradient(20, stop=small_residual(1e-10)), given(matrix), g)
    assert found.iterations == 3
    np.testing.assert_allclose(found.value, np.linalg.solve(matrix, g), rtol=1e-9)


@pytree
class OnTrees:
    """A matrix as an operator on trees of an odd structure."""

    matrix: jax.Array

    def bind(self):
        return Product(lambda t: split(self.matrix @ join(t)))

    @property
    def like(self):
        return split(self.matrix[0])


def split(v):
    return {"a": v[:4].reshape(2, 2), "b": (v[4:11], v[11])}


def join(t):
    return jnp.concatenate([t["a"].ravel(), t["b"][0], t["b"][1][None]])


def test_a_tree_is_a_vector():
    matrix, g = symmetric(SPREAD), right(12)
    for solver in (
        conjugate_gradient(30, stop=small_residual(1e-11)),
        minres_qlp(30, tolerance=1e-11),
        whole.dense_solve(),
    ):
        found = solved(solver, OnTrees(jnp.asarray(matrix)), split(g), 0.1)
        np.testing.assert_allclose(
            join(found.value), np.linalg.solve(matrix + 0.1 * np.eye(12), g), rtol=1e-7
        )


def test_a_perfect_preconditioner_needs_one_iteration_and_a_diagonal_one_fewer():
    scales, g = np.geomspace(1, 1e4, 12), right(12)
    matrix = symmetric(SPREAD) + np.diag(scales)
    count = lambda operator, precondition: int(  # noqa: E731
        solved(
            conjugate_gradient(100, stop=small_residual(1e-8), precondition=precondition), operator, g, 0.5
        ).iterations
    )
    assert count(given(np.diag(scales), jnp.asarray(scales)), 1.0) == 1
    own = given(matrix, jnp.asarray(np.diag(matrix)))
    assert count(own, 1.0) < count(own, None)


@pytest.mark.parametrize("start", [None, 0.8])
def test_the_preconditioner_divides_by_a_power_of_the_damped_diagonal(start):
    """M = (diagonal + damping)^0.75 [martens2010], whatever the diagonal is of."""
    matrix, g = symmetric(SPREAD) + np.diag(np.geomspace(1, 1e2, 12)), np.asarray(right(12))
    diagonal, damping = np.abs(np.asarray(right(12, 8))), 0.2
    guess = None if start is None else start * np.linalg.solve(matrix, g)
    inverse = (diagonal + damping) ** -0.75
    expected = preconditioned(matrix + damping * np.eye(12), g, inverse, 5, guess)
    never = lambda progress: jnp.asarray(False)  # noqa: E731
    for count in (1, 2, 5):
        solver = conjugate_gradient(count, stop=never, precondition=0.75)
        first = None if guess is None else jnp.asarray(guess)
        found = solved(solver, given(matrix, jnp.asarray(diagonal)), jnp.asarray(g), damping, first)
        np.testing.assert_allclose(found.value, expected[count - 1], rtol=1e-9)
    with pytest.raises(InputError, match="a preconditioner needs a metric with a diagonal"):
        solved(conjugate_gradient(5, precondition=0.75), given(matrix), jnp.asarray(g))


def test_a_good_guess_saves_iterations_and_the_exact_one_all():
    matrix, g = symmetric(SPREAD), right(12)
    exact = jnp.asarray(np.linalg.solve(matrix, g))
    solver = conjugate_gradient(50, stop=small_residual(1e-6))
    cold, warm = (solved(solver, given(matrix), g, guess=guess) for guess in (None, 0.999 * exact))
    assert warm.iterations < cold.iterations
    np.testing.assert_allclose(warm.value, exact, rtol=1e-3)
    done = solved(conjugate_gradient(5), given(np.eye(3)), jnp.ones(3), guess=jnp.ones(3))
    assert (done.result, done.iterations) == (results.CONVERGED, 0)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_phi_is_followed_and_martens_rule_is_its_definition(share):
    """The rule stops at the first i with i > k, phi_i < 0 and (phi_i - phi_{i-k}) / phi_i < k epsilon."""
    matrix, g, epsilon = symmetric(np.geomspace(1e-2, 1, 60)), np.asarray(right(60)), 1e-4
    x = share * np.linalg.solve(matrix, g)  # a warm start has a phi of its own
    r = p = g - matrix @ x
    phi = [0.5 * x @ matrix @ x - g @ x]
    for i in range(1, 100):
        length = (r @ r) / (p @ matrix @ p)
        x, after = x + length * p, r - length * matrix @ p
        p, r = after + (after @ after) / (r @ r) * p, after
        phi.append(0.5 * x @ matrix @ x - g @ x)
        k = max(10, i // 10)
        if i > k and phi[i] < 0 and (phi[i] - phi[i - k]) / phi[i] < k * epsilon:
            break
    guess = jnp.asarray(share * np.linalg.solve(matrix, g)) if share else None
    solver = conjugate_gradient(200, stop=little_progress(epsilon))
    found = jax.jit(lambda g: solved(solver, given(matrix), g, guess=guess))(jnp.asarray(g))
    assert (found.iterations, found.result) == (i, results.CONVERGED)
    assert 11 < i < 60  # the rule decided, not its edges
    np.testing.assert_allclose(found.value, x, rtol=1e-6, atol=1e-8 * np.abs(x).max())


def test_martens_rule_on_a_worked_case():
    """phi falls by 1 % of itself over the last ten iterations: stop for epsilon above 0.001 only."""
    values = jnp.asarray([0.0, -90.0, *[-99.0] * 10, -100.0])
    at = lambda i, epsilon: bool(  # noqa: E731
        little_progress(epsilon)(SolveProgress(jnp.asarray(i), values, jnp.asarray(1.0), jnp.asarray(1.0)))
    )
    assert at(12, 0.00101)  # (100 - 99) / 100 = 0.01 < 10 * 0.00101
    assert not at(12, 0.00099)
    assert not at(10, 10.0)  # i > k fails
    long = jnp.full(201, -100.0).at[180].set(-98.0)  # k = 20 at i = 200
    late = SolveProgress(jnp.asarray(200), long, jnp.asarray(1.0), jnp.asarray(1.0))
    assert little_progress(0.00101)(late)
    assert not little_progress(0.00099)(late)
    assert not little_progress(1.0)(
        SolveProgress(jnp.asarray(12), -values, jnp.asarray(1.0), jnp.asarray(1.0))
    )


def test_iterates_are_kept_at_growing_places_and_the_last_always():
    matrix, g = symmetric(SPREAD), right(12)
    never = lambda p: jnp.asarray(False)  # noqa: E731
    found = solved(conjugate_gradient(9, stop=never, keep=1.5), given(matrix), g)
    places = [1, 2, 3, 4, 6, 8, 9]
    assert found.kept == len(places)
    for slot, place in enumerate(places):
        expected = solved(conjugate_gradient(place, stop=never), given(matrix), g).value
        np.testing.assert_allclose(found.iterates[slot], expected, rtol=1e-12)
    with pytest.raises(InputError, match="powers of a number above one, got 1"):
        conjugate_gradient(9, keep=1.0)


def test_negative_curvature_and_overflow_are_result_codes():
    found = solved(conjugate_gradient(9), given(np.diag([1.0, -2.0])), jnp.array([1.0, 1e-3]))
    assert found.result == results.INDEFINITE
    assert np.isfinite(found.value).all()
    found = solved(conjugate_gradient(9), given(np.eye(2)), jnp.array([jnp.nan, 1.0]))
    assert found.result == results.FAILED
    assert solved(conjugate_gradient(2), given(symmetric(SPREAD)), right(12)).result == results.LIMIT
    assert set(results.SOLVED) == set(range(6))


SINGULAR = {
    "half": [0.0] * 5 + [0.5, 1, 2, 3, 4],
    "one": [0.0, 0.3, 0.7, 1, 1.5, 2, 2.5, 3, 4, 5],
    "indefinite": [-3.0, -1.0, 0.0, 0.0, 0.5, 1, 2, 3, 4, 5],
    "rank one": [0.0] * 9 + [2.0],
    "regular": [-1.0, 0.1, 0.5, 1, 2, 3, 4, 5, 6, 7],
}


@pytest.mark.parametrize("compatible", [True, False])
@pytest.mark.parametrize("values", SINGULAR)
@pytest.mark.few(4)
def test_minres_qlp_returns_the_pseudo_inverse_solution(values, compatible):
    matrix, g = symmetric(SINGULAR[values]), np.asarray(right(10))
    if compatible:
        g = matrix @ g
    found = solved(minres_qlp(60, tolerance=1e-11), given(matrix), jnp.asarray(g))
    expected = np.linalg.pinv(matrix, rcond=1e-10) @ g
    np.testing.assert_allclose(found.value, expected, atol=1e-8 * np.linalg.norm(expected))
    lost = not compatible and min(np.abs(SINGULAR[values])) == 0
    assert found.result == (results.SINGULAR if lost else results.CONVERGED)
    if not lost:  # SciPy's MINRES has no minimum-length solution where there is no solution at all
        theirs, _ = scipy.sparse.linalg.minres(matrix, g, rtol=1e-13)
        np.testing.assert_allclose(found.value, theirs, atol=1e-6 * np.linalg.norm(expected))


def incomplete(rng, size, rank, *, indefinite=False):
    """A symmetric matrix of lower rank whose other eigenvalues lie close together."""
    rows = rng.normal(size=(rank, size))
    return rows.T @ np.diag(rng.choice([-1, 1], rank) if indefinite else np.ones(rank)) @ rows / rank


def padded(solver, size=200):
    """Zeros around a system change nothing but its shape: so one compilation serves all sizes."""
    inner = jax.jit(lambda matrix, damping, g: solved(solver, given(matrix), g, damping))

    def outer(matrix, damping, g):
        missing = size - g.size
        found = inner(np.pad(matrix, (0, missing)), matrix.dtype.type(damping), np.pad(g, (0, missing)))
        return np.asarray(found.value)[: g.size], int(found.result)

    return outer


@pytest.mark.parametrize("number", [6, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64])
def test_minres_qlp_returns_the_pseudo_inverse_solution_of_random_singular_systems(dtype, number):
    """Matrices of 25 to 200 rows, rank 10 % to 80 %, each damped and not, with and without a solution."""
    rng, single = np.random.default_rng(2), dtype == np.float32
    solve = padded(minres_qlp(800, tolerance=1e-5 if single else 1e-10))
    for turn in range(number):
        size = int(rng.integers(25, 201))
        matrix = incomplete(rng, size, int(size * rng.uniform(0.1, 0.8)), indefinite=turn % 2).astype(dtype)
        for damping, compatible in itertools.product([0.0, 1e-3], [True, False]):
            left = matrix.astype(float) + damping * np.eye(size)
            g = rng.normal(size=size)
            g = (left @ g if compatible else g).astype(dtype)
            found, result = solve(matrix, damping, g)
            expected = np.linalg.pinv(left, rcond=1e-6, hermitian=True) @ g  # float32 has zeros of 1e-7
            error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
            assert error < (3e-2 if single else 1e-5)
            assert result == (results.CONVERGED if compatible or damping else results.SINGULAR)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.few(1)
@pytest.mark.slow
def test_minres_qlp_never_runs_away_however_many_iterations_it_may_make(dtype):
    """Without a solution, the iterates of MINRES are longer by a null component, but not by orders."""
    rng, ends = np.random.default_rng(0), []
    matrix, g = incomplete(rng, 60, 40).astype(dtype), rng.normal(size=60).astype(dtype)
    expected = np.linalg.pinv(matrix.astype(float), rcond=1e-6, hermitian=True) @ g
    for iterations in (20, 46, 47, 50, 300):
        found, result = padded(minres_qlp(iterations), 60)(matrix, 0.0, g)
        assert np.linalg.norm(found) < 200 * np.linalg.norm(expected)
        if result == results.SINGULAR:
            np.testing.assert_allclose(found, expected, atol=1e-2 * np.linalg.norm(expected))
        ends.append(result)
    assert ends[0] == results.LIMIT
    assert set(ends[3:]) == {results.SINGULAR}


def test_minres_qlp_calls_a_wrong_answer_failed():
    rng = np.random.default_rng(0)
    lopsided, g = rng.normal(size=(60, 60)), jnp.asarray(rng.normal(size=60))
    found = solved(minres_qlp(300), given(lopsided), g)  # not symmetric: the recurrences do not hold
    assert found.residual > 0.01
    assert found.result == results.FAILED
    matrix = symmetric(np.geomspace(1e-14, 1, 60)).astype(np.float32)  # which eigenvalues are zero?
    found = solved(minres_qlp(300), given(matrix), g.astype(np.float32))
    assert found.result == results.FAILED
    found = solved(minres_qlp(9), given(np.eye(2)), jnp.array([jnp.nan, 1.0]))
    assert found.result == results.FAILED


def test_conjugate_gradients_fail_where_minres_qlp_does_not():
    """The reason for having it: a right-hand side outside the range has no solution, and CG walks away."""
    matrix, g = np.diag([1.0, 0.5, 0.0]), jnp.ones(3)
    walked = solved(conjugate_gradient(6, stop=small_residual(1e-12)), given(matrix), g).value
    found = solved(minres_qlp(6, tolerance=1e-12), given(matrix), g)
    np.testing.assert_allclose(found.value, [1, 2, 0], atol=1e-10)
    assert np.abs(walked[2]) > 0.5


def test_minres_qlp_corrects_a_guess_and_knows_zero():
    matrix, g = symmetric(SPREAD), right(12)
    found = solved(minres_qlp(60, tolerance=1e-10), given(matrix), g, 0.1, right(12, 7))
    np.testing.assert_allclose(found.value, np.linalg.solve(matrix + 0.1 * np.eye(12), g), rtol=1e-6)
    nothing = solved(minres_qlp(), given(matrix), jnp.zeros(12))
    np.testing.assert_array_equal(nothing.value, 0)


@pytest.mark.parametrize("damping", [1e-6, 0.1])
def test_sample_space_equals_parameter_space(damping):
    rows, g = np.random.default_rng(0).normal(size=(4, 15)), right(15)
    expected = np.linalg.solve(rows.T @ rows + damping * np.eye(15), g)
    for solver in (whole.dual_solve(), whole.dense_solve(), cost.automatic(conjugate_gradient(1))):
        found = jax.jit(lambda g, solver=solver: solved(solver, factored(rows), g, damping))(g)
        np.testing.assert_allclose(found.value, expected, rtol=1e-6 if damping < 0.1 else 1e-11)


def test_small_damping_in_sample_space_keeps_its_digits_in_float32():
    rng = np.random.default_rng(0)
    rows, g = rng.normal(size=(8, 60)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    found = solved(whole.dual_solve(), factored(rows), jnp.asarray(g), 1e-3)
    assert found.value.dtype == jnp.float32
    exact = rows.astype(float)
    expected = np.linalg.solve(exact.T @ exact + 1e-3 * np.eye(60), g.astype(float))
    assert np.linalg.norm(np.asarray(found.value) - expected) < 1e-4 * np.linalg.norm(expected)


def test_the_automatic_choice_goes_by_price_and_memory():
    count = []
    inner = conjugate_gradient(1)

    def marked(factor, g, guess):
        count.append(1)
        return inner.solve(factor, g, guess)

    choose = cost.automatic(Solver(inner.prepare, marked), memory_mb=1e-3)
    solved(choose, factored(np.eye(3, 12)), jnp.ones(12), 1.0)
    solved(choose, factored(np.eye(12, 3)), jnp.ones(3), 1.0)
    solved(choose, given(np.eye(1)), jnp.ones(1), 1.0)
    assert count == []
    solved(choose, factored(np.eye(2, 90)), jnp.ones(90), 1.0)  # too much memory
    cheap = cost.automatic(Solver(inner.prepare, marked), products=2)
    solved(cheap, factored(np.eye(9, 12)), jnp.ones(12), 1.0)  # costs more than two products
    solved(cheap, given(np.eye(9)), jnp.ones(9), 1.0)  # no factor
    assert count == [1, 1, 1]


def test_the_cheapest_exact_solver_follows_from_the_shape():
    """More rows than parameters: by rows; more parameters: in sample space; both large: none."""
    names = {}
    for name, shape in {
        "network of physics": (1020, 1, 257),
        "many rows": (200_000, 1, 257),
        "few rows": (100, 1, 10_065),
        "both many": (60_000, 10, 500_000),
    }.items():
        size = cost.Size(*shape, cost.SPEEDS["float64"])
        found = cost.cheapest_exact(size, 100)
        names[name] = None if found is None else found.prepare.__qualname__.split(".")[0]
    assert names == {
        "network of physics": "_by_rows",
        "many rows": "_by_rows",
        "few rows": "dual_solve",
        "both many": None,
    }


def test_the_speeds_are_those_that_were_measured():
    record = json.loads((Path(__file__).parents[2] / "benchmarks/results/solvers.json").read_text("utf-8"))
    assert {kind: own._asdict() for kind, own in cost.SPEEDS.items()} == record["speeds"]


@pytest.mark.few(1)
@pytest.mark.parametrize("shape", [(30, 9), (9, 30)])
def test_every_exact_solver_and_converged_iterations_agree(shape):
    """Dense, by QR, by Cholesky, in sample space and by conjugate gradients, to 1e-8."""
    rows, g = np.random.default_rng(0).normal(size=shape), right(shape[1])
    expected = np.linalg.solve(rows.T @ rows + 1e-2 * np.eye(shape[1]), g)
    exact = (rows_solvers.qr_solve(), rows_solvers.cholesky_solve(), whole.dense_solve(), whole.dual_solve())
    automatic = cost.automatic(conjugate_gradient(1))
    for solver in (*exact, automatic, conjugate_gradient(200, stop=small_residual(1e-13))):
        found = solved(solver, factored(rows), g, 1e-2)
        np.testing.assert_allclose(found.value, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
        assert found.result == results.CONVERGED
        assert found.residual < 1e-10


def test_qr_keeps_the_digits_that_squaring_the_condition_loses():
    """A condition of 1e9: its square is beyond float64, and who squares it says so."""
    rng = np.random.default_rng(0)
    left, other = (np.linalg.qr(rng.normal(size=(n, 6)))[0] for n in (40, 6))
    singular = np.geomspace(1, 1e-9, 6)
    rows, wanted = left @ np.diag(singular) @ other.T, other @ np.ones(6)
    g = other @ (singular**2 * np.ones(6))  # R^T R times what is wanted, without rounding in R
    by_qr = solved(rows_solvers.qr_solve(), factored(rows), jnp.asarray(g), 0.0)
    assert by_qr.result == results.CONVERGED
    assert np.linalg.norm(rows @ (by_qr.value - wanted)) < 1e-7 * np.linalg.norm(rows @ wanted)
    for solver in (rows_solvers.cholesky_solve(), whole.dense_solve()):
        assert solved(solver, factored(rows), jnp.asarray(g), 0.0).result in (
            results.ILL_CONDITIONED,
            results.FAILED,
        )
    assert solved(whole.dual_solve(), factored(rows), jnp.asarray(g), 1e-18).result != results.CONVERGED
    assert "ill-conditioned" in results.SOLVED[results.ILL_CONDITIONED]


@pytest.mark.parametrize(("rank", "share"), [(20, 0.25), (60, 0.02)])
@pytest.mark.few(1)
def test_a_sketch_makes_a_spectrum_that_decays_easy(rank, share):
    """The solution is the same, with fewer iterations the more the sketch sees."""
    matrix, g = symmetric(np.geomspace(1e4, 1e-8, 60)), right(60)
    stop, damping = small_residual(1e-10), 1e-2
    expected = np.linalg.solve(matrix + damping * np.eye(60), g)
    plain = solved(conjugate_gradient(400, stop=stop), given(matrix), g, damping)
    found = solved(nystrom_gradient(rank, 400, stop=stop), given(matrix), g, damping)
    np.testing.assert_allclose(found.value, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    assert (found.result, plain.result) == (results.CONVERGED, results.CONVERGED)
    assert int(found.iterations) < share * int(plain.iterations)
    np.testing.assert_allclose(found.curvature, expected @ matrix @ expected, rtol=1e-8)


def test_beyond_exact_solves_least_squares_take_a_sketch(monkeypatch):
    """Where no exact solve can be paid, the solution is the same, in a small part of plain iterations."""
    monkeypatch.setattr(methods, "PRODUCTS", 0.0)
    rows = np.random.default_rng(0).normal(size=(150, 150)) * np.geomspace(1e3, 1e-4, 150)
    g, damping, stop = right(150), 1e-2, small_residual(1e-8)
    expected = np.linalg.solve(rows.T @ rows + damping * np.eye(150), g)
    plain = solved(conjugate_gradient(4000, stop=stop), factored(rows), jnp.asarray(g), damping)
    found = solved(methods.exact_or_iterated(), factored(rows), jnp.asarray(g), damping)
    np.testing.assert_allclose(found.value, expected, atol=1e-6 * np.abs(expected).max())
    assert 0 < 20 * int(found.iterations) < int(plain.iterations)


def test_the_preconditioner_is_its_definition():
    matrix = symmetric(np.geomspace(1e3, 1e-2, 9))
    vectors, values = jax.jit(lambda m: sketch(Given(m), 3, jnp.zeros(()), 0))(jnp.asarray(matrix))
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-12)
    start = np.linalg.qr(np.asarray(jax.random.normal(jax.random.key(0), (9, 3), jnp.float64)))[0]
    seen = matrix @ start
    nystrom = seen @ np.linalg.solve(start.T @ seen, seen.T)
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, nystrom, rtol=1e-7, atol=1e-7)
    with pytest.raises(InputError, match="at least one vector, got 0"):
        nystrom_gradient(0)


def test_one_factor_serves_many_gradients():
    """Prepared once, as for a metric that is kept: every gradient gets the solution of its own system."""
    rows = np.random.default_rng(0).normal(size=(4, 15))
    matrix = rows.T @ rows + 0.1 * np.eye(15)
    exact = conjugate_gradient(40, stop=small_residual(1e-12))
    for solver in (whole.dual_solve(), whole.dense_solve(), exact):
        factor, _ = jax.jit(solver.prepare)(factored(rows), jnp.asarray(0.1), 0.0)
        for seed in (1, 2, 3):
            found = jax.jit(solver.solve)(factor, right(15, seed), None)
            np.testing.assert_allclose(found.value, np.linalg.solve(matrix, right(15, seed)), rtol=1e-8)


def test_a_metric_without_a_factor_is_refused_in_sample_space():
    for solver in (whole.dual_solve(), rows_solvers.qr_solve()):
        with pytest.raises(InputError, match="needs a metric with a factor"):
            solved(solver, given(np.eye(3)), jnp.ones(3), 1.0)
    for make in (conjugate_gradient, minres_qlp):
        with pytest.raises(InputError, match="at least one iteration, got 0"):
            make(0)
    with pytest.raises(InputError, match="at least one direction, got 0"):
        subspace.subspace_descent(0)


def test_solvers_work_under_vmap():
    matrix = symmetric(SPREAD)
    right_sides = jnp.asarray(
        np.random.default_rng(3).normal(size=(5, 12)) * np.array([[1], [1e-3], [1], [0], [9]])
    )
    solvers = {
        "cg": conjugate_gradient(40, stop=small_residual(1e-10), keep=1.3),
        "minres": minres_qlp(40, tolerance=1e-10),
    }
    for solver in solvers.values():
        one = lambda g, solver=solver: solved(solver, given(matrix), g, 0.1).value  # noqa: E731
        np.testing.assert_allclose(
            jax.jit(jax.vmap(one))(right_sides),
            np.linalg.solve(matrix + 0.1 * np.eye(12), right_sides.T).T,
            rtol=1e-6,
            atol=1e-12,
        )


def test_the_krylov_basis_spans_and_is_orthonormal():
    matrix, g, last = symmetric(SPREAD), right(12), right(12, 5)
    basis = subspace.krylov_basis(system(matrix), g, last, 4)
    v = np.asarray(basis.vectors)
    np.testing.assert_allclose(v @ v.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(basis.products, v @ matrix, atol=1e-12)
    powers = np.stack([last, g, matrix @ g, matrix @ matrix @ g, matrix @ matrix @ matrix @ g])
    np.testing.assert_allclose((powers @ v.T) @ v, powers, rtol=1e-8)


def test_subspace_descent_finds_the_minimum_of_a_quadratic_and_never_climbs():
    matrix, g = symmetric(np.geomspace(0.1, 10, 6)), right(6)

    @jax.jit
    def descend(g, last, along, against):
        value = lambda step: (  # noqa: E731
            along * (0.5 * step @ jnp.asarray(matrix) @ step - g @ step) + against * step @ step
        )
        return subspace.subspace_descent(6, iterations=40)(system(matrix), g, last, value)

    found = descend(g, right(6, 4), 1.0, 0.0)  # the last direction adds nothing to a basis of everything
    np.testing.assert_allclose(found.value, np.linalg.solve(matrix, g), rtol=1e-4)
    np.testing.assert_allclose(found.residual, g - matrix @ np.asarray(found.value), atol=1e-10)
    np.testing.assert_array_equal(descend(g, right(6, 4), 0.0, 1.0).value, 0)
    np.testing.assert_array_equal(descend(g, right(6, 4), jnp.nan, 0.0).value, 0)
    eigenvector = jnp.asarray(np.linalg.eigh(matrix)[1][:, 0])
    found = descend(eigenvector, jnp.zeros(6), 1.0, 0.0)  # a subspace of one dimension
    np.testing.assert_allclose(found.value, eigenvector / 0.1, rtol=1e-5)
