"""Fisher metrics of both networks, each in the statistical model that it is the chart of.

    recognition    E over data of the Fisher of q(z | x)
    generation     E over z of the Fisher of p(x | z): with z ~ p(z) that of the joint model p(x, z), with
                   z ~ q(z | x) that of the draws a step learns from
    both           that of the pair q(z | x), p(x' | z) at draws z = m(x) + exp(s(x) / 2) noise with noise
                   that stays: generation's outputs move with recognition, and blocks between them remain

None of them is the Fisher of p(x), in which recognition has no part. Targets are never those of the data:
products are exact, or targets are drawn from the model where a metric needs scores.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.core import Carry, Metric, Model
from natgrad.layers.outputs import Output, normal, side_by_side, sigmoid, spherical
from natgrad.layers.perceptron import Activation, Perceptron
from natgrad.layers.task import Examples, Task, TaskBatch
from natgrad.metrics.curvature import Curvature, fisher, monte_carlo_fisher
from natgrad.metrics.layer_blocks import LayerBlocks, kronecker_blocks
from natgrad.metrics.layered import LayeredFisher
from natgrad.metrics.scores import ArrayScores, ScoredRows
from natgrad.metrics.units import drawn_scores, sampled_units
from natgrad.models.vae.machine import (
    GENERATION,
    RECOGNITION,
    Variational,
    generation_outputs,
    recognition_outputs,
    recognized,
    visible_output,
)
from natgrad.models.vae.objectives import LatentDraws
from natgrad.updates.parts import Part

_EXACTLY_DIAGONAL = (  # independent pixels have biases of their own, the noise is one number
    r"not all parameters belong to layers: "
    r"(\['generation'\]\.filters\[0\]\.bias[^;]*(; )?)?(\['noise'\][^;]*)?$"
)
Latents = Callable[[PRNGKeyArray, Variational, LatentDraws], Float[Array, "row latent"]]


class Side(NamedTuple):
    """One of the two networks as a conditional model.

    Attributes:
        part: its parameters; inputs: what it is looked at for; layers: its network's own parameters.
        output: the distribution around the network's outputs.
        task: network and distribution as a function of the part, for products.
    """

    part: Part
    inputs: Callable[[PRNGKeyArray, Variational, LatentDraws], Array]
    layers: Callable[[Variational], Perceptron]
    output: Callable[[Variational], Output]
    task: Callable[[Variational], Task]


def from_prior(key: PRNGKeyArray, model: Variational, draws: LatentDraws) -> Float[Array, "row latent"]:
    """A latent vector of the prior for every row."""
    return jax.random.normal(key, (len(draws.rows), model.latent), draws.rows.dtype)  # ~ p(z)


def from_recognition(key: PRNGKeyArray, model: Variational, draws: LatentDraws) -> Float[Array, "row latent"]:
    """The first draw of every row."""
    del key
    return recognized(model, draws.rows).drawn(draws.noise[:, :1])[:, 0]  # ~ q(z | x)


def generation_side(latents: Latents) -> Side:
    """p(x | z) at latent vectors of either distribution."""
    return Side(
        GENERATION,
        latents,
        lambda model: model.generation,  # type: ignore[arg-type, return-value]
        visible_output,
        lambda model: _generation_task(model.activation, model.deviation, model.gaussian),
    )


def exact_products(side: Side, rows: int = 0) -> Metric:
    """The exact Fisher of a network on so many rows (0: all), as products."""

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Variational, draws: LatentDraws
    ) -> tuple[Curvature, Carry]:
        inputs = side.inputs(key, model, _fewer(draws, rows))
        return _exact(side.task(model)).measure(key, carry, side.part.get(model), _batch(inputs))

    return Metric(lambda key, model, draws: (), measure)


def sampled_scores(side: Side, rows: int = 0) -> Metric:
    """The Fisher from the score of one drawn target for every row: for sample space."""

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Variational, draws: LatentDraws
    ) -> tuple[ScoredRows | Curvature, Carry]:
        key_inputs, key_targets = jax.random.split(key)
        inputs, own = side.inputs(key_inputs, model, _fewer(draws, rows)), side.part.get(model)
        if not isinstance(side.layers(model), tuple):
            return _sampled(side.task(model)).measure(key_targets, carry, own, _batch(inputs))
        layers, output = side.layers(model), side.output(model)
        found, outputs, targets = drawn_scores(key_targets, layers, inputs, model.activation, output)
        scores: dict[str, Any] = {side.part.fields[0]: found}
        if side.part == GENERATION:
            scores["noise"] = _noise_scores(model, outputs, targets)
        return ScoredRows(scores, own), carry

    return Metric(lambda key, model, draws: (), measure)


def unit_blocks_of(side: Side, rows: int = 0) -> Metric:
    """The block of every unit of a dense network, from one drawn target for every row; exact for outputs."""

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Variational, draws: LatentDraws
    ) -> tuple[LayeredFisher, Carry]:
        key_inputs, key_targets = jax.random.split(key)
        inputs = side.inputs(key_inputs, model, _fewer(draws, rows))
        units = sampled_units(model.activation)(Task(generation_outputs, side.output(model)))
        found, _ = units.measure(key_targets, (), side.layers(model), _batch(inputs))
        blocks = {side.part.fields[0]: found.blocks}
        if side.part == GENERATION:  # the log-variance's own Fisher is one half for every visible unit
            blocks["noise"] = jax.tree.map(lambda s: jnp.full_like(s, 0.5 * draws.rows.shape[1]), model.noise)
        return LayeredFisher(blocks), carry

    return Metric(lambda key, model, draws: (), measure)


def factors_of(side: Side, rows: int = 0, decay: float = 0.0) -> Metric:
    """The block of every layer as A x G [martens2015], from one drawn target for every row.

    With `decay`, A and G are exponential averages over the times at which they are measured.
    """

    def init(key: PRNGKeyArray, model: Variational, draws: LatentDraws) -> Carry:
        inputs = jax.eval_shape(lambda drawn: side.inputs(key, model, _fewer(drawn, rows)), draws)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _EXACTLY_DIAGONAL)
            return _factors(side.task(model), decay).init(key, side.part.get(model), _batch(inputs))

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Variational, draws: LatentDraws
    ) -> tuple[LayerBlocks, Carry]:
        key_inputs, key_targets = jax.random.split(key)
        inputs = side.inputs(key_inputs, model, _fewer(draws, rows))
        own = _factors(side.task(model), decay)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _EXACTLY_DIAGONAL)
            return own.measure(key_targets, carry, side.part.get(model), _batch(inputs))

    return Metric(init, measure)


def products_of_both(rows: int = 0) -> Metric:
    """The exact Fisher of the pair of networks on so many rows (0: all), as products."""

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Variational, draws: LatentDraws
    ) -> tuple[Curvature, Carry]:
        some = _fewer(draws, rows)
        batch = TaskBatch(Examples((some.rows, some.noise[:, 0])))
        return _exact(_task_of_both(model.latent, model.gaussian)).measure(key, carry, model, batch)

    return Metric(lambda key, model, draws: (), measure)


def _noise_scores(model: Variational, outputs: Array, targets: Array) -> ArrayScores | tuple[()]:
    """The derivatives of every row's log p(x | z) by the log-variance, where it is learned."""
    if isinstance(model.noise, tuple):
        return ()
    return ArrayScores(jax.jacfwd(lambda s: spherical(s).log_prob(outputs, targets))(model.noise))


def _fewer(draws: LatentDraws, rows: int) -> LatentDraws:
    """The first of them; batches are in random order."""
    return LatentDraws(draws.rows[:rows], draws.noise[:rows]) if rows else draws


def _batch(inputs: Array) -> TaskBatch:
    return TaskBatch(Examples(inputs))


@functools.cache  # operators that are kept compare the functions in them
def _exact(task: Task) -> Metric:
    return fisher()(task)


@functools.cache
def _sampled(task: Task) -> Metric:
    return monte_carlo_fisher()(task)


@functools.cache
def _factors(task: Task, decay: float) -> Metric:
    return kronecker_blocks(decay=decay)(task)


@functools.cache
def _recognition_task(activation: Activation, image: tuple[int, int] | None) -> Task:
    def network(part: Model, rows: Array) -> Array:
        return recognition_outputs(Variational(part["recognition"], (), (), None, activation, image), rows)

    return Task(network, normal())


@functools.cache
def _generation_task(activation: Activation, deviation: float | None, gaussian: bool) -> Task:
    def network(part: Model, latent: Array) -> Array:
        return _means_and_noise(
            Variational((), part["generation"], part["noise"], deviation, activation), latent
        )

    return Task(network, normal() if gaussian else sigmoid())


@functools.cache
def _task_of_both(latent: int, gaussian: bool) -> Task:
    def network(model: Variational, pair: tuple[Array, Array]) -> Array:
        rows, noise = pair
        drawn = recognized(model, rows).drawn(noise[:, None])[:, 0]
        return jnp.concatenate([recognition_outputs(model, rows), _means_and_noise(model, drawn)], axis=1)

    return Task(network, side_by_side(normal(), normal() if gaussian else sigmoid(), 2 * latent))


def _means_and_noise(model: Variational, latent: Array) -> Array:
    """Generation's outputs; for Gaussian data with the log-variances beside them."""
    outputs = generation_outputs(model, latent)
    if not model.gaussian:
        return outputs
    return jnp.concatenate([outputs, jnp.broadcast_to(model.log_variance, outputs.shape)], axis=1)


RECOGNITION_SIDE = Side(
    RECOGNITION,
    lambda key, model, draws: draws.rows,
    lambda model: model.recognition,  # type: ignore[arg-type, return-value]
    lambda model: normal(),
    lambda model: _recognition_task(model.activation, model.image),
)
