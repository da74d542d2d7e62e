"""Which exact solver is the cheapest, and whether it is worth its price: predicted from shapes alone.

    R by rows         passes over rows parameters
    by QR             2 rows parameters^2
    by Cholesky       2 rows parameters^2 + parameters^3 / 3         (mostly a product)
    in sample space   2 rows^2 parameters + (2/3) rows^3
    a product F v     four passes over the data

Operations become seconds by the speeds of `SPEEDS`, which `python -m benchmarks.solvers` measures. They are
constants and not measured as the program runs: the same settings must give the same training bit for bit.
"""

from typing import Any, NamedTuple

import jax

from natgrad.core import Model, Operator, Solution, Solver
from natgrad.solvers.rows import cholesky_solve, qr_solve
from natgrad.solvers.whole import dense_solve, dual_solve


class Speeds(NamedTuple):
    """Operations in a second, in units of 1e9: in passes through a network, in products, in LAPACK."""

    passes: float
    products: float
    qr: float
    cholesky: float
    elimination: float


SPEEDS = {
    "float32": Speeds(passes=41.3, products=71.5, qr=34.1, cholesky=30.0, elimination=18.7),
    "float64": Speeds(passes=14.7, products=15.8, qr=21.9, cholesky=13.4, elimination=14.5),
}
"""Of one core of a CPU, by precision; other backends and precisions are taken to have the same ratios."""


class Size(NamedTuple):
    """A problem: rows of its factor, how many of them belong to a row of data, parameters, speeds."""

    samples: int
    outputs: int
    parameters: int
    speeds: Speeds

    def product(self) -> float:
        """Seconds of one product F v."""
        return 8e-9 * self.samples / self.outputs * self.parameters / self.speeds.passes

    def factor(self) -> float:
        """Seconds until R is there."""
        return 6e-9 * self.samples * self.parameters / self.speeds.passes

    def by_qr(self) -> float:
        """Seconds of a solve by orthogonal decomposition, R apart."""
        return 2e-9 * (self.samples + self.parameters) * self.parameters**2 / self.speeds.qr

    def by_cholesky(self) -> float:
        """Seconds of a solve by Cholesky's factor, R apart."""
        squared = 2e-9 * self.samples * self.parameters**2 / self.speeds.products
        return squared + 1e-9 * self.parameters**3 / 3 / self.speeds.cholesky

    def in_samples(self) -> float:
        """Seconds of a solve in sample space, R apart."""
        squared = 2e-9 * self.samples**2 * self.parameters / self.speeds.products
        return squared + 2e-9 * self.samples**3 / 3 / self.speeds.elimination


def automatic(otherwise: Solver, *, products: float = 100.0, memory_mb: float = 512.0) -> Solver:
    """An exact solver where it costs no more than so many products with F, otherwise as given.

    Of the exact ones: in sample space where that is cheaper than in parameter space; there by QR, which does
    not square the condition, where that can be paid, else by Cholesky.

    Args:
        otherwise: for everything that is too large.
        products: the price that an exact solve may have.
        memory_mb: the largest factor R that is made.
    """

    def choose(operator: Operator) -> Solver:
        product, leaves = operator.bind(), jax.tree.leaves(operator.like)
        parameters, bytes_each = sum(leaf.size for leaf in leaves), leaves[0].dtype.itemsize
        if product.rows is None:
            return dense_solve() if parameters <= products else otherwise
        speeds = SPEEDS.get(leaves[0].dtype.name, SPEEDS["float32"])
        size = Size(product.samples, product.outputs, parameters, speeds)
        if size.samples * parameters * bytes_each > memory_mb * 2**20:
            return otherwise
        return cheapest_exact(size, products) or otherwise

    def solve(factor: Any, gradient: Model, guess: Model | None) -> Solution:
        return choose(factor.operator).solve(factor, gradient, guess)

    return Solver(lambda operator, damping, after: choose(operator).prepare(operator, damping, after), solve)


def cheapest_exact(size: Size, products: float) -> Solver | None:
    """The exact solver for a problem of that size, if there is one at the price of so many products."""
    price = products * size.product() - size.factor()
    if size.in_samples() < size.by_cholesky():
        return dual_solve() if size.in_samples() <= price else None
    if size.by_qr() <= price:
        return qr_solve()
    return cholesky_solve() if size.by_cholesky() <= price else None
