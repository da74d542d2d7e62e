"""Every solver against the dense float64 solve."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.metrics.blocks import DenseBlocks, UnitBlocks, split
from natgrad.metrics.layered import LayeredFisher
from natgrad.models.helmholtz import fisher
from natgrad.models.helmholtz.phases import reweighted
from natgrad.solvers import unit_cg
from natgrad.solvers.choice import always, by_refresh, by_size
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.direct import direct
from natgrad.solvers.dual import dual
from natgrad.solvers.results import CONVERGED
from natgrad.solvers.shared import shared
from natgrad.solvers.unit_cg import unit_conjugate_gradient
from natgrad.solvers.units import LayerSystem, per_layer, solve_layers

pytestmark = pytest.mark.timeout(120)  # LAPACK calls side by side could wait forever


def problem(inputs=9, units=4, rows=20, dtype=jnp.float64, seed=0, signed=True):
    """Blocks with a strong mean input, as real layers have, and a gradient: by NumPy, nothing is compiled."""
    rng = np.random.default_rng(seed)
    on = rng.random((inputs, rows)) < rng.random((inputs, 1)) ** 2
    values, curvature = np.where(on, 1.0, -1.0 if signed else 0.0), rng.random((units, rows)) / (4 * rows)
    gradient = split(rng.normal(size=(units, inputs + 1)))
    put = lambda tree: jax.tree.map(lambda leaf: jax.device_put(leaf.astype(dtype)), tree)  # noqa: E731
    return put(UnitBlocks(values, curvature)), put(gradient)


def dense(blocks):
    """Every block as a matrix, the bias last."""
    curvature = np.asarray(blocks.curvature, float)
    inputs = np.vstack([np.asarray(blocks.inputs, float), np.ones_like(curvature[:1])])
    return np.einsum("jr,ir,kr->jik", curvature, inputs, inputs, optimize=True)


def join(layer):
    """Weights and biases as rows, in NumPy."""
    return np.column_stack([layer.weight, layer.bias])


def dense_solve(blocks, gradient, damping):
    """With one damping, or with one for every unit."""
    shifts = np.broadcast_to(damping, blocks.units)[:, None, None] * np.eye(blocks.size)
    matrices = dense(blocks) + shifts
    return np.linalg.solve(matrices, join(gradient).astype(float)[..., None])[..., 0]


def system(solver, blocks, damping):
    """A layer's system, prepared; the damping is that of every unit."""
    return LayerSystem(blocks, damping, solver.prepare(blocks, damping))


@partial(jax.jit, static_argnums=0)
def run(solver, blocks, gradient, damping):
    given = system(solver, blocks, jnp.full(gradient.bias.shape, damping, gradient.bias.dtype))
    return solver.solve([given], [gradient])[0]


EXACT = {"direct": direct(), "dual": dual(), "cg": unit_conjugate_gradient(16)}
SHAPES = {"wide": {"rows": 6}, "square": {"rows": 10}, "tall": {"rows": 50}}


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("damping", [0.05, 0.2, 2.0])
@pytest.mark.few(9)
def test_exact_in_float64(solver, shape, damping):
    blocks, gradient = problem(**SHAPES[shape])
    found = run(EXACT[solver], blocks, gradient, damping)
    expected = dense_solve(blocks, gradient, damping)
    np.testing.assert_allclose(join(found.value), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("solver", ["direct", "dual"])
@pytest.mark.parametrize("shape", SHAPES)
def test_close_in_float32(solver, shape):
    blocks, gradient = problem(**SHAPES[shape], dtype=jnp.float32)
    found = join(run(EXACT[solver], blocks, gradient, 0.05).value)
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
    given = DenseBlocks(dense(blocks))
    found = run(direct(), given, gradient, 0.1)
    np.testing.assert_allclose(join(found.value), dense_solve(blocks, gradient, 0.1), atol=1e-9)
    for solver in (dual(), unit_conjugate_gradient(2)):
        with pytest.raises(ValueError, match="needs a metric made of rows"):
            run(solver, given, gradient, 0.1)


def test_diagonal_divides_by_the_diagonal():
    blocks, gradient = problem(signed=False)
    found = run(diagonal(), blocks, gradient, 0.3)
    expected = join(gradient) / (0.3 + np.diagonal(dense(blocks), axis1=1, axis2=2))
    np.testing.assert_allclose(join(found.value), expected, atol=1e-12)


@pytest.mark.parametrize("rows", [6, 60])
@pytest.mark.few(1)
def test_conjugate_gradients_converge_monotonically(rows):
    blocks, gradient = problem(inputs=30, rows=rows)
    expected = dense_solve(blocks, gradient, 0.1)
    errors = []
    for iterations in range(1, 6):
        found = join(run(unit_conjugate_gradient(iterations), blocks, gradient, 0.1).value)
        errors.append(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    assert all(after < before or after < 1e-12 for before, after in itertools.pairwise(errors))
    assert errors[-1] < 0.02


@pytest.mark.parametrize(("damping", "tolerance"), [(0.1, 1e-6), (1e-3, 1e-5)])
@pytest.mark.few(1)
def test_conjugate_gradients_stay_where_they_have_converged(damping, tolerance):
    """In single precision, hundreds of iterations after nothing but rounding is left."""
    blocks, gradient = problem(rows=400, dtype=jnp.float32)
    found = join(run(unit_conjugate_gradient(500), blocks, gradient, np.float32(damping)).value)
    expected = dense_solve(blocks, gradient, damping)
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


def test_deflation_beats_plain_conjugate_gradients():
    """Over parameters, where the mean input dominates, the preconditioner saves iterations."""
    blocks, gradient = problem(inputs=40, rows=300, units=8)
    expected = dense_solve(blocks, gradient, 0.05)
    primal = jax.jit(unit_cg._primal)(blocks, jnp.full(8, 0.05))
    plain = primal._replace(deflation=jnp.zeros(8))
    solve = jax.jit(lambda p: unit_cg._over_parameters(p, gradient, 2))
    error = lambda p: np.linalg.norm(join(solve(p)) - expected)  # noqa: E731
    assert error(primal) < 0.7 * error(plain)


def test_a_factor_serves_many_gradients():
    blocks, gradient = problem()
    for solver in EXACT.values():
        factor = jax.jit(solver.prepare)(blocks, np.full(4, 0.1))
        given = LayerSystem(blocks, np.full(4, 0.1), factor)
        solve = jax.jit(lambda given, g, solver=solver: solver.solve([given], [g])[0].value)
        twice = join(solve(given, jax.tree.map(lambda g: 2 * np.asarray(g), gradient)))
        np.testing.assert_allclose(twice, 2 * join(solve(given, gradient)), rtol=1e-9)


TOGETHER = [(90, 20, 6), (3, 20, 6), (50, 4, 6), (51, 1, 6), (7, 30, 11), (2, 5, 300), (120, 40, 300)]


def test_layers_together_are_solved_like_each_alone():
    """Layers of all shapes: with as many rows as each other or not, in sample space or over parameters."""
    solver = unit_conjugate_gradient(20)
    problems = [problem(units=u, inputs=i, rows=r, seed=seed) for seed, (u, i, r) in enumerate(TOGETHER)]
    dampings = [np.linspace(0.1, 0.3, g.bias.size) for _, g in problems]

    @jax.jit
    def solve(problems, dampings):
        systems = [system(solver, b, damping) for (b, _), damping in zip(problems, dampings, strict=True)]
        return [found.value for found in solver.solve(systems, [gradient for _, gradient in problems])]

    for (blocks, gradient), damping, found in zip(problems, dampings, solve(problems, dampings), strict=True):
        expected = dense_solve(blocks, gradient, damping)
        np.testing.assert_allclose(join(found), expected, atol=1e-8 * np.abs(expected).max())


def test_few_operations_for_many_layers():
    """In sample space the number of products in an iteration does not grow with the number of layers."""

    def products(layers: int, iterations: int) -> int:
        solver = unit_conjugate_gradient(iterations)
        shapes = [problem(units=10 + n, rows=6) for n in range(layers)]

        def solve(given):
            systems = [system(solver, blocks, jnp.full_like(g.bias, 0.1)) for blocks, g in given]
            return [found.value for found in solver.solve(systems, [g for _, g in given])]

        return str(jax.make_jaxpr(solve)(shapes)).count("dot_general")

    assert products(8, 5) - products(8, 4) == products(2, 5) - products(2, 4) == 1


def test_every_layer_by_its_own_solver():
    problems = [problem(seed=seed, units=3 + seed) for seed in range(4)]
    solvers = [direct(), diagonal(), direct(), unit_conjugate_gradient(16)]

    @jax.jit
    def solve(problems):
        pairs = zip(solvers, problems, strict=True)
        systems = [system(s, b, jnp.full(g.bias.shape, 0.2)) for s, (b, g) in pairs]
        return [found.value for found in solve_layers(solvers, systems, [g for _, g in problems])]

    for solver, (blocks, gradient), found in zip(solvers, problems, solve(problems), strict=True):
        np.testing.assert_allclose(join(found), join(run(solver, blocks, gradient, 0.2).value), atol=1e-9)


CURVED = {
    "direct": direct(),
    "dual": dual(),
    "cg": unit_conjugate_gradient(16),
    "cg, one iteration": unit_conjugate_gradient(1),
    "cg, three iterations": unit_conjugate_gradient(3),
    "diagonal": diagonal(),
    "shared": shared(),
    "shared, one direction": shared(1),
}
ROWS = {"in samples": 20, "over parameters": 300}


def layered(rows):
    """Two layers and an array of its own between them: the operator, its right side, its matrices."""
    (one, left), (two, right) = problem(rows=rows), problem(inputs=4, units=60, rows=rows, seed=1)
    alone = jnp.linspace(0.05, 0.25, 3)
    operator = LayeredFisher({"a": one, "b": alone, "c": (two,)})
    return operator, {"a": left, "b": jnp.arange(1.0, 4.0), "c": (right,)}, (dense(one), alone, dense(two))


def damping_of(operator, relative):
    """A number, or three tenths of the mean diagonal of every node."""
    return tuple(0.3 * each for each in operator.mean_diagonal(jax.random.key(0))) if relative else 0.15


def dense_length(vector, matrices):
    """x^T F x."""
    above, alone, below = matrices
    total = (np.asarray(alone) * np.asarray(vector["b"]) ** 2).sum()
    for layer, matrix in ((vector["a"], above), (vector["c"][0], below)):
        total += np.einsum("ji,jik,jk->", join(layer), matrix, join(layer))
    return total


FEW = [("in samples", True, solver) for solver in CURVED]
FEW += [("over parameters", False, solver) for solver in ("direct", "cg, three iterations", "shared")]
REST = [case for case in itertools.product(ROWS, (False, True), CURVED) if case not in FEW]


@pytest.mark.parametrize(
    ("rows", "relative", "solver"), [*FEW, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)]
)
@pytest.mark.few(3)
def test_the_curvature_of_a_solution_is_its_length_in_the_metric(solver, rows, relative):
    """x^T F x of what was found, be it the solution or not, with one damping or one for every unit."""
    operator, right, matrices = layered(ROWS[rows])
    whole = per_layer(always(CURVED[solver]))

    @jax.jit
    def solve(operator, right):
        factor, _ = whole.prepare(operator, damping_of(operator, relative), 0.0)
        return whole.solve(factor, right, None)

    found = solve(operator, right)
    assert float(found.curvature) == pytest.approx(dense_length(found.value, matrices), rel=1e-10)
    assert int(found.result) == CONVERGED
    assert jax.tree.structure(found.value) == jax.tree.structure(right)


@pytest.mark.parametrize("relative", [False, True])
def test_a_whole_tree_is_solved_node_by_node(relative):
    """Layers by their blocks, other arrays by division, each with its own damping."""
    operator, right, _ = layered(20)
    whole = per_layer(always(direct()))

    @jax.jit
    def solve(operator, right):
        damping = damping_of(operator, relative)
        factor, after = whole.prepare(operator, damping, 0.0)
        return damping, after, whole.solve(factor, right, None)

    damping, after, found = solve(operator, right)
    given = damping if relative else (0.15, np.full(3, 0.15), 0.15)
    for blocks, g, a, got in (
        (operator.blocks["a"], right["a"], given[0], found.value["a"]),
        (operator.blocks["c"][0], right["c"][0], given[2], found.value["c"][0]),
    ):
        np.testing.assert_allclose(join(got), dense_solve(blocks, g, a), rtol=1e-9, atol=1e-12)
    alone = np.asarray(right["b"]) / (np.asarray(operator.blocks["b"]) + given[1])
    np.testing.assert_allclose(found.value["b"], alone, rtol=1e-12)
    assert float(after) == pytest.approx(0, abs=1e-29)
    assert int(found.iterations) == 0


def test_automatic_choice():
    tall, wide = problem(rows=50)[0], problem(rows=6)[0]
    assert by_refresh(1, 3)(tall).name == "cg"
    assert by_refresh(100, 3)(tall).name == by_refresh(100, 3)(wide).name == "shared"
    assert by_refresh(1, 3)(DenseBlocks(dense(tall))).name == "direct"
    assert always(diagonal())(tall).name == "diagonal"
    assert (by_size()(tall).name, by_size()(wide).name) == ("direct", "dual")
    assert by_size()(DenseBlocks(dense(wide))).name == "direct"


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 10))])
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
    np.testing.assert_allclose(one, two, rtol=1e-7, atol=1e-7 * np.abs(one).max())


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
        on = batches.take_batch(session.key_steps, session.rows, order[:32], jnp.float32)
        batch = model.coding.value(on, jnp.float32)
        estimate, _ = jax.jit(reweighted(10).estimate)(jax.random.key(0), (), model, batch)
        blocks_from = lambda make: make().measure(jax.random.key(0), (), model, estimate.samples)[0].blocks  # noqa: E731
        generation = blocks_from(fisher.generation_from_dreams)["generation"]
        recognition = blocks_from(fisher.recognition_from_dreams)["recognition"]
    gradients = (*estimate.gradient.generation, *estimate.gradient.recognition)
    wide = lambda part: jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), part)  # noqa: E731
    return [(wide(b), wide(g)) for b, g in zip((*generation, *recognition), gradients, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("iterations", "damping", "tolerance"), [(3, 0.2, 0.02), (6, 0.2, 5e-4), (6, 0.05, 0.01)]
)
def test_conjugate_gradients_on_a_trained_machine(trained_blocks, iterations, damping, tolerance):
    """The stated accuracy of the whole direction after the stated number of iterations."""
    wrong = right = 0.0
    for blocks, gradient in trained_blocks:
        expected = dense_solve(blocks, gradient, damping)
        found = join(run(unit_conjugate_gradient(iterations), blocks, gradient, damping).value)
        wrong, right = wrong + np.sum((found - expected) ** 2), right + np.sum(expected**2)
    assert np.sqrt(wrong / right) < tolerance
