"""Variational autoencoders as scikit-learn estimators: densities, features, samples.

    VAE(latent=10, epochs=30).fit(X).transform(X)

Rows are values in [0, 1], means of binary units, or with visible="gaussian" any numbers. Training is
natgrad's own session, in a temporary folder; parameters have natgrad's names. Features are the means of
q(z | x). Likelihoods are importance-sampled with random numbers that are the same for every row: a row's
score does not depend on its neighbors.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from natgrad import config
from natgrad.evaluate import trust
from natgrad.layers import generator
from natgrad.models.vae.likelihood import row_likelihoods
from natgrad.models.vae.machine import Variational
from natgrad.models.vae.trained import TrainedVariational
from natgrad.training.estimators import FLOATS, RowEstimator, estimator_settings


@dataclass(eq=False, repr=False, kw_only=True)
class VAE(RowEstimator):
    """A variational autoencoder that is fitted to rows.

    Attributes:
        method: plain, or natural: two-step (a system for each network), natural (one for both).
        layers: hidden sizes of recognition, from the data upward; generation mirrors them.
        latent: the size of a latent vector.
        visible: "bernoulli" for rows in [0, 1], "gaussian" for real ones.
        epochs: passes over the rows in `fit`; `partial_fit` makes one.
        samples: latent vectors that are drawn for every row in training.
        batch_size: rows in a batch; all rows, if there are fewer.
        learning_rate: the step size; None for the method's default.
        damping: the natural methods' damping; None for the method's default, and for plain.
        optimizer: what is done with the direction; None for the method's default.
        binarize: gray values are drawn again at every use in training ("resample"), or rounded ("round").
        likelihood_samples: importance samples of every row in `score_samples`.
        scale: bring every feature to [0, 1] by its range in `fit`, clipping what lies beyond it later; of
            Gaussian data, to mean zero and variance one. Otherwise Bernoulli values outside [0, 1] are an
            error.
        settings: any other setting of natgrad by its dotted name, such as {"model.activation": "relu"}.
        random_state: decides initial weights, the order of rows and every sample.
        model_: after fitting, the `natgrad.models.vae.trained.TrainedVariational` model.
        n_features_in_: the number of features seen in fitting.

    Example:
        pipeline = make_pipeline(VAE(latent=10), LogisticRegression())
    """

    method: str = "plain"
    layers: tuple[int, ...] = (200, 200)
    latent: int = 50
    visible: str = "bernoulli"
    epochs: int = 100
    samples: int = 1
    batch_size: int = 128
    learning_rate: float | None = None
    damping: float | None = None
    optimizer: str | None = None
    binarize: str = "resample"
    likelihood_samples: int = 100
    scale: bool = False
    settings: dict[str, Any] | None = None
    random_state: Any = None

    def transform(self, X: Any) -> np.ndarray:
        """The means of q(z | x), [row, latent]."""
        check_is_fitted(self)
        rows = self._rows(X)
        return self.model_.encode(rows)[0].astype(rows.dtype)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """The means of the data given latent vectors, [row, feature]."""
        check_is_fitted(self)
        latent = check_array(X, dtype=FLOATS)
        return self._unscaled(self.model_.decode(latent).astype(latent.dtype))

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-likelihood of every row in nats, importance-sampled; Bernoulli values are rounded.

        Of Gaussian data it is the density of the rows as they were given, before any scaling. Where many rows
        have weights of a heavy tail, or few effective samples, a warning says that scores are too low.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        known = self.model_.inputs(rows if self.model_.parameters.gaussian else rows.round())
        counts, key = {"samples": self.likelihood_samples}, generator.key(self._seed)
        found = row_likelihoods(key, self.model_.parameters, known, **counts)
        if self.likelihood_samples > 1 and (doubts := trust.warnings(found, "the likelihood", "its error")):
            warnings.warn(doubts[0], stacklevel=2)
        if self._scaler is not None and self.model_.parameters.gaussian:
            return found.rows - np.log(self._scaler.scale_).sum()
        return found.rows

    @property
    def _n_features_out(self) -> int:
        return self.model_.parameters.latent

    def _new_scaler(self) -> Any:
        return StandardScaler() if self.visible == "gaussian" else super()._new_scaler()

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        if self.visible == "gaussian" and self._scaler is None:
            return X
        return super()._scaled(X)

    def _shown(self, model: Variational) -> TrainedVariational:
        return TrainedVariational(model, self.n_features_in_)

    def _config(self, seed: int, epochs: int, rows: int) -> config.RunSettings:
        """natgrad's own config of this estimator's parameters."""
        layers = [self.layers] if isinstance(self.layers, int | np.integer) else list(self.layers)
        usual = {
            "method": self.method,
            "layers": layers,
            "latent": self.latent,
            "samples": self.samples,
            "evaluation.every": max(epochs, 1),
            "evaluation.test_samples": self.samples,
        }
        own = {
            "model": "vae",
            "visible": self.visible,
            "data.binarize": "real" if self.visible == "gaussian" else self.binarize,
            "learning_rate": self.learning_rate,
            "damping": self.damping,
            "optimizer": self.optimizer,
            "seed": seed,
            "epochs": epochs,
            "batch_size": self.batch_size,
        }
        return estimator_settings(rows, usual, self.settings, own)
