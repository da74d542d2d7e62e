"""log Z by annealed importance sampling, forward and in reverse [salakhutdinov2008] [burda2015].

The path from independent visible units with biases a0 (the data's means) to the machine:

    log p_t(v) = ((1 - t) a0 + t a)^T v + sum_j A(t x_j) + log base(v) - log Z_t,      x = W v + b

A chain moves by one turn of Gibbs sampling at every t. The product W v serves twice: for the weight of
the move from one t to the next, and for drawing h. Forward chains start at independent units, and the
logarithms of their weights are too low on average; reverse chains start at samples of the machine, and theirs
are too high. Where both agree, log Z lies between them.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.devices import everywhere, has_mesh, placed
from natgrad.errors import InputError
from natgrad.models.rbm.machine import Boltzmann, hidden_inputs
from natgrad.models.rbm.units import PerRow, UnitRows

ERRORS = 3  # standard errors of the interval that is stated, as published estimates do
_FEW = 64  # chains that are not worth dividing
Times = Float[Array, " temperature"]
TOO_FAR = 1.0  # nats between forward and reverse that call for a warning


class Annealed(NamedTuple):
    """An estimate of log Z, its standard error, and the interval of `ERRORS` of them on each side.

    `logs` has the estimate of every chain; `effective` is the number of chains that count.
    """

    log_z: float
    se: float
    low: float
    high: float
    effective: float
    logs: np.ndarray


def anneal(
    key: PRNGKeyArray, model: Boltzmann, base: Float[Array, " visible"], times: Times, *, chains: int
) -> Annealed:
    """The forward estimate, from so many chains along the inverse temperatures from 0 to 1."""
    logs = courses(key, model, base, times, chains=chains)[-1]
    return summed_up(logs + float(base_log_z(model, base)))


def courses(
    key: PRNGKeyArray, model: Boltzmann, base: Float[Array, " visible"], times: Times, *, chains: int
) -> Float[np.ndarray, "move chain"]:
    """The log-weights of forward chains after every move."""
    _at_least("chains", chains, 2)
    key_start, key_chains = jax.random.split(key)
    start = _independent(key_start, model, base, chains)
    return _in_halves(key_chains, model, base, start, times)


def anneal_back(
    key: PRNGKeyArray,
    model: Boltzmann,
    base: Float[Array, " visible"],
    times: Times,
    visible: UnitRows,
) -> Annealed:
    """The reverse estimate, from samples of the machine's own visible states."""
    _at_least("chains", visible.shape[1], 2)
    logs = _in_halves(key, model, base, visible, times[::-1])[-1]
    found = summed_up(logs - float(base_log_z(model, base)))
    return Annealed(-found.log_z, found.se, -found.high, -found.low, found.effective, -found.logs)


def disagreement(forward: Annealed, reverse: Annealed) -> str:
    """A sentence where the two estimates are further apart than they should be, or nothing."""
    apart = abs(reverse.log_z - forward.log_z)
    if apart <= TOO_FAR:
        return ""
    return (
        f"log Z is not reliable: the forward estimate {forward.log_z:.2f} and the reverse one "
        f"{reverse.log_z:.2f} are {apart:.2f} nats apart; give more temperatures "
        "(--temperatures N, or in Python temperatures=N)"
    )


def summed_up(logs: np.ndarray) -> Annealed:
    """The logarithm of the mean of exp(logs), with its error from how much they differ."""
    most = logs.max()
    weights = np.exp(logs - most)
    mean, number = weights.mean(), len(logs)
    relative = weights.std(ddof=1) / math.sqrt(number) / mean
    log_z = most + math.log(mean)
    low = log_z + math.log1p(-ERRORS * relative) if ERRORS * relative < 1 else float(logs.min())
    effective = weights.sum() ** 2 / (weights**2).sum()
    return Annealed(log_z, relative, low, log_z + math.log1p(ERRORS * relative), effective, logs)


@jax.jit
def base_log_z(model: Boltzmann, base: Float[Array, " visible"]) -> Float[Array, ""]:
    """log Z of independent units: the visible ones with their biases, the hidden ones with none."""
    nothing = jnp.zeros_like(model.hidden_bias)[:, None]
    below = model.visible_units.log_partition(base[:, None])[0]
    return below + model.hidden_units.log_partition(nothing)[0]


def equally_spaced(temperatures: int, model: Boltzmann) -> Times:
    """The inverse temperatures from 0 to 1, equally far apart."""
    _at_least("temperatures", temperatures, 1)
    return jnp.linspace(0, 1, temperatures + 1, dtype=model.visible_bias.dtype)


def _in_halves(
    key: PRNGKeyArray, model: Boltzmann, base: Array, start: UnitRows, times: Times
) -> Float[np.ndarray, "move chain"]:
    """The log-weights after every move; two halves of the chains at a time: one draws, one multiplies."""
    number = start.shape[1]
    if number < _FEW:
        return np.asarray(everywhere(_weights(key, model, base, start, times)), np.float64)
    keys, ends = jax.random.split(key), (0, number // 2, number)

    def half(side: int) -> np.ndarray:
        part = start[:, ends[side] : ends[side + 1]]
        return np.asarray(everywhere(_weights(keys[side], model, base, part, times)), np.float64)

    if has_mesh():  # which both need whole, one after the other
        return np.concatenate([half(0), half(1)], axis=1)
    with ThreadPoolExecutor(2) as pool:
        return np.concatenate(list(pool.map(half, range(2))), axis=1)


@partial(jax.jit, static_argnums=3)
def _independent(key: PRNGKeyArray, model: Boltzmann, base: Array, chains: int) -> UnitRows:
    inputs = jnp.broadcast_to(base[:, None], (base.size, chains))
    return model.visible_units.drawn(key, inputs)


@jax.jit
def _weights(
    key: PRNGKeyArray, model: Boltzmann, base: Array, start: UnitRows, times: Times
) -> Float[Array, "move chain"]:
    """The log-weight of every chain along a path."""
    slope, units, above = model.visible_bias - base, model.visible_units, model.hidden_units
    down = jax.lax.optimization_barrier(model.weight.T)  # products of stored matrices are faster

    def step(
        carried: tuple[UnitRows, PerRow], at: tuple[Array, ...]
    ) -> tuple[tuple[UnitRows, PerRow], PerRow]:
        (visible, total), (number, before, now) = carried, at
        key_hidden, key_visible = jax.random.split(jax.random.fold_in(key, number))
        x = hidden_inputs(model, visible)
        total = total + (now - before) * (slope @ visible) + above.rise(x, before, now)
        hidden = above.drawn(key_hidden, now * x)
        inputs = (base + now * slope)[:, None] + now * (down @ hidden)
        return (units.drawn(key_visible, inputs), total), total

    number = jnp.arange(times.size - 1, dtype=jnp.uint32)
    start = placed(start, None, "rows")
    nothing = jnp.zeros_like(start[0])
    return jax.lax.scan(step, (start, nothing), (number, times[:-1], times[1:]))[1]


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InputError(f"{name}: expected at least {least}, got {value}")
