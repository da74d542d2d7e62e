"""The settings of a search, checked once, and the strategy they name: the only place with names for methods.

A plan is frozen and hashable: a static argument of the compiled loop, and a JSON object in a saved search.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from natgrad.errors import InputError, check_counts, unknown
from natgrad.families import gaussian
from natgrad.families.interactions import pairwise
from natgrad.relax import bits, clouds, fields, mixed, weights
from natgrad.relax.strategy import Strategy

_METHODS: dict[str, tuple[str, ...]] = {
    "gaussian": ("adaptive", "xnes", "rank-mu"),
    "diagonal": ("adaptive", "xnes"),
    "bernoulli": ("adaptive", "pbil", "umda", "cga"),
    "pairwise": ("annealed",),
    "mixed": ("adaptive",),
}
_COVARIANCES = ("gaussian", "mixed", "pairwise")  # families with a number for every pair of variables
LARGEST_SIZE = (10**6, 10**4)  # variables of a search: without such numbers, and with them
Edges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Plan:
    """Everything that decides a search, apart from the function, the budget and the seed.

    Attributes:
        family: gaussian, diagonal, bernoulli, pairwise or mixed.
        size: how many variables.
        method: how the distribution learns; the first of `METHODS[family]` by default.
        population: points per generation; 0 chooses by size.
        mean: where a continuous search starts.
        spread: its standard deviations, or its covariance, row after row.
        edges: pairs of variables that may interact; None means all.
        zeros: pairs whose precision must be zero, for edges to be checked against.
        low, high: bounds of continuous variables, by reflection; empty where there are none.
        binary: how many variables, the first ones, are binary in a mixed search.
        values: the two values of a binary variable.
        rate: the learning rate, where a method has one; 0 is the method's own.
        raw: weights from the values themselves instead of ranks (xnes).
        restarts: how often a search that has ended begins again, with twice the population each time [ipop].
    """

    family: str = "gaussian"
    size: int = 1
    method: str = ""
    population: int = 0
    mean: tuple[float, ...] = ()
    spread: tuple[float, ...] = (1.0,)
    edges: Edges | None = None
    zeros: Edges = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    binary: int = 0
    values: tuple[float, float] = (-1.0, 1.0)
    rate: float = 0.0
    raw: bool = False
    restarts: int = 0

    @property
    def continuous(self) -> int:
        """How many variables are real numbers."""
        return {"bernoulli": 0, "pairwise": 0, "mixed": self.size - self.binary}.get(self.family, self.size)

    @property
    def bits(self) -> int:
        """How many variables are binary."""
        return self.size - self.continuous

    @property
    def points(self) -> int:
        """The population: as given, or by the number of variables."""
        if self.population:
            return self.population
        if self.method == "cga":
            return 2
        if self.family == "pairwise":
            return 50
        if self.family == "bernoulli" and self.method in ("umda", "pbil"):
            return max(20, 2 * math.ceil(4 * math.sqrt(self.size) * math.log2(self.size + 1) / 2))
        return 4 + int(3 * math.log(self.size)) + 2 * (self.family == "mixed")

    def grown(self, factor: int) -> "Plan":
        """The same search with a larger population."""
        return dataclasses.replace(self, population=factor * self.points)

    def as_json(self) -> dict[str, Any]:
        """Plain data, from which `from_json` makes the plan again."""
        return dataclasses.asdict(self)


def make(start: Any, family: str, options: Mapping[str, Any]) -> Plan:
    """A checked plan from what a user gives: a start point or a number of variables, a family, options."""
    known = {field.name for field in dataclasses.fields(Plan)} - {"family", "size", "mean", "low", "high"}
    for name in options:
        if name not in known | {"bounds"}:
            raise unknown("option", name, known | {"bounds"})
    if family not in _METHODS:
        raise unknown("family", str(family), _METHODS)
    size, mean = _start(start)
    given = {name: value for name, value in options.items() if name != "bounds" and value is not None}
    given["method"] = given.get("method") or _METHODS[family][0]
    if given["method"] not in _METHODS[family]:
        raise unknown(f"method of the {family} family", str(given["method"]), _METHODS[family])
    for name, (read, wanted) in _READ.items():
        if name in given:
            given[name] = _taken(name, given[name], read, wanted)
    given.setdefault("spread", (1.0,))
    plan = Plan(family=family, size=size, mean=mean, **given)
    low, high = _bounds(options.get("bounds"), plan.continuous)
    return check_plan(dataclasses.replace(plan, low=low, high=high))


def _pairs(given: Any) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((min(pair), max(pair)) for pair in given))


def _numbers(given: Any) -> tuple[float, ...]:
    return tuple(np.ravel(np.asarray(given, float)).tolist())


_READ: dict[str, tuple[Callable[[Any], Any], str]] = {
    "edges": (_pairs, "pairs of variables such as [(0, 1), (1, 2)]"),
    "zeros": (_pairs, "pairs of variables such as [(0, 1), (1, 2)]"),
    "values": (lambda given: tuple(map(float, given)), "two numbers such as (0, 1)"),
    "spread": (_numbers, "a number, standard deviations or a covariance"),
}


def _taken(name: str, given: Any, read: Callable[[Any], Any], wanted: str) -> Any:
    try:
        return read(given)
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected {wanted}, got {given!r}; correct it") from None


def from_json(content: Mapping[str, Any]) -> Plan:
    """The plan that `as_json` wrote."""

    def frozen(value: Any) -> Any:
        return tuple(frozen(inner) for inner in value) if isinstance(value, list) else value

    return Plan(**{name: frozen(value) for name, value in content.items()})


def check_plan(plan: Plan) -> Plan:
    """Refuse what cannot be searched, in one sentence."""
    if plan.size < 1 or not 0 <= plan.bits <= plan.size:
        raise InputError(
            f"a search needs at least one variable, got {plan.size}; give a start point or a number"
        )
    if plan.family == "mixed" and not 0 < plan.binary < plan.size:
        raise InputError(
            f"a mixed search needs binary variables and others, got {plan.binary} binary of {plan.size}; "
            "set binary"
        )
    check_counts(0, restarts=plan.restarts)
    check_counts(0, population=plan.population)
    if plan.size > LARGEST_SIZE[plan.family in _COVARIANCES]:
        raise InputError(
            f"a search of the {plan.family} family has at most {LARGEST_SIZE[plan.family in _COVARIANCES]} "
            f"variables, got {plan.size}; give fewer, or another family"
        )
    if plan.population == 1:
        raise InputError("a population has at least two points, got 1; raise it")
    if plan.edges is not None and (both := set(plan.edges) & set(plan.zeros)):
        raise InputError(
            f"the pair {sorted(both)[0]} is both an edge and a zero of the precision; leave it out of one"
        )
    if plan.continuous:
        factor(plan)
    return plan


def factor(plan: Plan) -> np.ndarray:
    """A square root of the start covariance: a vector for independent variables, else a lower triangle."""
    size, given = plan.continuous, np.asarray(plan.spread)
    if given.size not in (1, size, size * size) or (size == 1 and given.size > 1):
        raise InputError(
            f"spread is one number, {size} standard deviations or a {size} x {size} covariance, "
            f"got {given.size} numbers; correct it"
        )
    if given.size == size * size and size > 1:
        return _root(given.reshape(size, size), plan)
    if not np.all(np.isfinite(given) & (given > 0)):
        raise InputError(f"standard deviations are positive, got {given.min():g}; raise spread")
    deviations = np.broadcast_to(given, (size,)).astype(float)
    return deviations if plan.family == "diagonal" else np.diag(deviations)


def _root(covariance: np.ndarray, plan: Plan) -> np.ndarray:
    symmetric = np.allclose(covariance, covariance.T, rtol=1e-10, atol=0)
    smallest = np.linalg.eigvalsh((covariance + covariance.T) / 2)[0]
    if not symmetric or smallest <= 0:
        raise InputError(
            "the start covariance must be symmetric and positive definite, "
            + (f"its smallest eigenvalue is {smallest:.3g}" if symmetric else "it is not symmetric")
            + "; correct spread"
        )
    if plan.family == "diagonal":
        raise InputError("the diagonal family has no covariances; give standard deviations, or use gaussian")
    return np.linalg.cholesky(covariance)


def strategy(plan: Plan) -> Strategy:
    """The strategy that a plan names."""
    return _STRATEGIES[plan.family](plan)


def _gaussian(plan: Plan) -> Strategy:
    mean = np.asarray(plan.mean[plan.bits :] if plan.mean else [0.0] * plan.continuous, float)
    cloud = clouds.first_cloud(mean, factor(plan))
    if plan.method == "xnes":
        assign = weights.standardized if plan.raw else None
        return clouds.exponential_natural(plan.points, cloud, rate=plan.rate or None, assign=assign)
    if plan.method == "rank-mu":
        return clouds.rank_mu(plan.points, cloud, rate=plan.rate or None)
    return clouds.adaptive_cloud(plan.points, cloud, _graph(plan))


def _graph(plan: Plan) -> Edges | None:
    """The edges of the precision: as given, or all but the zeros; None where every pair is free."""
    if plan.family == "diagonal" or (plan.edges is None and not plan.zeros):
        return None
    chosen = gaussian.full(plan.continuous).edges if plan.edges is None else plan.edges
    return gaussian.sparse(
        plan.continuous, [edge for edge in chosen if edge not in plan.zeros], plan.zeros
    ).edges


def _bernoulli(plan: Plan) -> Strategy:
    number = plan.points
    if plan.method == "pbil":
        return bits.pbil(number, plan.bits, rate=plan.rate or 0.1)
    if plan.method == "umda":
        return bits.umda(number, plan.bits)
    if plan.method == "cga":
        return bits.cga(plan.bits, steps=1 / plan.rate if plan.rate else plan.bits)
    return bits.adaptive_coins(number, plan.bits)


def _mixed(plan: Plan) -> Strategy:
    utilities = weights.logarithmic(plan.points)
    coins = bits.stepping(plan.points, plan.binary, utilities, rate=plan.rate or 2 / plan.size)
    return mixed.product(coins, _gaussian(plan), plan.binary)


_STRATEGIES: dict[str, Callable[[Plan], Strategy]] = {
    "gaussian": _gaussian,
    "diagonal": _gaussian,
    "bernoulli": _bernoulli,
    "pairwise": lambda plan: fields.annealed(pairwise(plan.size, plan.edges), plan.points),
    "mixed": _mixed,
}


def _start(start: Any) -> tuple[int, tuple[float, ...]]:
    if isinstance(start, int | np.integer) and not isinstance(start, bool):
        return int(start), ()
    try:
        mean = np.atleast_1d(np.asarray(start, float))
    except (TypeError, ValueError):
        mean = np.empty((0, 0))
    if mean.ndim != 1 or isinstance(start, bool) or not np.all(np.isfinite(mean)):
        raise InputError(
            f"start is a number of variables or a list of finite numbers, got {start!r}; give for example 10"
        )
    return len(mean), tuple(mean.tolist())


def _bounds(bounds: Any, size: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if bounds is None:
        return (), ()
    try:
        low, high = (np.broadcast_to(np.asarray(side, float), (size,)) for side in bounds)
    except (TypeError, ValueError):
        raise InputError(
            f"bounds are (low, high), numbers or {size} of each, got {bounds!r}; correct them"
        ) from None
    if not np.all(low < high):
        raise InputError(f"every low bound must be below its high one, got {bounds!r}; correct them")
    return tuple(low.tolist()), tuple(high.tolist())
