"""Training on rows in memory, for scikit-learn estimators: natgrad's own session, in a temporary folder.

Rows are values in [0, 1], means of binary units, or real numbers where `data.binarize` is real.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import jax
import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from natgrad import config
from natgrad.core import State
from natgrad.data.coding import GRAY, to_bytes
from natgrad.data.dataset import Dataset, assemble, fitting
from natgrad.data.splits import Parts
from natgrad.errors import InputError
from natgrad.training.session import Session

FLOATS = (np.float64, np.float32)

_Named = dict[str, Any]
_WATCHED = 16  # training rows on which a session evaluates: always as many, so that one compilation serves


class RowEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator):
    """A density of rows and features of them: what estimators share that train by a session.

    An estimator has the parameters `epochs`, `scale` and `random_state`, the methods `transform` and
    `score_samples`, its config (`_config`), and what a user gets of a state's model (`_shown`).
    """

    epochs: int
    scale: bool
    random_state: Any
    score_samples: Callable[[Any], np.ndarray]
    _config: Callable[[int, int, int], config.RunSettings]
    _shown: Callable[[Any], Any]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train a new model on rows."""
        del y
        self._go(self._begin(X), self.epochs, None)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Train the model further, or begin one: one pass over these rows."""
        del y
        if not hasattr(self, "model_"):
            self._go(self._begin(X), 1, None)
        else:
            self._go(self._rows(X), 1, self._state)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of rows in nats."""
        del y
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Rows drawn from the model, [n_samples, feature]."""
        check_is_fitted(self)
        seed = int(check_random_state(random_state).randint(2**31))
        return self._unscaled(self.model_.sample(n_samples, seed=seed).astype(np.float64))

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are taken, and made dense; both precisions are kept by `transform`."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _begin(self, X: Any) -> np.ndarray:
        """Forget everything, and take over what the rows and the parameters say."""
        X = as_dense(validate_data(self, X, accept_sparse="csr", dtype=FLOATS))
        self._scaler = self._new_scaler().fit(X) if self.scale else None
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        self._calls = 0
        return self._scaled(X)

    def _rows(self, X: Any) -> np.ndarray:
        return self._scaled(as_dense(validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)))

    def _new_scaler(self) -> Any:
        """To [0, 1] by the range of every feature; what lies beyond it later is clipped."""
        return MinMaxScaler(clip=True)

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        """Rows as the model takes them: in [0, 1], scaled if that is asked for."""
        if self._scaler is not None:
            return self._scaler.transform(X)
        if X.min() < 0 or X.max() > 1:
            raise InputError(
                f"expected values in [0, 1], got {X.min():.6g} to {X.max():.6g}; "
                "use scale=True, or put a MinMaxScaler before the machine"
            )
        return X

    def _unscaled(self, rows: np.ndarray) -> np.ndarray:
        return rows if self._scaler is None else self._scaler.inverse_transform(rows)

    def _go(self, rows: np.ndarray, epochs: int, carried: State | None) -> None:
        """Train on rows, from the carried state or from a new one."""
        seed = int(np.random.SeedSequence([self._seed, self._calls]).generate_state(1)[0])
        settings = self._config(seed, epochs, len(rows))
        chosen = settings.data
        data = rows_as_data(rows, chosen.binarize, seed, image_shape=chosen.image_shape)
        self._state = trained_on(settings, data, carried)
        self.model_ = self._shown(self._state.used)
        self._calls += 1


def as_dense(rows: Any) -> np.ndarray:
    """Rows as an array, also where they are sparse."""
    return rows.toarray() if scipy.sparse.issparse(rows) else rows


def trained_on(settings: config.RunSettings, data: Dataset, carried: State | None) -> State:
    """The state after a training on data, from the carried state or from a new one, as NumPy arrays."""
    session = Session.begin(settings, data)
    if carried is not None:
        session.state = _continued(carried, session.state)
    with TemporaryDirectory() as place:
        session.go(Path(place), None)
    return jax.tree.map(np.asarray, session.state)


def estimator_settings(rows: int, usual: _Named, settings: _Named | None, own: _Named) -> config.RunSettings:
    """The config of an estimator, at most all rows in a batch.

    Settings of the user's replace the usual ones; parameters of the estimator's own replace both, unless
    they are None.
    """
    given = usual | (settings or {}) | {name: value for name, value in own.items() if value is not None}
    found = config.resolve({name: _plain(value) for name, value in given.items()})
    size = min(found.training.batch_size, rows)
    return found.model_copy(update={"training": found.training.model_copy(update={"batch_size": size})})


def rows_as_data(
    rows: np.ndarray,
    binarize: str | None,
    seed: int,
    labels: np.ndarray | None = None,
    image_shape: tuple[int, int] | None = None,
) -> Dataset:
    """Rows as a session takes them: bytes, {0,1} or 256 levels, or float32. A few are evaluated on, too."""
    binary = bool(((rows == 0) | (rows == 1)).all())
    levels = 1 if binary or binarize == "real" else GRAY
    coded = rows.astype(np.uint8) if binary else to_bytes(rows) if levels > 1 else rows
    if binarize == "real":
        coded = rows.astype(np.float32)
    chosen = np.random.default_rng(seed).integers(len(coded), size=_WATCHED)
    parts = Parts(_with_watched(coded, chosen), None, {"kind": "none"})
    if labels is not None:
        parts = parts._replace(labels=_with_watched(labels, chosen))
    shape = fitting(image_shape, rows.shape[1])
    return assemble("X", parts, levels=levels, binarize=binarize, image_shape=shape, distribution=None)


def _with_watched(values: np.ndarray, chosen: np.ndarray) -> dict[str, np.ndarray]:
    return {"train": values, "valid": values[chosen], "test": values[chosen]}


def _continued(carried: State, fresh: State) -> State:
    """The carried state; what depends on the batch's size, where that has changed, begins again."""
    if _shapes(carried.model) != _shapes(fresh.model):
        raise InputError("layers: the model is of other sizes; call fit, or set the layers back")
    pairs = zip(carried, fresh, strict=True)
    return State(*(old if _shapes(old) == _shapes(new) else new for old, new in pairs))


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def _plain(value: Any) -> Any:
    """A number of NumPy, as a grid may give it, as one of Python."""
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.item() if isinstance(value, np.generic) else value
