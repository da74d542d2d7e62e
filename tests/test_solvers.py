"""Every solver against the dense float64 solve."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from natgrad.models.helmholtz.reweighted import reweighted
from natgrad.solvers.contract import solve_layers
from natgrad.solvers.krylov import conjugate_gradient

from natgrad.metrics.blocks import DenseBlocks, UnitBlocks, join, split
from natgrad.models.helmholtz import fisher as per_unit
from natgrad.solvers import krylov
from natgrad.solvers.choice import always, automatic
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.direct import direct
from natgrad.solvers.dual import dual

pytestmark = pytest.mark.timeout(120)  # LAPACK calls side by side could wait for ever


def problem(inputs=9, units=4, rows=20, dtype=jnp.float64, seed=0, signed=True):
    """Blocks with a strong mean input, as real layers have, and a gradient."""
    keys = jax.random.split(jax.random.key(seed), 4)
    chance = jax.random.uniform(keys[0], (inputs, 1), jnp.float64)
    on = jax.random.uniform(keys[1], (inputs, rows), jnp.float64) < chance**2
    values = jnp.where(on, 1.0, -1.0 if signed else 0.0)
    curvature = jax.random.uniform(keys[2], (units, rows), jnp.float64) / (4 * rows)
    gradient = split(jax.random.normal(keys[3], (units, inputs + 1), jnp.float64))
    cast = lambda tree: jax.tree.map(lambda leaf: leaf.astype(dtype), tree)  # noqa: E731
    return cast(UnitBlocks(values, curvature)), cast(gradient)


def dense_solve(blocks, gradient, damping):
    matrices = np.asarray(blocks.dense(), np.float64) + damping * np.eye(blocks.size)
    return np.linalg.solve(matrices, np.asarray(join(gradient), np.float64)[..., None])[..., 0]


def run(solver, blocks, gradient, damping):
    factor = solver.prepare(blocks, jnp.full(blocks.curvature.shape[:1], damping, gradient.bias.dtype))
    return solver.solve([factor], [gradient])[0]


EXACT = {"direct": direct(), "dual": dual(), "cg": conjugate_gradient(40)}
SHAPES = {"wide": {"rows": 6}, "square": {"rows": 10}, "tall": {"rows": 50}}


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("damping", [0.05, 0.2, 2.0])
def test_exact_in_float64(solver, shape, damping):
    blocks, gradient = problem(**SHAPES[shape])
    found = run(EXACT[solver], blocks, gradient, damping)
    expected = dense_solve(blocks, gradient, damping)
    np.testing.assert_allclose(join(found.value), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("solver", ["direct", "dual"])
@pytest.mark.parametrize("shape", SHAPES)
def test_close_in_float32(solver, shape):
    blocks, gradient = problem(**SHAPES[shape], dtype=jnp.float32)
    found = np.asarray(join(run(EXACT[solver], blocks, gradient, 0.05).value))
    assert found.dtype == np.float32
    expected = dense_solve(blocks, gradient, 0.05)
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize("solver", ["dual", "cg"])
def test_rows_of_weight_zero_do_no_harm(solver):
    blocks, gradient = problem(rows=6)
    blocks = UnitBlocks(blocks.inputs, blocks.curvature.at[:, :3].set(0.0).at[1].set(0.0))
    found = run(EXACT[solver], blocks, gradient, 0.1)
    np.testing.assert_allclose(join(found.value), dense_solve(blocks, gradient, 0.1), rtol=1e-8, atol=1e-8)


def test_dense_blocks_only_by_the_direct_solver():
    blocks, gradient = problem()
    dense = DenseBlocks(blocks.dense())
    damping = jnp.full(4, 0.1)
    (found,) = direct().solve([direct().prepare(dense, damping)], [gradient])
    np.testing.assert_allclose(join(found.value), dense_solve(blocks, gradient, 0.1), atol=1e-9)
    for solver in (dual(), conjugate_gradient(2)):
        with pytest.raises(ValueError, match="needs a metric made of rows"):
            solver.prepare(dense, damping)


def test_diagonal_divides_by_the_diagonal():
    blocks, gradient = problem(signed=False)
    found = run(diagonal(), blocks, gradient, 0.3)
    expected = np.asarray(join(gradient)) / (0.3 + np.diagonal(np.asarray(blocks.dense()), axis1=1, axis2=2))
    np.testing.assert_allclose(join(found.value), expected, atol=1e-12)


@pytest.mark.parametrize("rows", [6, 60])
def test_conjugate_gradients_converge_monotonically(rows):
    blocks, gradient = problem(inputs=30, rows=rows)
    expected = dense_solve(blocks, gradient, 0.1)
    errors = []
    for iterations in range(1, 6):
        found = np.asarray(join(run(conjugate_gradient(iterations), blocks, gradient, 0.1).value))
        errors.append(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    assert all(after < before or after < 1e-12 for before, after in itertools.pairwise(errors))
    assert errors[-1] < 0.02


def test_deflation_beats_plain_conjugate_gradients():
    """Over parameters, where the mean input dominates, the preconditioner saves iterations."""
    blocks, gradient = problem(inputs=40, rows=300, units=8)
    expected = dense_solve(blocks, gradient, 0.05)
    primal = krylov._primal(blocks, jnp.full(8, 0.05))
    plain = primal._replace(deflation=jnp.zeros(8))
    error = lambda p: np.linalg.norm(join(krylov._over_parameters(p, gradient, 2)) - expected)  # noqa: E731
    assert error(primal) < 0.7 * error(plain)


def test_a_factor_serves_many_gradients():
    blocks, gradient = problem()
    for solver in EXACT.values():
        factor = solver.prepare(blocks, jnp.full(4, 0.1))
        solve = lambda g, solver=solver, factor=factor: join(solver.solve([factor], [g])[0].value)  # noqa: E731
        twice = solve(jax.tree.map(lambda g: 2 * g, gradient))
        np.testing.assert_allclose(twice, 2 * solve(gradient), rtol=1e-9)


TOGETHER = [(90, 20, 6), (3, 20, 6), (50, 4, 6), (51, 1, 6), (7, 30, 11), (2, 5, 300), (120, 40, 300)]


def test_layers_together_are_solved_like_each_alone():
    """Layers of all shapes: with as many rows as each other or not, in sample space or over parameters."""
    solver = conjugate_gradient(40)
    problems = [problem(units=u, inputs=i, rows=r, seed=seed) for seed, (u, i, r) in enumerate(TOGETHER)]
    factors = [solver.prepare(b, jnp.linspace(0.1, 0.3, g.bias.size)) for b, g in problems]
    found = solver.solve(factors, [gradient for _, gradient in problems])
    for (blocks, gradient), factor, solution in zip(problems, factors, found, strict=True):
        matrices = np.asarray(blocks.dense()) + np.asarray(factor.damping)[:, None, None] * np.eye(
            blocks.size
        )
        expected = np.linalg.solve(matrices, np.asarray(join(gradient))[..., None])[..., 0]
        np.testing.assert_allclose(join(solution.value), expected, atol=1e-8 * np.abs(expected).max())


def test_few_operations_for_many_layers():
    """In sample space the number of products in an iteration does not grow with the number of layers."""

    def products(layers: int, iterations: int) -> int:
        solver = conjugate_gradient(iterations)
        problems = [problem(units=10 + seed, rows=6, seed=seed) for seed in range(layers)]

        def solve(given):
            factors = [solver.prepare(blocks, jnp.full_like(g.bias, 0.1)) for blocks, g in given]
            return solver.solve(factors, [g for _, g in given])

        return str(jax.make_jaxpr(solve)(problems)).count("dot_general")

    assert products(8, 5) - products(8, 4) == products(2, 5) - products(2, 4) == 1


def test_every_layer_by_its_own_solver():
    problems = [problem(seed=seed, units=3 + seed) for seed in range(4)]
    solvers = [direct(), diagonal(), direct(), conjugate_gradient(40)]
    factors = [s.prepare(b, jnp.full(g.bias.shape, 0.2)) for s, (b, g) in zip(solvers, problems, strict=True)]
    found = solve_layers(solvers, factors, [gradient for _, gradient in problems])
    for solver, (blocks, gradient), solution in zip(solvers, problems, found, strict=True):
        np.testing.assert_allclose(
            join(solution.value), join(run(solver, blocks, gradient, 0.2).value), atol=1e-9
        )


def test_automatic_choice():
    tall, wide = problem(rows=50)[0], problem(rows=6)[0]
    assert automatic(1, 3)(tall).name == "cg"
    assert automatic(100, 3)(tall).name == automatic(100, 3)(wide).name == "shared"
    assert automatic(1, 3)(DenseBlocks(tall.dense())).name == "direct"
    assert always(diagonal())(tall).name == "diagonal"


@pytest.mark.parametrize("seed", range(10))
def test_random_spectra(seed):
    """Direct and dual agree with each other wherever both apply."""
    generator = np.random.default_rng(seed)
    shape = {
        "inputs": int(generator.integers(1, 12)),
        "rows": int(generator.integers(1, 25)),
        "units": int(generator.integers(1, 6)),
    }
    blocks, gradient = problem(**shape, seed=seed, signed=bool(seed % 2))
    damping = float(10 ** generator.uniform(-3, 1))
    one, two = (join(run(solver, blocks, gradient, damping).value) for solver in (direct(), dual()))
    np.testing.assert_allclose(one, two, rtol=1e-7, atol=1e-7 * float(jnp.abs(one).max()))


@pytest.fixture(scope="module")
def trained_blocks():
    """Rows of a machine trained for a while on digits, whose spectra are less kind than random ones."""
    from natgrad import config
    from natgrad.data import batches, load
    from natgrad.training.session import Session

    settings = config.resolve({"method": "rws", "layers": (48, 24), "epochs": 10, "evaluation.rows": 10})
    with jax.enable_x64(False):
        session = Session.begin(settings, load("digits"))
        advance = session._compile()
        for epoch in range(10):
            order = batches.permutation(session.key_order, epoch, len(session.rows.values))
            totals = session._nothing()
            session.state, _ = advance(session.key_steps, session.state, totals, session.rows, order, 0, 40)
        model = session.state.model
        on = batches.draw(session.key_steps, session.rows, order[:32], jnp.float32)
        batch = model.coding.value(on, jnp.float32)
        estimate, _ = jax.jit(reweighted(10).estimate)(jax.random.key(0), (), model, batch)
        _, generation = per_unit.generation_from_dreams(model, estimate.samples)
        recognition = per_unit.recognition_from_dreams(model, estimate.samples)
    gradients = (*estimate.gradient.generation, *estimate.gradient.recognition)
    wide = lambda part: jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), part)  # noqa: E731
    return [(wide(b), wide(g)) for b, g in zip((*generation, *recognition), gradients, strict=True)]


@pytest.mark.parametrize(
    ("iterations", "damping", "tolerance"), [(3, 0.2, 0.02), (6, 0.2, 5e-4), (6, 0.05, 0.01)]
)
def test_conjugate_gradients_on_a_trained_machine(trained_blocks, iterations, damping, tolerance):
    """The stated accuracy of the whole direction after the stated number of iterations."""
    wrong = right = 0.0
    for blocks, gradient in trained_blocks:
        expected = dense_solve(blocks, gradient, damping)
        found = np.asarray(join(run(conjugate_gradient(iterations), blocks, gradient, damping).value))
        wrong, right = wrong + np.sum((found - expected) ** 2), right + np.sum(expected**2)
    assert np.sqrt(wrong / right) < tolerance
