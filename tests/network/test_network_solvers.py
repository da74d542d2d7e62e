"""Every solver of whole systems against dense algebra."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg

from natgrad.errors import InputError
from natgrad.metrics.curvature import Operator
from natgrad.solvers import subspace, whole
from natgrad.solvers.minres import minres_qlp
from natgrad.solvers.truncated import Progress, conjugate_gradient, little_progress, small_residual
from natgrad.solvers.whole import System


def symmetric(values, seed=0):
    """A symmetric matrix with the given eigenvalues."""
    q = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return q @ np.diag(values) @ q.T


def system(matrix, damping=0.0, precondition=None):
    return System(Operator(lambda v: jnp.asarray(matrix) @ v), jnp.asarray(damping), precondition)


def factored(rows):
    rows = jnp.asarray(rows)
    return Operator(lambda v: rows.T @ (rows @ v), lambda: rows, rows.shape[0])


def right(size, seed=1):
    return jnp.asarray(np.random.default_rng(seed).normal(size=size))


SPREAD = np.geomspace(1e-2, 10, 12)


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_solvers_agree_with_elimination(damping):
    matrix, g = symmetric(SPREAD), right(12)
    expected = np.linalg.solve(matrix + damping * np.eye(12), g)
    for solve in (
        conjugate_gradient(60, stop=small_residual(1e-12)),
        minres_qlp(60, tolerance=1e-12),
        whole.dense_solve(),
    ):
        found = jax.jit(lambda g, solve=solve: solve(system(matrix, damping), g, None))(g)
        np.testing.assert_allclose(found.value, expected, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(
            found.residual, g - (matrix + damping * np.eye(12)) @ np.asarray(found.value), atol=1e-9
        )
        assert found.result == whole.CONVERGED


def test_conjugate_gradients_are_exact_after_as_many_iterations_as_distinct_eigenvalues():
    matrix, g = symmetric([1.0] * 5 + [4.0] * 4 + [9.0]), right(10)
    found = conjugate_gradient(20, stop=small_residual(1e-10))(system(matrix), g, None)
    assert found.iterations == 3
    np.testing.assert_allclose(found.value, np.linalg.solve(matrix, g), rtol=1e-9)


def test_a_tree_is_a_vector():
    matrix, g = symmetric(SPREAD), right(12)
    split = lambda v: {"a": v[:4].reshape(2, 2), "b": (v[4:11], v[11])}  # noqa: E731
    join = lambda t: jnp.concatenate([t["a"].ravel(), t["b"][0], t["b"][1][None]])  # noqa: E731
    operator = Operator(lambda t: split(jnp.asarray(matrix) @ join(t)))
    for solve in (conjugate_gradient(30, stop=small_residual(1e-11)), minres_qlp(30, tolerance=1e-11)):
        found = solve(System(operator, jnp.asarray(0.1)), split(g), None)
        np.testing.assert_allclose(
            join(found.value), np.linalg.solve(matrix + 0.1 * np.eye(12), g), rtol=1e-7
        )


def test_a_perfect_preconditioner_needs_one_iteration_and_a_diagonal_one_fewer():
    matrix, g = symmetric(SPREAD) + np.diag(np.geomspace(1, 1e4, 12)), right(12)
    inverse = jnp.asarray(np.linalg.inv(matrix))
    solve = conjugate_gradient(100, stop=small_residual(1e-8))
    counts = [
        int(solve(system(matrix, 0.0, precondition), g, None).iterations)
        for precondition in (lambda v: inverse @ v, lambda v: v / jnp.asarray(np.diag(matrix)), None)
    ]
    assert counts[0] == 1
    assert counts[1] < counts[2]


def test_a_good_guess_saves_iterations_and_the_exact_one_all():
    matrix, g = symmetric(SPREAD), right(12)
    exact = jnp.asarray(np.linalg.solve(matrix, g))
    solve = conjugate_gradient(50, stop=small_residual(1e-6))
    cold, warm = (solve(system(matrix), g, guess) for guess in (None, 0.999 * exact))
    assert warm.iterations < cold.iterations
    np.testing.assert_allclose(warm.value, exact, rtol=1e-3)
    done = conjugate_gradient(5)(system(np.eye(3)), jnp.ones(3), jnp.ones(3))
    assert (done.result, done.iterations) == (whole.CONVERGED, 0)


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
    solve = conjugate_gradient(200, stop=little_progress(epsilon))
    found = jax.jit(lambda g: solve(system(matrix), g, guess))(jnp.asarray(g))
    assert (found.iterations, found.result) == (i, whole.CONVERGED)
    assert 11 < i < 60  # the rule decided, not its edges
    np.testing.assert_allclose(found.value, x, rtol=1e-6, atol=1e-8 * np.abs(x).max())


def test_martens_rule_on_a_worked_case():
    """phi falls by 1 % of itself over the last ten iterations: stop for epsilon above 0.001 only."""
    values = jnp.asarray([0.0, -90.0, *[-99.0] * 10, -100.0])
    at = lambda i, epsilon: bool(  # noqa: E731
        little_progress(epsilon)(Progress(jnp.asarray(i), values, jnp.asarray(1.0), jnp.asarray(1.0)))
    )
    assert at(12, 0.00101)  # (100 - 99) / 100 = 0.01 < 10 * 0.00101
    assert not at(12, 0.00099)
    assert not at(10, 10.0)  # i > k fails
    long = jnp.full(201, -100.0).at[180].set(-98.0)  # k = 20 at i = 200
    late = Progress(jnp.asarray(200), long, jnp.asarray(1.0), jnp.asarray(1.0))
    assert little_progress(0.00101)(late)
    assert not little_progress(0.00099)(late)
    assert not little_progress(1.0)(Progress(jnp.asarray(12), -values, jnp.asarray(1.0), jnp.asarray(1.0)))


def test_iterates_are_kept_at_growing_places_and_the_last_always():
    matrix, g = symmetric(SPREAD), right(12)
    never = lambda p: jnp.asarray(False)  # noqa: E731
    found = conjugate_gradient(9, stop=never, keep=1.5)(system(matrix), g, None)
    places = [1, 2, 3, 4, 6, 8, 9]
    assert found.kept == len(places)
    for slot, place in enumerate(places):
        expected = conjugate_gradient(place, stop=never)(system(matrix), g, None).value
        np.testing.assert_allclose(found.iterates[slot], expected, rtol=1e-12)
    with pytest.raises(InputError, match="powers of a number above one, got 1"):
        conjugate_gradient(9, keep=1.0)


def test_negative_curvature_and_overflow_are_result_codes():
    found = conjugate_gradient(9)(system(np.diag([1.0, -2.0])), jnp.array([1.0, 1e-3]), None)
    assert found.result == whole.INDEFINITE
    assert np.isfinite(found.value).all()
    found = conjugate_gradient(9)(system(np.eye(2)), jnp.array([jnp.nan, 1.0]), None)
    assert found.result == whole.FAILED
    assert conjugate_gradient(2)(system(symmetric(SPREAD)), right(12), None).result == whole.LIMIT
    assert set(whole.SOLVED) == set(range(5))


SINGULAR = {
    "half": [0.0] * 5 + [0.5, 1, 2, 3, 4],
    "one": [0.0, 0.3, 0.7, 1, 1.5, 2, 2.5, 3, 4, 5],
    "indefinite": [-3.0, -1.0, 0.0, 0.0, 0.5, 1, 2, 3, 4, 5],
    "rank one": [0.0] * 9 + [2.0],
    "regular": [-1.0, 0.1, 0.5, 1, 2, 3, 4, 5, 6, 7],
}


@pytest.mark.parametrize("compatible", [True, False])
@pytest.mark.parametrize("values", SINGULAR)
def test_minres_qlp_returns_the_pseudo_inverse_solution(values, compatible):
    matrix, g = symmetric(SINGULAR[values]), np.asarray(right(10))
    if compatible:
        g = matrix @ g
    found = minres_qlp(60, tolerance=1e-11)(system(matrix), jnp.asarray(g), None)
    expected = np.linalg.pinv(matrix, rcond=1e-10) @ g
    np.testing.assert_allclose(found.value, expected, atol=1e-8 * np.linalg.norm(expected))
    lost = not compatible and min(np.abs(SINGULAR[values])) == 0
    assert found.result == (whole.SINGULAR if lost else whole.CONVERGED)
    if not lost:  # SciPy's MINRES has no minimum-length solution where there is no solution at all
        theirs, _ = scipy.sparse.linalg.minres(matrix, g, rtol=1e-13)
        np.testing.assert_allclose(found.value, theirs, atol=1e-6 * np.linalg.norm(expected))


def incomplete(rng, size, rank, *, indefinite=False):
    """A symmetric matrix of lower rank whose other eigenvalues lie close together."""
    rows = rng.normal(size=(rank, size))
    return rows.T @ np.diag(rng.choice([-1, 1], rank) if indefinite else np.ones(rank)) @ rows / rank


def padded(solve, size=200):
    """Zeros around a system change nothing but its shape: so one compilation serves all sizes."""
    inner = jax.jit(lambda matrix, damping, g: solve(system(matrix, damping), g, None))

    def outer(matrix, damping, g):
        missing = size - g.size
        found = inner(np.pad(matrix, (0, missing)), matrix.dtype.type(damping), np.pad(g, (0, missing)))
        return np.asarray(found.value)[: g.size], int(found.result)

    return outer


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_minres_qlp_returns_the_pseudo_inverse_solution_of_random_singular_systems(dtype):
    """40 matrices of 25 to 200 rows, rank 10 % to 80 %, each damped and not, with and without a solution."""
    rng, single = np.random.default_rng(2), dtype == np.float32
    solve = padded(minres_qlp(800, tolerance=1e-5 if single else 1e-10))
    for number in range(40):
        size = int(rng.integers(25, 201))
        matrix = incomplete(rng, size, int(size * rng.uniform(0.1, 0.8)), indefinite=number % 2).astype(dtype)
        for damping, compatible in itertools.product([0.0, 1e-3], [True, False]):
            left = matrix.astype(float) + damping * np.eye(size)
            g = rng.normal(size=size)
            g = (left @ g if compatible else g).astype(dtype)
            found, result = solve(matrix, damping, g)
            expected = np.linalg.pinv(left, rcond=1e-6, hermitian=True) @ g  # float32 has zeros of 1e-7
            error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
            assert error < (3e-2 if single else 1e-5)
            assert result == (whole.CONVERGED if compatible or damping else whole.SINGULAR)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_minres_qlp_never_runs_away_however_many_iterations_it_may_make(dtype):
    """Without a solution, the iterates of MINRES are longer by a null component, but not by orders."""
    rng, results = np.random.default_rng(0), []
    matrix, g = incomplete(rng, 60, 40).astype(dtype), rng.normal(size=60).astype(dtype)
    expected = np.linalg.pinv(matrix.astype(float), rcond=1e-6, hermitian=True) @ g
    for iterations in (20, 46, 47, 50, 300):
        found, result = padded(minres_qlp(iterations), 60)(matrix, 0.0, g)
        assert np.linalg.norm(found) < 200 * np.linalg.norm(expected)
        if result == whole.SINGULAR:
            np.testing.assert_allclose(found, expected, atol=1e-2 * np.linalg.norm(expected))
        results.append(result)
    assert results[0] == whole.LIMIT
    assert set(results[3:]) == {whole.SINGULAR}


def test_minres_qlp_calls_a_wrong_answer_failed():
    rng = np.random.default_rng(0)
    lopsided, g = rng.normal(size=(60, 60)), jnp.asarray(rng.normal(size=60))
    found = minres_qlp(300)(system(lopsided), g, None)  # not symmetric: the recurrences do not hold
    assert np.linalg.norm(found.residual) > 0.01 * np.linalg.norm(g)
    assert found.result == whole.FAILED
    matrix = symmetric(np.geomspace(1e-14, 1, 60)).astype(np.float32)  # which eigenvalues are zero?
    found = minres_qlp(300)(system(matrix, np.float32(0)), g.astype(np.float32), None)
    assert found.result == whole.FAILED
    found = minres_qlp(9)(system(np.eye(2)), jnp.array([jnp.nan, 1.0]), None)
    assert found.result == whole.FAILED


def test_conjugate_gradients_fail_where_minres_qlp_does_not():
    """The reason for having it: a right-hand side outside the range has no solution, and CG walks away."""
    matrix, g = np.diag([1.0, 0.5, 0.0]), jnp.ones(3)
    walked = conjugate_gradient(6, stop=small_residual(1e-12))(system(matrix), g, None).value
    found = minres_qlp(6, tolerance=1e-12)(system(matrix), g, None)
    np.testing.assert_allclose(found.value, [1, 2, 0], atol=1e-10)
    assert np.abs(walked[2]) > 0.5


def test_minres_qlp_corrects_a_guess_and_knows_zero():
    matrix, g = symmetric(SPREAD), right(12)
    found = minres_qlp(60, tolerance=1e-10)(system(matrix, 0.1), g, right(12, 7))
    np.testing.assert_allclose(found.value, np.linalg.solve(matrix + 0.1 * np.eye(12), g), rtol=1e-6)
    nothing = minres_qlp()(system(matrix), jnp.zeros(12), None)
    np.testing.assert_array_equal(nothing.value, 0)


@pytest.mark.parametrize("damping", [1e-6, 0.1])
def test_sample_space_equals_parameter_space(damping):
    rows, g = np.random.default_rng(0).normal(size=(4, 15)), right(15)
    expected = np.linalg.solve(rows.T @ rows + damping * np.eye(15), g)
    for solve in (whole.dual_solve(), whole.dense_solve(), whole.automatic(conjugate_gradient(1))):
        found = jax.jit(lambda g, solve=solve: solve(System(factored(rows), jnp.asarray(damping)), g, None))(
            g
        )
        np.testing.assert_allclose(found.value, expected, rtol=1e-6 if damping < 0.1 else 1e-11)


def test_small_damping_in_sample_space_keeps_its_digits_in_float32():
    rng = np.random.default_rng(0)
    rows, g = rng.normal(size=(8, 60)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    found = whole.dual_solve()(System(factored(rows), jnp.asarray(1e-3, jnp.float32)), jnp.asarray(g), None)
    exact = rows.astype(float)
    expected = np.linalg.solve(exact.T @ exact + 1e-3 * np.eye(60), g.astype(float))
    assert np.linalg.norm(np.asarray(found.value) - expected) < 1e-4 * np.linalg.norm(expected)


def test_the_automatic_choice_goes_by_size():
    count = []
    marked = lambda system, g, guess: count.append(1) or whole.exact(g, g)  # noqa: E731
    choose = whole.automatic(marked, side=8, memory_mb=1e-3)
    choose(System(factored(np.eye(3, 12)), jnp.asarray(1.0)), jnp.ones(12), None)
    choose(System(factored(np.eye(12, 3)), jnp.asarray(1.0)), jnp.ones(3), None)
    choose(system(np.eye(1), 1.0), jnp.ones(1), None)
    assert count == []
    choose(System(factored(np.eye(9, 12)), jnp.asarray(1.0)), jnp.ones(12), None)  # too wide in both spaces
    choose(System(factored(np.eye(2, 90)), jnp.asarray(1.0)), jnp.ones(90), None)  # too much memory
    choose(system(np.eye(9), 1.0), jnp.ones(9), None)  # no factor
    assert count == [1, 1, 1]


def test_a_metric_without_a_factor_is_refused_in_sample_space():
    with pytest.raises(InputError, match="needs a metric with a factor"):
        whole.dual_solve()(system(np.eye(3), 1.0), jnp.ones(3), None)
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
    solves = {
        "cg": conjugate_gradient(40, stop=small_residual(1e-10), keep=1.3),
        "minres": minres_qlp(40, tolerance=1e-10),
    }
    for solve in solves.values():
        one = lambda g, solve=solve: solve(system(matrix, 0.1), g, None).value  # noqa: E731
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
