"""A trained network as its user sees it: NumPy rows in, NumPy predictions out.

run = natgrad.train(data="digits", model="mlp")
run.model.predict(rows)                                  # class numbers, one for every row
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natgrad.core import Model
from natgrad.errors import InputError
from natgrad.evaluate.notebook import model_html, model_text
from natgrad.layers.task import Network


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network with its parameters.

    Attributes:
        parameters: its trainable arrays.
        network: outputs as a function of (parameters, inputs).
        mean: from outputs to the mean of the target: probabilities, for classes.
        predicts: from that mean to what is predicted: the class, or the mean itself.
        visible: the width of a row.
        real: whether a row's values may be any numbers, not only those in [0, 1].
    """

    parameters: Model
    network: Network
    mean: Callable[[Array], Array]
    predicts: Callable[[np.ndarray], np.ndarray]
    visible: int
    real: bool = False

    __repr__, _repr_html_ = model_text, model_html

    def outputs(self, rows: np.ndarray) -> np.ndarray:
        """The outputs before any activation, [row, output]."""
        return np.asarray(_outputs(self.network, self.parameters, self._inputs(rows)))

    def means(self, rows: np.ndarray) -> np.ndarray:
        """The mean of the target given every row, [row, output]: probabilities of classes, or numbers."""
        return np.asarray(self.mean(jnp.asarray(self.outputs(rows))))

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """The most probable class of every row, or the mean of its target."""
        return self.predicts(self.means(rows))

    def reconstruct(self, rows: np.ndarray, *, seed: int = 0) -> np.ndarray:
        """What an autoencoder makes of rows."""
        del seed
        found = self.means(rows)
        if found.shape[1] != self.visible:
            raise InputError(
                f"it has {found.shape[1]} outputs for rows of {self.visible} values, it reconstructs "
                "nothing; train one with --model autoencoder"
            )
        return found

    def _inputs(self, rows: np.ndarray) -> Array:
        rows = np.asarray(rows, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.visible or not len(rows):
            raise InputError(
                f"expected at least one row of {self.visible} values, got an array of shape {rows.shape}; "
                "reshape it"
            )
        if not np.isfinite(rows).all():
            raise InputError("expected finite numbers, got NaN or infinity; remove or replace them")
        if not self.real and (rows.min() < 0 or rows.max() > 1):
            raise InputError(f"expected values in [0, 1], got {rows.min()} to {rows.max()}; rescale the rows")
        return jnp.asarray(rows, jax.tree.leaves(self.parameters)[0].dtype)


@partial(jax.jit, static_argnums=0)
def _outputs(network: Network, parameters: Model, inputs: Array) -> Array:
    return network(parameters, inputs)
