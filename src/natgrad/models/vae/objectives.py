"""What both networks learn: bounds of log p(x), and what recognition may learn instead.

    elbo         E_q log p(x | z) - KL(q(z | x), p(z)), the divergence in closed form         [vae eq. 10]
    importance   log (1/S) sum_s p(x, z_s) / q(z_s | x), tighter with more samples            [iwae eq. 8]
    wake         recognition follows weighted samples, -sum_s w_s log q(z_s | x)              [rws]
    sleep        recognition learns from the model's own fantasies, -log q(z | x)             [wakesleep]

Bounds are differentiated through the draws, which are made of noise. For generation, whose parameters no draw
depends on, the gradient of the importance-weighted bound is the wake gradient of reweighted wake-sleep. A
network may have a bound of its own: a tighter one helps generation, but the more samples it has, the less its
gradient tells recognition [rainforth2018].
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad import tree
from natgrad.core import Estimate, Numbers, Objective, stateless
from natgrad.devices import mean_over_rows
from natgrad.models.vae.machine import (
    GENERATION,
    RECOGNITION,
    LatentRows,
    Rows,
    Variational,
    fantasies,
    latent_noise,
    log_ratios,
    log_visible,
    recognized,
)
from natgrad.updates.parts import Part


class LatentDraws(NamedTuple):
    """What a step draws: data, noise for their latent vectors, and fantasies where recognition sleeps."""

    rows: Rows
    noise: LatentRows
    fantasies: tuple[Rows, Float[Array, "row latent"]] | None = None


Lesson = Callable[[Variational, LatentDraws], tuple[Float[Array, ""], Numbers]]


def elbo_loss(model: Variational, draws: LatentDraws) -> tuple[Float[Array, ""], Numbers]:
    """Minus the evidence lower bound, the mean over rows and samples [vae eq. 10]."""
    posterior = recognized(model, draws.rows)
    likelihood = log_visible(model, draws.rows, posterior.drawn(draws.noise)).mean()
    return posterior.divergence().mean() - likelihood, {}


def importance_loss(model: Variational, draws: LatentDraws) -> tuple[Float[Array, ""], Numbers]:
    """Minus the importance-weighted bound, the mean over rows [iwae eq. 8]."""
    ratios = log_ratios(model, draws.rows, draws.noise)
    value = -jnp.mean(jax.nn.logsumexp(ratios, axis=1) - jnp.log(ratios.shape[1]))
    effective = 1 / jnp.sum(jax.nn.softmax(ratios, axis=1) ** 2, axis=1)
    return value, {"effective_samples": effective.mean()}


def wake_loss(model: Variational, draws: LatentDraws) -> tuple[Float[Array, ""], Numbers]:
    """-log q of draws that stay where they are, weighted by importance, less the mean weight [rws]."""
    posterior = recognized(model, draws.rows)
    latent = jax.lax.stop_gradient(posterior.drawn(draws.noise))
    ratios = jax.lax.stop_gradient(log_ratios(model, draws.rows, draws.noise))
    weights = jax.nn.softmax(ratios, axis=1) - 1 / ratios.shape[1]
    return -(weights * posterior.log_prob(latent)).sum(axis=1).mean(), {}


def sleep_loss(model: Variational, draws: LatentDraws) -> tuple[Float[Array, ""], Numbers]:
    """-log q of the latent vectors that fantasies were drawn from [wakesleep]."""
    assert draws.fantasies is not None
    rows, latent = draws.fantasies
    return -recognized(model, rows).log_prob(latent[:, None]).mean(), {}


def two_lessons(generation: Lesson, recognition: Lesson, samples: int = 1) -> Objective:
    """Each network by its own lesson, from the same draws; a bound that both share is differentiated once.

    The value is that of generation's bound.
    """

    def loss(model: Variational, draws: LatentDraws) -> tuple[Float[Array, ""], tuple[Array, Numbers]]:
        if generation is recognition:
            shared, numbers = generation(model, draws)
            return shared, (shared, numbers)
        own, numbers = generation(_held(RECOGNITION, model), draws)
        taught, others = recognition(_held(GENERATION, model), draws)
        return own + taught, (own, others | numbers)

    def estimate(key: PRNGKeyArray, model: Variational, batch: Rows) -> Estimate:
        draws = drawn_for(key, model, batch, samples, dreaming=recognition is sleep_loss)
        taught = jax.value_and_grad(loss, has_aux=True)
        (_, (value, numbers)), gradient = mean_over_rows(taught, model, draws, len(batch), axis=0)
        return Estimate(value, gradient, draws, numbers)

    return stateless(estimate, lambda model, draws: loss(model, draws)[0])


def one_lesson(part: Part, lesson: Lesson, samples: int = 1) -> Objective:
    """One network learns while the other rests."""

    def estimate(key: PRNGKeyArray, model: Variational, batch: Rows) -> Estimate:
        draws = drawn_for(key, model, batch, samples, dreaming=lesson is sleep_loss)

        def taught(model: Variational, draws: LatentDraws) -> Any:
            loss = lambda own: lesson(part.put(model, own), draws)  # noqa: E731
            return jax.value_and_grad(loss, has_aux=True)(part.get(model))

        (value, numbers), gradient = mean_over_rows(taught, model, draws, len(batch), axis=0)
        return Estimate(value, part.put(tree.zeros(model), gradient), draws, numbers)

    return stateless(estimate, lambda model, draws: lesson(model, draws)[0])


def drawn_for(
    key: PRNGKeyArray, model: Variational, rows: Rows, samples: int, *, dreaming: bool
) -> LatentDraws:
    """Noise for so many samples of every row, and as many fantasies where they are needed."""
    key_noise, key_dream = jax.random.split(key)
    dreams = fantasies(key_dream, model, len(rows) * samples) if dreaming else None
    return LatentDraws(rows, latent_noise(key_noise, model, rows, samples), dreams)


def _held(part: Part, model: Variational) -> Variational:
    """The model with a part that no derivative goes to."""
    return part.put(model, jax.lax.stop_gradient(part.get(model)))
