"""The scikit-learn estimator: its conventions, its features, its likelihoods, its state."""

import pickle

import jax
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimator_checks import expected_failures
from natgrad.errors import InputError
from natgrad.models.helmholtz.estimator import HelmholtzMachine

SMALL = {"method": "rws", "layers": (3, 2), "epochs": 1, "samples": 2, "posterior_samples": 5}
X = np.random.default_rng(0).integers(0, 2, (24, 6)).astype(float)


def machine(**changes):
    return HelmholtzMachine(**SMALL | {"batch_size": 8, "random_state": 0} | changes)


@pytest.fixture(scope="module")
def fitted():
    return machine(epochs=3).fit(X)


@pytest.mark.slow
def test_features_are_the_posterior_means_of_all_hidden_units(fitted):
    features = fitted.transform(X)
    assert features.shape == (24, 5)
    expected = fitted.model_.posterior(X, samples=5, seed=fitted._seed)
    np.testing.assert_array_equal(features, np.concatenate(expected, axis=1))
    assert list(fitted.get_feature_names_out()) == [f"helmholtzmachine{n}" for n in range(5)]
    assert fitted.transform(X.astype(np.float32)).dtype == np.float32


def test_sparse_rows_are_taken(fitted):
    np.testing.assert_array_equal(fitted.transform(scipy.sparse.csr_array(X)), fitted.transform(X))
    same = machine(epochs=3).fit(scipy.sparse.csc_array(X))
    np.testing.assert_array_equal(same.transform(X), fitted.transform(X))


def test_the_inverse_is_generation_from_the_lowest_layer(fitted):
    layer = fitted.model_.parameters.generation[0]
    features = fitted.transform(X)
    means = 1 / (1 + np.exp(-((2 * features[:, :3] - 1) @ layer.weight.T + layer.bias)))
    np.testing.assert_allclose(fitted.inverse_transform(features), means, rtol=1e-12)


def test_scores_are_log_likelihoods(fitted):
    """With many samples they are those of enumeration; gray values count as rounded."""
    exact = fitted.model_.exact_log_likelihood(X)
    fitted.set_params(posterior_samples=2000)
    try:
        scores = fitted.score_samples(X)
    finally:
        fitted.set_params(posterior_samples=5)
    np.testing.assert_allclose(scores, exact, atol=0.3)
    assert fitted.score(X) == pytest.approx(fitted.score_samples(X).mean())
    np.testing.assert_array_equal(fitted.score_samples(0.2 + 0.6 * X), fitted.score_samples(X))


def test_samples_are_binary_and_decided_by_their_seed(fitted):
    drawn = fitted.sample(50, random_state=3)
    assert drawn.shape == (50, 6)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_array_equal(drawn, fitted.sample(50, random_state=3))
    assert (drawn != fitted.sample(50, random_state=4)).any()


def test_a_pickled_machine_is_the_same(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    np.testing.assert_array_equal(again.score_samples(X), fitted.score_samples(X))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(again.model_.parameters))


def test_parameters_are_cloned_and_set():
    given = machine(learning_rate=0.3, settings={"optimizer.schedule": "cosine"})
    assert clone(given).get_params() == given.get_params()
    assert given.set_params(layers=(7,)).layers == (7,)
    settings = given._config(seed=5, epochs=4, rows=6)
    assert (settings.model.layers, settings.optimizer.learning_rate) == ((7,), 0.3)
    assert (settings.optimizer.schedule, settings.training.batch_size) == ("cosine", 6)
    given.set_params(layers=np.int64(9), learning_rate=np.float64(0.5))
    settings = given._config(seed=5, epochs=4, rows=60)
    assert (settings.model.layers, settings.optimizer.learning_rate) == ((9,), 0.5)
    assert settings.training.batch_size == 8
    assert machine()._config(0, 1, 9).optimizer.learning_rate == 0.1
    assert machine(method="nrws")._config(0, 1, 9).optimizer.learning_rate == 0.05
    assert machine(method="nrws")._config(0, 1, 9).metric.damping == 0.2
    assert machine(method="nrws", damping=0.7)._config(0, 1, 9).metric.damping == 0.7


def test_partial_fit_goes_on_with_the_model_and_its_state():
    """Steps are counted on, momentum is kept, and batches of another size are taken."""
    going = machine(optimizer="momentum").partial_fit(X)
    first = going.model_.parameters
    momentum = [np.array(leaf) for leaf in jax.tree.leaves(going._state.optimizer)]
    going.partial_fit(X[:5])
    assert int(going._state.steps) == 3 + 1
    assert going.model_.parameters.prior.shape == first.prior.shape
    assert (going.model_.parameters.prior != first.prior).any()
    assert any((a != b).any() for a, b in zip(momentum, jax.tree.leaves(going._state.optimizer), strict=True))
    going.set_params(layers=(4,))
    with pytest.raises(
        InputError, match="layers: the model is of other sizes; call fit, or set the layers back"
    ):
        going.partial_fit(X)


@pytest.mark.slow
def test_in_a_pipeline_with_classes():
    """Real-valued data through a scaler."""
    data, classes = np.random.default_rng(1).normal(size=(24, 6)), np.arange(24) % 2
    pipeline = make_pipeline(MinMaxScaler(clip=True), machine(), LogisticRegression()).fit(data, classes)
    assert pipeline.predict(3 * data).shape == (24,)
    assert pipeline[:-1].get_feature_names_out().shape == (5,)


@pytest.mark.slow
def test_in_a_grid_by_the_natural_method():
    """Chosen by the likelihood of held-out rows, over a setting of natgrad and one of NumPy's numbers."""
    grid = {"layers": [(3,), (4, 2)], "learning_rate": np.array([0.01, 0.1])}
    search = GridSearchCV(machine(method="nrws"), grid, cv=2).fit(X)
    assert set(search.best_params_) == {"layers", "learning_rate"}
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(X) == search.best_estimator_.score(X)


@pytest.mark.slow
def test_scaling_is_undone_in_samples():
    data = np.random.default_rng(0).normal(3.0, 2.0, (16, 3))
    done = machine(scale=True).fit(data)
    edges = np.stack([data.min(axis=0), data.max(axis=0)])
    drawn = done.sample(30)
    assert all(set(np.unique(drawn[:, n]).round(9)) <= set(edges[:, n].round(9)) for n in range(3))
    assert done.transform(data * 10).shape == (16, 5)  # beyond the range: clipped


@pytest.mark.parametrize(
    ("changes", "rows", "match"),
    [
        ({}, X * 2, r"expected values in \[0, 1\], got 0 to 2; use scale=True, or put a MinMaxScaler before"),
        ({}, X - 0.5, r"expected values in \[0, 1\], got -0.5 to 0.5"),
        ({"method": "rsw"}, X, "unknown method 'rsw'; did you mean 'rws'"),
        ({"layers": ()}, X, "model.layers: expected"),
        ({"batch_size": 0}, X, "training.batch_size: expected a number greater than 0, got 0"),
        ({"settings": {"optimizer.schedul": "cosine"}}, X, "did you mean 'optimizer.schedule'"),
        (
            {"damping": 0.1},
            X,
            "metric.damping is not a setting of the method rws of helmholtz, but of",
        ),
    ],
)
def test_mistakes_are_value_errors_of_one_sentence(changes, rows, match):
    with pytest.raises(ValueError, match=match):
        machine(**changes).fit(rows)


def test_features_of_another_width_are_said(fitted):
    with pytest.raises(InputError, match="X has 4 features, but 5 hidden units are expected"):
        fitted.inverse_transform(np.zeros((2, 4)))
    with pytest.raises(InputError, match="number: expected at least 1, got 0"):
        fitted.sample(0)


@pytest.mark.slow
@parametrize_with_checks(
    [HelmholtzMachine(**SMALL, scale=True), HelmholtzMachine(**SMALL)],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", ["rws", "nrws"])
def test_methods_get_the_settings_that_they_have(method):
    """A plain method has no damping: the estimator's default must not give it one."""
    found = HelmholtzMachine(method=method)._config(seed=0, epochs=1, rows=10)
    assert found.method == method
    assert HelmholtzMachine(damping=0.3)._config(seed=0, epochs=1, rows=10).metric.damping == 0.3
    with pytest.raises(InputError, match=r"metric.damping is not a setting of the method rws of helmholtz"):
        HelmholtzMachine(method="rws", damping=0.3)._config(seed=0, epochs=1, rows=10)
