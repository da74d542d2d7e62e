"""Restricted Boltzmann machines as a scikit-learn estimator, in place of scikit-learn's own.

    BernoulliRBM(n_components=64, n_iter=20).fit(X).transform(X)

Rows, dense or sparse, hold values in [0, 1]: means of binary units, which are drawn again at every use in
training. Nothing is measured in training unless `verbose` asks for it. Beyond scikit-learn's: the natural
gradient, other negative phases, and a likelihood.
"""

import time
import warnings
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from natgrad import config
from natgrad.core import State
from natgrad.errors import InputError
from natgrad.layers import generator
from natgrad.layers.bernoulli import BINARY, Layer
from natgrad.models.rbm import kind, spec
from natgrad.models.rbm.fitting import Fitting
from natgrad.models.rbm.likelihood import LogPartition, log_likelihoods, log_partition_of
from natgrad.models.rbm.machine import Boltzmann, bias_of
from natgrad.models.rbm.partition import is_enumerable
from natgrad.models.rbm.row_scores import nearest_binary, pseudo_scores
from natgrad.models.rbm.trained import TURNS, TrainedBoltzmann
from natgrad.models.rbm.units import BernoulliUnits

_FLOATS = (np.float64, np.float32)
_PLAIN_RATE = 0.1  # scikit-learn's


@dataclass(eq=False, repr=False)
class BernoulliRBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A restricted Boltzmann machine that is fitted to rows in [0, 1].

    Attributes:
        n_components: hidden units.
        learning_rate: the step size; None for 0.1 if plain, otherwise the method's default.
        batch_size: rows in a batch; all rows, if there are fewer.
        n_iter: passes over the rows in `fit`; `partial_fit` makes one.
        verbose: print the pseudo-likelihood of the rows after every pass.
        random_state: decides initial weights, the order of rows and every sample.
        method: "plain", "natural" (along the natural gradient), or another method of these machines.
        negative: where samples of the machine come from: "pcd", "cd", "tempering", or "exact" for none.
        gibbs_steps: turns of Gibbs sampling in every step.
        chains: persistent chains; None for as many as a batch has rows, and at least 100 if natural.
        scale: bring every feature of dense rows to [0, 1] by its range in `fit`, clipping what lies beyond it
            later; otherwise values outside [0, 1] are an error.
        settings: any other setting of natgrad by its dotted name, such as {"metric.damping": 0.1}.
        components_: after fitting, the weights [hidden, feature].
        intercept_hidden_, intercept_visible_: the biases.
        h_samples_: the hidden states [chain, hidden] of persistent chains, if there are any.
        n_features_in_: the number of features seen in fitting.

    Example:
        pipeline = make_pipeline(BernoulliRBM(n_components=64), LogisticRegression())
    """

    n_components: int = 256
    _: KW_ONLY
    learning_rate: float | None = None
    batch_size: int = 10
    n_iter: int = 10
    verbose: int = 0
    random_state: Any = None
    method: str = "plain"
    negative: str = "pcd"
    gibbs_steps: int = 1
    chains: int | None = None
    scale: bool = False
    settings: dict[str, Any] | None = None

    def fit(self, X: Any, y: Any = None) -> "BernoulliRBM":
        """Train a new machine on rows."""
        del y
        self._train(self._begin(X), self.n_iter, None)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> "BernoulliRBM":
        """Train the machine further, or begin one: one pass over these rows, a single step for one batch."""
        del y
        begun = hasattr(self, "components_")
        self._train(self._rows(X) if begun else self._begin(X), 1, self._state if begun else None)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The probability of every hidden unit to be on, [row, hidden]."""
        check_is_fitted(self)
        return self._hidden_means(self._rows(X))

    def gibbs(self, v: Any) -> np.ndarray:
        """Visible states after one turn of Gibbs sampling: hidden states given v, then visible ones."""
        check_is_fitted(self)
        random = self.random_state_
        means = self._hidden_means(self._rows(v))
        hidden = (random.uniform(size=means.shape) < means).astype(means.dtype)
        below = expit(hidden @ self.components_ + self.intercept_visible_)
        drawn = random.uniform(size=below.shape) < below
        return drawn if self._scaler is None else self._scaler.inverse_transform(drawn)

    def score_samples(self, X: Any) -> np.ndarray:
        """An estimate of the pseudo-likelihood of every row, in nats; gray values are rounded.

        It is the number of features times log p(v_i | v without i) of one feature i, which a hash of the row
        chooses: a row has the same score whatever rows stand beside it. `model_.pseudo_log_likelihood` sums
        over all features.
        """
        check_is_fitted(self)
        weights, above, below = self.components_, self.intercept_hidden_, self.intercept_visible_
        return pseudo_scores(weights, above, below, nearest_binary(self._rows(X)), seed=self._seed)

    def log_likelihood(self, X: Any, *, return_facts: bool = False, **options: Any) -> Any:
        """log p(v) of every row, in nats: exact up to 22 units on the smaller side, otherwise by annealing.

        With `return_facts` also a dict that says which it was, log Z, its errors, and for annealing the
        reverse estimate. Where the two differ by more than a nat, there is a warning. `chains`,
        `temperatures` and `turns` are those of annealing. Gray values are rounded.
        """
        check_is_fitted(self)
        rows = nearest_binary(self._rows(X))
        dense = rows.toarray() if scipy.sparse.issparse(rows) else rows
        found = self._log_partition(**options)
        found.warn()
        machine = self.model_
        values = log_likelihoods(machine.parameters, machine.coded(dense), found.log_z)
        return (values, found.facts()) if return_facts else values

    @property
    def model_(self) -> TrainedBoltzmann:
        """The machine as `run.model` is: `sample`, `reconstruct`, `pseudo_log_likelihood`, `save`, ..."""
        check_is_fitted(self)
        dtype, units = jnp.zeros(()).dtype, BernoulliUnits(BINARY)
        arrays = self.components_, self.intercept_hidden_, self.intercept_visible_
        weight, above, below = (jnp.asarray(array, dtype) for array in arrays)
        chains = self.h_samples_.T.astype(dtype) if hasattr(self, "h_samples_") else None
        return TrainedBoltzmann(Boltzmann(Layer(weight, above), below, units, units), chains)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are taken as they are; both precisions are kept by `transform`."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.scale
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _begin(self, X: Any) -> Any:
        """Forget everything, and take over what the rows and the parameters say."""
        X = validate_data(self, X, accept_sparse="csr", dtype=_FLOATS)
        if self.scale and scipy.sparse.issparse(X):
            raise InputError(
                "scale=True is for dense rows, got sparse ones; put a MaxAbsScaler before the machine"
            )
        self._scaler = MinMaxScaler(clip=True).fit(X) if self.scale else None
        self.random_state_ = check_random_state(self.random_state)
        self._seed = int(self.random_state_.randint(2**31))
        self._seen, self._means = 0, np.zeros(X.shape[1])
        return self._unit(X)

    def _rows(self, X: Any) -> Any:
        return self._unit(validate_data(self, X, accept_sparse="csr", dtype=_FLOATS, reset=False))

    def _unit(self, X: Any) -> Any:
        """Rows in [0, 1], scaled if that is asked for."""
        if self._scaler is not None:
            return self._scaler.transform(X.toarray() if scipy.sparse.issparse(X) else X)
        if X.min() < 0 or X.max() > 1:
            raise InputError(
                f"expected values in [0, 1], got {X.min():.6g} to {X.max():.6g}; "
                "use scale=True, or put a MinMaxScaler before the machine"
            )
        return X

    def _hidden_means(self, rows: Any) -> np.ndarray:
        inputs = safe_sparse_dot(rows, self.components_.T) + self.intercept_hidden_
        return expit(inputs).astype(rows.dtype, copy=False)

    def _log_partition(self, *, chains: int = 100, temperatures: int = 10_000, turns: int = TURNS) -> Any:
        """log Z; found once for every choice of annealing, until the machine is trained further."""
        counts = {"chains": chains, "temperatures": temperatures, "turns": turns}
        known = tuple(counts.values())
        if known not in self._partitions:
            machine, key = self.model_, generator.key(self._seed)
            model = machine.parameters
            base = bias_of(model.visible_units, self._means, self._seen)
            few = 1 if is_enumerable(model) else chains  # there are no reverse chains then
            start = jnp.asarray(machine.sample(few, turns=1, seed=self._seed).T, model.visible_bias.dtype)
            found = log_partition_of(key, model, jnp.asarray(base, start.dtype), start, **counts)
            self._partitions[known] = _in_numpy(found)
        return self._partitions[known]

    def _train(self, rows: Any, epochs: int, carried: State | None) -> None:
        """Train on rows, from the carried state or from a new one."""
        settings = self._config(epochs, rows.shape[0])
        spec.check(settings, SimpleNamespace(visible=rows.shape[1], name="X", train=np.zeros(0, np.uint8)))
        fitting = Fitting(settings, rows)
        means = np.asarray(rows.mean(axis=0), np.float64).ravel()
        state = fitting.begin(means) if carried is None else fitting.continued(carried, means)
        self._means = (self._seen * self._means + rows.shape[0] * means) / (self._seen + rows.shape[0])
        self._seen += rows.shape[0]
        refused, began = 0, time.perf_counter()
        for number in range(epochs):
            state, failed = fitting.one_pass(state)
            refused += failed
            if self.verbose:
                self._keep(state, rows.dtype)
                self._say(rows, number + 1, time.perf_counter() - began)
        self._keep(state, rows.dtype)
        if refused:
            warnings.warn(
                f"{refused} steps were not finite and were not taken; lower the learning_rate", stacklevel=3
            )

    def _keep(self, state: State, dtype: Any) -> None:
        """What a state says to the user."""
        self._state = jax.tree.map(np.asarray, state)
        self._partitions: dict[tuple[int, ...], LogPartition] = {}
        model = self._state.used
        self.components_ = np.array(model.weight, dtype)
        self.intercept_hidden_ = np.array(model.hidden_bias, dtype)
        self.intercept_visible_ = np.array(model.visible_bias, dtype)
        if self.negative in ("pcd", "tempering"):
            self.h_samples_ = kind.top_chains(self._state.objective.chains).T
        elif hasattr(self, "h_samples_"):
            del self.h_samples_

    def _say(self, rows: Any, number: int, seconds: float) -> None:
        score = self.score_samples(rows if self._scaler is None else self._scaler.inverse_transform(rows))
        each = score.mean() / rows.shape[1]
        told = f"pseudo-likelihood = {score.mean():.2f} ({each:.4f} per feature), time = {seconds:.2f}s"
        print(f"[BernoulliRBM] Iteration {number}, {told}")

    def _config(self, epochs: int, rows: int) -> config.Config:
        """natgrad's own config of this estimator's parameters."""
        for name, least in (("n_components", 1), ("batch_size", 1), ("n_iter", 0), ("gibbs_steps", 1)):
            _whole(name, getattr(self, name), least)
        chains = self.chains
        if chains is None and self.negative in ("pcd", "tempering"):
            chains = max(self.batch_size, 100) if self.method == "natural" else self.batch_size
        rate = _PLAIN_RATE if self.learning_rate is None and self.method == "plain" else self.learning_rate
        gibbs = None if self.gibbs_steps == 1 else self.gibbs_steps
        named = {"chains": chains, "gibbs": gibbs, "learning_rate": rate}
        own = {
            "model": "rbm",
            "visible": "bernoulli",
            "coding": "binary",
            "method": self.method,
            "negative": self.negative,
            "hidden": self.n_components,
            "seed": self._seed,
            "epochs": epochs,
            "batch_size": min(self.batch_size, rows),
        }
        given = {name: value for name, value in named.items() if value is not None}
        every = given | (self.settings or {}) | own
        return config.resolve({name: _plain(value) for name, value in every.items()})


def _in_numpy(found: LogPartition) -> LogPartition:
    """Without arrays of a device, so that it can be pickled."""
    return jax.tree.map(lambda leaf: float(leaf) if np.ndim(leaf) == 0 else np.asarray(leaf), found)


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or value < least:
        raise InputError(f"{name}: expected a whole number of at least {least}, got {value!r}; give another")


def _plain(value: Any) -> Any:
    """A number of NumPy, as a grid may give it, as one of Python."""
    return value.item() if isinstance(value, np.generic) else value
