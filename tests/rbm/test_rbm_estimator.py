"""The scikit-learn estimator of Boltzmann machines: beside scikit-learn's own, its scores, its mistakes."""

import pickle
import re

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import BernoulliRBM as TheirRBM
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimator_checks import expected_failures
from natgrad import config
from natgrad.errors import InputError
from natgrad.models.rbm.row_scores import hashed_features
from natgrad.sklearn import BernoulliRBM

SMALL = {"n_components": 3, "n_iter": 1, "batch_size": 8}


def two_kinds(rows, seed=0, width=6):
    """Binary rows of two kinds, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    kinds = np.where(np.arange(width) < width // 2, 0.9, 0.1)
    chances = np.where(rng.random((rows, 1)) < 0.5, kinds, kinds[::-1])
    return (rng.random((rows, width)) < chances).astype(float)


X = two_kinds(40)


def machine(**changes):
    return BernoulliRBM(**SMALL | {"random_state": 0} | changes)


@pytest.fixture(scope="module")
def fitted():
    return machine(n_iter=3).fit(X)


def every_score(found, rows):
    """Pseudo-likelihoods, a loop over rows and features."""
    free = lambda v: (  # noqa: E731
        found.intercept_visible_ @ v + np.logaddexp(0, found.components_ @ v + found.intercept_hidden_).sum()
    )
    flipped = lambda v, i: np.where(np.arange(len(v)) == i, 1 - v, v)  # noqa: E731
    return np.array([[-np.logaddexp(0, free(flipped(v, i)) - free(v)) for i in range(len(v))] for v in rows])


@pytest.mark.slow
def test_it_learns_what_scikit_learn_s_learns():
    """The same data, persistent chains and rates: all pseudo-likelihoods, and both scores, are alike."""
    rows = two_kinds(400)
    shared = {"n_components": 4, "learning_rate": 0.05, "batch_size": 10, "n_iter": 60, "random_state": 0}
    ours, theirs = BernoulliRBM(**shared).fit(rows), TheirRBM(**shared).fit(rows)
    before = every_score(BernoulliRBM(**shared | {"n_iter": 0}).fit(rows), rows).sum(axis=1).mean()
    mine, other = (every_score(found, rows).sum(axis=1).mean() for found in (ours, theirs))
    assert mine > before + 0.5
    assert mine == pytest.approx(other, abs=0.06)  # three deviations over seeds
    scores = ours.score_samples(rows), theirs.score_samples(rows)
    noise = np.hypot(*(score.std() / 20 for score in scores))
    assert abs(scores[0].mean() - scores[1].mean()) < 4 * noise


def test_scores_are_pseudo_likelihoods_of_one_feature(fitted):
    rows = two_kinds(30, seed=1)
    scores, every = fitted.score_samples(rows), every_score(fitted, rows)
    chosen = hashed_features(rows, fitted._seed)
    np.testing.assert_allclose(scores, 6 * every[np.arange(30), chosen], rtol=1e-12)
    np.testing.assert_array_equal(fitted.score_samples(0.2 + 0.6 * rows), scores)
    np.testing.assert_allclose(fitted.model_.pseudo_log_likelihood(rows), every.sum(axis=1), rtol=1e-9)


def test_a_hash_chooses_every_feature_equally_often():
    rows = np.unique(np.random.default_rng(0).integers(0, 2, (3000, 20)), axis=0)
    counts = np.bincount(hashed_features(rows, 5), minlength=20)
    expected = len(rows) / 20
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-squared of 19 degrees: 1 in 1000 is 43.8


def test_sparse_rows_are_the_same_rows(fitted):
    sparse = scipy.sparse.csr_array(X)
    again = machine(n_iter=3).fit(scipy.sparse.csr_matrix(X))
    np.testing.assert_array_equal(again.components_, fitted.components_)
    np.testing.assert_allclose(fitted.transform(sparse), fitted.transform(X), rtol=1e-12)
    np.testing.assert_allclose(fitted.score_samples(sparse), fitted.score_samples(X), rtol=1e-12)
    np.testing.assert_allclose(fitted.log_likelihood(sparse), fitted.log_likelihood(X), rtol=1e-12)


def test_attributes_are_those_of_scikit_learn(fitted):
    assert fitted.components_.shape == (3, 6)
    assert fitted.intercept_hidden_.shape == (3,)
    assert fitted.intercept_visible_.shape == (6,)
    assert fitted.h_samples_.shape == (8, 3)
    means = 1 / (1 + np.exp(-(X @ fitted.components_.T + fitted.intercept_hidden_)))
    np.testing.assert_allclose(fitted.transform(X), means, rtol=1e-12)
    assert fitted.transform(X.astype(np.float32)).dtype == np.float32
    assert BernoulliRBM(7).n_components == 7
    turned = fitted.gibbs(X)
    assert turned.shape == X.shape
    assert turned.dtype == bool


def test_a_turn_of_gibbs_sampling_leaves_the_distribution_as_it_is(fitted):
    """Rows drawn exactly, by enumeration, have the same means after a turn."""
    states = ((np.arange(64)[:, None] >> np.arange(6)) & 1).astype(float)
    chances = np.exp(fitted.log_likelihood(states))
    assert chances.sum() == pytest.approx(1)
    rows = states[np.random.default_rng(0).choice(64, 4000, p=chances / chances.sum())]
    off = fitted.gibbs(rows).mean(axis=0) - chances @ states
    assert np.abs(off).max() < 5 * 0.5 / np.sqrt(4000)


def test_the_likelihood_says_what_it_is(fitted):
    values, facts = fitted.log_likelihood(X, return_facts=True)
    assert facts["likelihood"] == "exact"
    assert values.shape == (40,)


@pytest.mark.slow
def test_the_likelihood_of_a_large_machine_is_annealed():
    large = BernoulliRBM(24, n_iter=0, random_state=0).fit(two_kinds(30, width=24))
    counts = {"chains": 10, "temperatures": 20, "turns": 2}
    values, facts = large.log_likelihood(two_kinds(5, width=24), return_facts=True, **counts)
    assert facts["likelihood"] == "annealed importance sampling"
    assert "log_z_reverse" in facts
    one = large.log_likelihood(two_kinds(5, width=24)[:1], **counts)
    np.testing.assert_allclose(one, values[:1], rtol=1e-12)  # log Z depends on the machine only
    pickle.dumps(large)
    large.components_ += 3 * np.random.default_rng(0).normal(size=(24, 24))
    with pytest.warns(UserWarning, match="log Z is not reliable"):
        large.log_likelihood(X[:1].repeat(4, axis=1), **counts | {"temperatures": 21})


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "natural", "chains": 10, "settings": {"metric.damping": 0.3}},
        pytest.param({"negative": "exact"}, marks=pytest.mark.slow),
        pytest.param({"negative": "cd", "gibbs_steps": 2}, marks=pytest.mark.slow),
        pytest.param({"negative": "tempering", "chains": 5}, marks=pytest.mark.slow),
    ],
    ids=["natural", "exact", "cd", "tempering"],
)
@pytest.mark.slow
def test_other_ways_train(changes):
    rows = 0.1 + 0.8 * X  # gray, drawn at every use
    found = machine(n_iter=100, **{"learning_rate": 0.1} | changes).fit(rows)
    assert found.log_likelihood(X).mean() > machine(n_iter=0).fit(rows).log_likelihood(X).mean()
    assert hasattr(found, "h_samples_") == (changes.get("negative", "pcd") in ("pcd", "tempering"))


def test_partial_fit_continues():
    """A batch is a step; chains continue; another number of rows is taken."""
    going = machine().partial_fit(X[:8])
    first, chains = going.components_, going.h_samples_
    going.partial_fit(X[8:16])
    assert int(going._state.steps) == 2
    assert (going.components_ != first).any()
    assert (going.h_samples_ != chains).any()
    going.partial_fit(X[:36])
    assert int(going._state.steps) == 7  # 36 rows are four batches of 8, and one that is filled up
    with pytest.raises(InputError, match="n_components: expected the 3 hidden units of the machine, got 5"):
        going.set_params(n_components=5).partial_fit(X)


def test_nothing_is_measured_unless_asked(capsys, monkeypatch):
    monkeypatch.setattr(BernoulliRBM, "score_samples", lambda self, rows: pytest.fail("it was measured"))
    machine().fit(X)
    monkeypatch.undo()
    machine(verbose=1, n_iter=2).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    found = re.fullmatch(
        r"\[BernoulliRBM\] Iteration 2, pseudo-likelihood = (-\S+) \((-\S+) per feature\), time = \S+s",
        lines[1],
    )
    assert float(found[1]) / X.shape[1] == pytest.approx(float(found[2]), abs=2e-3)


def test_a_score_per_feature_does_not_grow_with_the_features():
    """A score is a sum over features, as in scikit-learn; what verbose says of each is comparable."""
    scores = []
    for width in (6, 60):
        rows = two_kinds(40, width=width)
        scores.append(machine(n_iter=0).fit(rows).score_samples(rows).mean() / width)
    assert scores[0] == pytest.approx(scores[1], rel=0.2)


@pytest.mark.slow
def test_features_of_very_sparse_rows_are_not_all_one():
    """One value in eighty is 1; scikit-learn's features are 1 for every row, and say nothing."""
    rng = np.random.default_rng(0)
    topics = rng.random((4, 800)) < 0.02
    rows = [topics[i % 4] * (rng.random(800) < 0.5) | (rng.random(800) < 0.002) for i in range(100)]
    sparse = scipy.sparse.csr_array(np.array(rows, float))
    shared = {"n_components": 8, "learning_rate": 0.1, "n_iter": 40, "random_state": 0}
    theirs, ours = (kind(**shared).fit_transform(sparse) for kind in (TheirRBM, BernoulliRBM))
    assert theirs.min() > 0.99
    assert 0.2 < ours.mean() < 0.8
    assert ours.std(axis=0).min() > 0.1


def test_portions_change_nothing(fitted, monkeypatch):
    monkeypatch.setattr("natgrad.models.rbm.fitting._PORTION", 48)  # a batch
    np.testing.assert_array_equal(machine(n_iter=3).fit(X).components_, fitted.components_)


def test_in_a_pipeline_cloned_and_pickled(fitted):
    classes = X[:, 0].astype(int)
    pipeline = make_pipeline(clone(fitted).set_params(n_iter=1), LogisticRegression()).fit(X, classes)
    assert pipeline.predict(X).shape == (40,)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    assert list(again.get_feature_names_out()) == ["bernoullirbm0", "bernoullirbm1", "bernoullirbm2"]


def test_steps_that_are_not_finite_are_told(monkeypatch):
    monkeypatch.setattr(config, "LARGEST_NUMBER", np.inf)
    with pytest.warns(UserWarning, match="steps were not finite and were not taken; lower the learning_rate"):
        machine(learning_rate=1e308).fit(X)


@pytest.mark.parametrize(
    ("changes", "rows", "words"),
    [
        ({}, 2 * X, r"expected values in \[0, 1\], got 0 to 2; use scale=True, or put a MinMaxScaler before"),
        ({}, scipy.sparse.csr_array(-X), r"expected values in \[0, 1\], got -1 to 0"),
        ({"scale": True}, scipy.sparse.csr_array(X), "scale=True is for dense rows, got sparse ones"),
        ({"n_components": 0}, X, "n_components: expected a whole number of at least 1, got 0"),
        ({"batch_size": 2.5}, X, "batch_size: expected a whole number of at least 1, got 2.5"),
        ({"n_iter": -1}, X, "n_iter: expected a whole number of at least 0, got -1"),
        ({"learning_rate": -1.0}, X, "optimizer.learning_rate: expected a number greater than 0"),
        ({"method": "natrual"}, X, "unknown method 'natrual'|natural"),
        ({"negative": "cd", "chains": 5}, X, "objective.chains is for --negative pcd or tempering"),
        ({"negative": "exact", "n_components": 30}, np.zeros((9, 30)), "at most 22 units"),
    ],
)
def test_mistakes_are_value_errors_of_one_sentence(changes, rows, words):
    with pytest.raises(ValueError, match=words) as caught:
        machine(**changes).fit(rows)
    assert "\n" not in str(caught.value)


def test_one_of_scikit_learn_s_own_checks():
    estimator_checks.check_methods_subset_invariance("BernoulliRBM", BernoulliRBM(**SMALL, scale=True))


@pytest.mark.slow
@parametrize_with_checks(
    [BernoulliRBM(**SMALL, scale=True), BernoulliRBM(**SMALL)],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)
