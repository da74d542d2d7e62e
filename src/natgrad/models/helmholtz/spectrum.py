"""The Fisher of a trained machine, to look at: the blocks of both networks, and the prior's.

The top layer's units have no inputs: the prior's blocks are numbers p (1 - p), one per unit, known exactly.
"""

from functools import partial

import jax
from jaxtyping import PRNGKeyArray

from natgrad.evaluate.spectra import BlockStacks
from natgrad.metrics.blocks import UnitBlocks
from natgrad.models.helmholtz import fisher as per_unit
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.phases import Phases

PICTURED = {"generation": ("generation", "prior"), "recognition": ("recognition",)}


@partial(jax.jit, static_argnums=2)
def dream_fisher(key: PRNGKeyArray, model: Helmholtz, rows: int) -> BlockStacks:
    """The blocks of both networks, from that many dreams, and the prior's."""
    dreams = helmholtz.dream(key, model, 1, rows)
    drawn = Phases(dreams, jax.numpy.full((1, rows), 1 / rows, model.prior.dtype), dreams)
    measure = lambda metric: metric.measure(key, (), model, drawn)[0].blocks  # noqa: E731
    below, above = measure(per_unit.generation_from_dreams()), measure(per_unit.recognition_from_dreams())
    curvature = below["prior"]
    prior = (UnitBlocks(curvature[:0, None], curvature[:, None]),)
    return {"generation": below["generation"], "prior": prior, "recognition": above["recognition"]}
