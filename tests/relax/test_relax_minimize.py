"""`natgrad.minimize` and ask/tell: minima, budgets, NaN, bounds, mixed variables, restarts, resuming."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natgrad
from natgrad.errors import InputError
from natgrad.relax import Search, functions, loop
from natgrad.relax.plan import from_json, make
from natgrad.relax.relaxation import polynomial


def bowl(x):
    return float(np.sum((np.asarray(x) - 1) ** 2))


@jax.jit
def tilted(x):
    return jnp.sum(jnp.array([1.0, 10.0, 100.0]) * (x - 1) ** 2)


@pytest.mark.slow
def test_a_python_function_and_a_jax_function_reach_the_same_minimum():
    slow = natgrad.minimize(lambda x: float(tilted(x)), 3, target=1e-9, seed=2)
    fast = natgrad.minimize(tilted, 3, target=1e-9, seed=2)
    assert slow.success
    assert fast.evaluations == slow.evaluations
    np.testing.assert_allclose(fast.point, slow.point, rtol=1e-9)
    np.testing.assert_allclose(fast.point, np.ones(3), atol=1e-3)
    assert fast.history["best"][-1] == fast.value
    assert fast.message == "the target was reached"


def test_whole_populations_at_once_and_the_budget_is_kept():
    result = natgrad.minimize(lambda x: ((x - 1) ** 2).sum(axis=1), 3, batched=True, budget=100)
    assert 93 <= result.evaluations <= 100
    assert not result.success
    assert result.message == "the budget is used up"


def test_a_few_nans_are_survived_and_counted():
    calls = []

    def shaky(x):
        calls.append(1)
        return np.nan if len(calls) % 7 == 0 else bowl(x)

    result = natgrad.minimize(shaky, 3, target=1e-8, budget=4000)
    assert result.success
    assert result.invalid == len(calls) // 7
    assert f"{result.invalid} values were not numbers" in result.message


def test_bounds_are_respected_and_a_minimum_on_them_is_found():
    seen = []

    def function(x):
        seen.append(x)
        return float(x[0] + (x[1] - 5) ** 2)

    result = natgrad.minimize(function, [0.5, 0.5], bounds=(0.0, [2.0, 2.0]), budget=1200)
    assert np.all((np.stack(seen) >= 0) & (np.stack(seen) <= 2))
    np.testing.assert_allclose(result.point, [0, 2], atol=1e-3)


def test_reflection_changes_nothing_inside():
    points = jnp.array([[0.3, 2.5], [-0.4, 5.2]])
    found = loop.reflect(points, np.array([0.0, 2.0]), np.array([1.0, 4.0]))
    np.testing.assert_allclose(found, [[0.3, 2.5], [0.4, 2.8]], rtol=1e-12)


@pytest.mark.slow
def test_mixed_binary_and_continuous_variables():
    def function(x):
        return float(np.sum(x[:4] != [1, 0, 0, 1]) + np.sum((x[4:] - 2) ** 2))

    result = natgrad.minimize(
        function, [0] * 4 + [0.0, 0.0], family="mixed", binary=4, values=(0, 1), target=1e-6, budget=6000
    )
    assert result.success
    np.testing.assert_array_equal(result.point[:4], [1, 0, 0, 1])


def test_binary_search_finds_the_toy_minimum_and_codes_values():
    toy = polynomial({(0,): 1.0, (1,): 2.0, (0, 1): 3.0})
    result = natgrad.minimize(
        lambda x: float(toy(2 * x - 1)), 2, family="bernoulli", values=(0, 1), target=-4.0
    )
    np.testing.assert_array_equal(result.point, [1, 0])


def test_a_pairwise_field_finds_the_ground_state_of_a_frustrated_ring():
    couplings = np.array([1.0, 1.0, -1.0, 1.0, 1.0, 1.0])

    @jax.jit
    def energy(x):
        return jnp.sum(jnp.asarray(couplings) * x * jnp.roll(x, -1))

    lowest = min(
        float(np.sum(couplings * x * np.roll(x, -1)))
        for x in 2.0 * ((np.arange(64)[:, None] >> np.arange(6)) & 1) - 1
    )
    edges = [(i, (i + 1) % 6) for i in range(6)]
    result = natgrad.minimize(energy, 6, family="pairwise", edges=edges, target=lowest, budget=2000)
    assert result.success


@pytest.mark.slow
def test_restarts_double_the_population_and_continue_the_count():
    @jax.jit
    def flat(x):
        return jnp.zeros((), x.dtype) + 1.0

    result = natgrad.minimize(flat, 2, restarts=2, target=0.0, budget=5000)
    assert result.restarts == 2
    assert result.message == "all points have the same value"
    assert result.evaluations == loop.FLAT_GENERATIONS * 6 * (1 + 2 + 4)


@pytest.mark.parametrize("family", ["gaussian", pytest.param("bernoulli", marks=pytest.mark.slow)])
def test_a_saved_search_continues_number_by_number(family, tmp_path):
    straight = Search(3, family=family, seed=5)
    for turn in range(6):
        if turn == 3:
            straight.save(tmp_path)
            broken = Search.load(tmp_path)
        straight.tell([bowl(point) for point in straight.ask()])
        if turn >= 3:
            broken.tell([bowl(point) for point in broken.ask()])
    np.testing.assert_array_equal(broken.best_point, straight.best_point)
    np.testing.assert_array_equal(broken.rows, straight.rows)
    assert [path.name for path in tmp_path.iterdir()] == ["search.safetensors"]


def test_asking_twice_gives_the_same_points():
    search = Search(3)
    np.testing.assert_array_equal(search.ask(), search.ask())


def test_a_plan_survives_json():
    plan = make(
        [0.0, 1.0], "gaussian", {"edges": [(1, 0)], "bounds": (-1, 2), "spread": [[2, 0.5], [0.5, 1]]}
    )
    import json

    assert from_json(json.loads(json.dumps(plan.as_json()))) == plan


@pytest.mark.parametrize("name", functions.NAMES)
def test_known_functions_are_compiled_and_not_above_their_start(name):
    problem = functions.named_problem(name, 6)
    assert np.isfinite(problem.function(jnp.ones(6)))
    assert hasattr(problem.function, "lower")


def test_minima_of_the_known_functions():
    for name in ("sphere", "ellipsoid", "discus", "cigar", "rastrigin", "ackley"):
        assert abs(float(functions.named_problem(name, 4).function(jnp.zeros(4)))) < 1e-12
    for name in ("rosenbrock", "onemax", "leadingones"):
        assert float(functions.named_problem(name, 4).function(jnp.ones(4))) == 0
    assert float(functions.named_problem("leadingones", 4).function(jnp.array([1.0, 1.0, -1.0, 1.0]))) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: natgrad.minimize(lambda x: np.nan, 2), "no finite number at any of the first 6 points"),
        (lambda: natgrad.minimize(lambda x: np.inf, 2), "no finite number at any of the first 6 points"),
        (lambda: natgrad.minimize(lambda x: 1j, 2), "must return one real number per point, got array"),
        (lambda: natgrad.minimize(3, 2), "expected a function, got 3"),
        (lambda: natgrad.minimize(len, True), "start is a number of variables or a list of finite numbers"),
        (lambda: natgrad.minimize(len, np.ones((2, 2))), r"got array\(\[\[1., 1.\], \[1., 1.\]\]\)"),
        (
            lambda: natgrad.minimize(len, 2, budget=np.nan),
            "budget: expected a number of evaluations, got nan",
        ),
        (lambda: natgrad.minimize(len, 2, seed=-1), "seed: expected at least 0, got -1"),
        (lambda: natgrad.minimize(len, 2, seed="a"), "seed: expected a whole number, got 'a'"),
        (
            lambda: natgrad.minimize(lambda x: x, 2),
            r"expected 1 values, one per point, got an array of shape \(2,\)",
        ),
        (lambda: natgrad.minimize(lambda x: "no", 2), "one real number per point"),
        (lambda: natgrad.minimize(lambda x: x[:1], 2, batched=True), "expected 6 values"),
        (
            lambda: natgrad.minimize(jax.jit(lambda x: x), 2),
            r"expected 6 values, one per point, got \(6, 2\)",
        ),
        (
            lambda: natgrad.minimize(bowl, 2, spread=[[1, 2], [2, 1]]),
            "positive definite, its smallest eigenvalue is -1",
        ),
        (lambda: natgrad.minimize(bowl, 2, spread=[[1, 2], [0, 1]]), "it is not symmetric"),
        (lambda: natgrad.minimize(bowl, 2, spread=-1.0), "standard deviations are positive"),
        (lambda: natgrad.minimize(bowl, 2, spread=[1, 2, 3]), "got 3 numbers"),
        (lambda: natgrad.minimize(bowl, 3, edges=[(0, 1)], zeros=[(1, 0)]), "both an edge and a zero"),
        (lambda: natgrad.minimize(bowl, 3, family="diagonal", spread=np.eye(3)), "has no covariances"),
        (lambda: natgrad.minimize(bowl, 2, family="gausian"), "did you mean 'gaussian'"),
        (lambda: natgrad.minimize(bowl, 2, method="pbil"), "unknown method of the gaussian family 'pbil'"),
        (lambda: natgrad.minimize(bowl, 2, sigma=1.0), "unknown option 'sigma'"),
        (lambda: natgrad.minimize(bowl, 2, budget=3), "is less than one generation of 6"),
        (lambda: natgrad.minimize(bowl, 2, budget="x"), "budget: expected a number of evaluations, got 'x'"),
        (lambda: natgrad.minimize(bowl, 2, target="x"), "target: expected a number, got 'x'"),
        (lambda: natgrad.minimize(bowl, 2, spread="x"), "spread: expected a number, .*, got 'x'; correct it"),
        (lambda: natgrad.minimize(bowl, 3, edges=3), "edges: expected pairs of variables such as .*, got 3"),
        (lambda: natgrad.minimize(bowl, 3, family="bernoulli", values=3), "values: expected two numbers"),
        (lambda: natgrad.minimize(bowl, 2, family=3), "unknown family '3'"),
        (lambda: natgrad.minimize(bowl, 2, method=3), "unknown method of the gaussian family '3'"),
        (lambda: natgrad.minimize(bowl, 0), "at least one variable"),
        (lambda: natgrad.minimize(bowl, "many"), "a number of variables or a list"),
        (lambda: natgrad.minimize(bowl, 2, population=1), "at least two points"),
        (lambda: natgrad.minimize(bowl, 2, bounds=(1, 0)), "below its high one"),
        (lambda: natgrad.minimize(bowl, 2, bounds=3), r"bounds are \(low, high\)"),
        (lambda: natgrad.minimize(bowl, 2, family="mixed"), "binary variables and others"),
        (lambda: Search(2).tell([1.0]), "call ask first"),
        (lambda: Search.load("nowhere"), "holds no readable search"),
        (lambda: functions.named_problem("spere", 2), "did you mean 'sphere'"),
    ],
)
def test_what_a_user_can_correct_is_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sphere", "ellipsoid", "discus", "cigar", "rosenbrock"])
def test_evaluations_stay_near_those_of_cma_es(name, optimized):
    usual = {"sphere": 1800, "ellipsoid": 5200, "discus": 4600, "cigar": 4500, "rosenbrock": 6500}[name]
    problem = functions.named_problem(name, 10)
    runs = [
        natgrad.minimize(problem.function, [1.0] * 10, spread=0.5, target=1e-8, budget=40_000, seed=seed)
        for seed in range(5)
    ]
    assert all(run.success for run in runs)
    assert np.median([run.evaluations for run in runs]) < 1.33 * usual


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_few_variables_converge_too(size):
    result = natgrad.minimize(jax.jit(lambda x: jnp.sum((x - 1) ** 2)), size, target=1e-10, budget=2000)
    assert result.success
