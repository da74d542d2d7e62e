"""Ways to train a network on residuals: natgrad's, and those of optimistix and optax.

Each is a function (equation, start, batch, setting, report). It calls `report(parameters, steps)` now and
then and ends where that returns true; everything else, compilation included, is on its clock.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import natgrad
from benchmarks.equations import EQUATIONS, Equation, loss_of, residuals_of
from natgrad.fitting import methods

Report = Callable[[Any, int], bool]
Fit = Callable[[Equation, Any, Any, float, Report], None]
CHUNK = 20  # steps of first-order methods between two looks at the clock


def natural(method: Callable[[float], methods.Method]) -> Fit:
    """natgrad, by a method whose setting is its damping: the first one, where it changes."""

    def fit(equation: Equation, start: Any, batch: Any, setting: float, report: Report) -> None:
        given = {"method": method(setting), "steps": 10**6, "ftol": 0.0, "watch": report}
        natgrad.least_squares(residuals_of(equation), start, batch, **given)

    return fit


def optimistix(equation: Equation, start: Any, batch: Any, setting: float, report: Report) -> None:
    """Levenberg-Marquardt of optimistix, step by step; the setting is both of its tolerances."""
    import equinox
    import optimistix as optx

    residuals = residuals_of(equation)

    def scaled(p: Any, batch: Any) -> tuple[Any, None]:
        return jax.tree.map(lambda r: r / jnp.sqrt(jnp.asarray(r.size, r.dtype)), residuals(p, batch)), None

    solver = optx.LevenbergMarquardt(rtol=setting, atol=setting)
    shapes = jax.eval_shape(lambda: scaled(start, batch))
    given = {"fn": scaled, "args": batch, "options": {}, "tags": frozenset()}
    state = solver.init(y=start, f_struct=shapes[0], aux_struct=shapes[1], **given)
    step = equinox.filter_jit(functools.partial(solver.step, **given))
    p, made, done = start, 0, False
    while not done:
        p, state, _ = step(y=p, state=state)
        made += 1
        done = report(p, made)


def quasi_newton(equation: Equation, start: Any, batch: Any, setting: float, report: Report) -> None:
    """L-BFGS of optax with its own line search; the setting is the number of steps that it remembers."""
    loss = functools.partial(loss_of(equation), batch=batch)
    optimizer = optax.lbfgs(memory_size=int(setting))
    both = optax.value_and_grad_from_state(loss)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        p, state = carry
        value, gradient = both(p, state=state)
        updates, state = optimizer.update(gradient, state, p, value=value, grad=gradient, value_fn=loss)
        return (optax.apply_updates(p, updates), state), None

    _in_chunks(step, (start, optimizer.init(start)), report)


def adam(equation: Equation, start: Any, batch: Any, setting: float, report: Report) -> None:
    """Adam of optax at a constant rate, which is the setting."""
    loss, optimizer = functools.partial(loss_of(equation), batch=batch), optax.adam(setting)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        p, state = carry
        updates, state = optimizer.update(jax.grad(loss)(p), state, p)
        return (optax.apply_updates(p, updates), state), None

    _in_chunks(step, (start, optimizer.init(start)), report)


def _in_chunks(step: Callable[[Any, None], tuple[Any, None]], carry: Any, report: Report) -> None:
    advance, made, done = jax.jit(lambda carry: jax.lax.scan(step, carry, None, CHUNK)[0]), 0, False
    strong = jax.eval_shape(advance, carry)  # weak types of a fresh state would compile it twice
    carry = jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), carry, strong)
    while not done:
        carry = advance(carry)
        made += CHUNK
        done = report(carry[0], made)


class Fitter(NamedTuple):
    """A way to train, and the settings of which seed 0 chooses one."""

    fit: Fit
    settings: tuple[float, ...]


FITTERS = {
    "natgrad gauss-newton": Fitter(natural(methods.energy_natural), (1e-6, 1e-8, 1e-10, 1e-12)),
    "natgrad lm": Fitter(natural(methods.marquardt), (1e-3,)),
    "natgrad spring": Fitter(natural(methods.spring), (1e-2, 1e-4, 1e-6)),
    "optimistix lm": Fitter(optimistix, (1e-12,)),
    "optax l-bfgs": Fitter(quasi_newton, (10, 30, 100, 300)),
    "optax adam": Fitter(adam, (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)),
}


def fitters_of(name: str) -> list[str]:
    """Those of natgrad that an equation names, and all others."""
    own = EQUATIONS[name].natural
    return [fitter for fitter in FITTERS if fitter in own or not fitter.startswith("natgrad")]
