"""Runs of natgrad and of other minimizers on the same functions, from the same starts, with the same budgets.

A run is (evaluations, best value, reached). natgrad and evosax run all seeds side by side, compiled; pycma
and cmaes are called from Python, seed by seed, as long as a cell's share of CPU seconds lasts.
"""

import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.relax import functions, loop
from natgrad.relax.plan import Plan, make

Run = tuple[int, float, bool]


def starts(name: str, size: int, seeds: int) -> tuple[np.ndarray, float]:
    """A start per seed, and the standard deviation of the first population."""
    reach, spread = (2.0, 0.5) if name == "rosenbrock" else (5.0, 2.0)
    rows = [np.random.default_rng([seed, size]).uniform(-reach, reach, size) for seed in range(seeds)]
    return np.stack(rows), spread


def natgrad_runs(
    problem, plan: Plan, means, seeds: int, budget: int, target: float, restarts: int
) -> list[Run]:
    """All seeds side by side; the population doubles at every restart, for those that have not arrived."""
    function = jax.vmap(problem.function)
    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(0), seed))(jnp.arange(seeds))
    progress = None
    for restart in range(restarts + 1):
        grown = plan.grown(2**restart) if restart else plan
        fresh = jax.vmap(lambda _, used=grown: loop.first_progress(used))(jnp.arange(seeds))
        if means is not None:
            fresh = fresh._replace(state=fresh.state._replace(mean=jnp.asarray(_shaken(means, restart))))
        if progress is not None:
            fresh = progress._replace(state=fresh.state, flat=fresh.flat, stale=fresh.stale)
        limits = np.where(
            np.asarray(fresh.value) <= target, 0, (budget - np.asarray(fresh.evaluations)) // grown.points
        )
        if not np.any(limits > 0):
            break
        shared = jax.vmap(lambda k, p, n, used=grown: loop.generations(used, function, 1, k, p, n, target)[0])
        progress = shared(
            jax.vmap(lambda k, r=restart: jax.random.fold_in(k, r))(keys), fresh, jnp.asarray(limits)
        )
    values = np.asarray(progress.value)
    return [(int(e), float(v), bool(v <= target)) for e, v in zip(progress.evaluations, values, strict=True)]


def _shaken(means: np.ndarray, restart: int) -> np.ndarray:
    """Starts of a restart: elsewhere in the same box."""
    return means if restart == 0 else np.random.default_rng(restart).permuted(means, axis=1)


def natgrad_continuous(
    name: str, size: int, seeds: int, budget: int, *, method: str, restarts: int
) -> list[Run]:
    means, spread = starts(name, size, seeds)
    problem = functions.named_problem(name, size)
    plan = make(size, "gaussian", {"method": method, "spread": spread})
    return natgrad_runs(problem, plan, means, seeds, budget, 1e-8, restarts)


def evosax_cma(name: str, size: int, seeds: int, budget: int) -> list[Run]:
    """evosax's CMA_ES with its defaults and the usual population."""
    from evosax.algorithms import CMA_ES

    means, spread = starts(name, size, seeds)
    population = 4 + int(3 * np.log(size))
    strategy = CMA_ES(population_size=population, solution=jnp.zeros(size))
    params = strategy.default_params.replace(std_init=jnp.asarray(spread))
    function = jax.vmap(functions.named_problem(name, size).function)

    def run(key, mean):
        def step(carry):
            key, state, count = carry
            key, key_ask, key_tell = jax.random.split(key, 3)
            points, state = strategy.ask(key_ask, state, params)
            state, _ = strategy.tell(key_tell, points, function(points), state, params)
            return key, state, count + 1

        def going(carry):
            _, state, count = carry
            sound = jnp.all(jnp.isfinite(state.mean))
            return (state.best_fitness > 1e-8) & (count < budget // population) & sound

        first = strategy.init(key, mean, params)
        first = jax.tree.map(lambda leaf: jnp.asarray(leaf) + jnp.zeros((), jnp.asarray(leaf).dtype), first)
        _, state, count = jax.lax.while_loop(going, step, (key, first, jnp.zeros((), int)))
        return count * population, state.best_fitness

    used, values = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(1), seeds), jnp.asarray(means))
    return [(int(e), float(v), bool(v <= 1e-8)) for e, v in zip(used, values, strict=True)]


def pycma_runs(name: str, size: int, seeds: int, budget: int, *, restarts: int) -> Iterator[Run]:
    import cma

    means, spread = starts(name, size, seeds)
    for seed, mean in enumerate(means):
        seen = Seen(plain(name))
        options = {"ftarget": 1e-8, "maxfevals": budget, "seed": seed + 1, "verbose": -9, "verb_log": 0}
        cma.fmin2(seen, mean, spread, options, restarts=restarts)
        yield seen.count, seen.best, seen.best <= 1e-8


def cmaes_runs(name: str, size: int, seeds: int, budget: int, *, kind: str) -> Iterator[Run]:
    import cmaes

    means, spread = starts(name, size, seeds)
    function = plain(name)
    for seed, mean in enumerate(means):
        search = getattr(cmaes, kind)(mean=mean, sigma=spread, seed=seed + 1)
        best, used = np.inf, 0
        while best > 1e-8 and used + search.population_size <= budget and not search.should_stop():
            evaluated = []
            for _ in range(search.population_size):
                point = search.ask()
                evaluated.append((point, float(function(point))))
            search.tell(evaluated)
            used += len(evaluated)
            best = min(best, *(value for _, value in evaluated))
        yield used, best, best <= 1e-8


class Seen:
    """A function that remembers how often it was called and its lowest value: of all restarts."""

    def __init__(self, function: Callable[[np.ndarray], float]):
        self.function, self.count, self.best = function, 0, np.inf

    def __call__(self, x) -> float:
        """The value, remembered."""
        value = float(self.function(np.asarray(x)))
        self.count, self.best = self.count + 1, min(self.best, value)
        return value


def plain(name: str) -> Callable[[np.ndarray], float]:
    """The same functions in NumPy, for callers from Python."""
    return {
        "sphere": lambda x: np.sum(x**2),
        "ellipsoid": lambda x: np.sum(10.0 ** (6 * np.linspace(0, 1, len(x))) * x**2),
        "discus": lambda x: 1e6 * x[0] ** 2 + np.sum(x[1:] ** 2),
        "cigar": lambda x: x[0] ** 2 + 1e6 * np.sum(x[1:] ** 2),
        "rosenbrock": lambda x: np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2),
        "rastrigin": lambda x: np.sum(x**2 - 10 * np.cos(2 * np.pi * x) + 10),
        "ackley": lambda x: (
            -20 * np.exp(-0.2 * np.sqrt(np.mean(x**2))) - np.exp(np.mean(np.cos(2 * np.pi * x))) + 20 + np.e
        ),
    }[name]


def limited(runs: Iterator[Run], seconds: float) -> list[Run]:
    """As many runs as begin within a number of CPU seconds."""
    found, began = [], time.process_time()
    for run in runs:
        found.append(run)
        if time.process_time() - began > seconds:
            break
    return found
