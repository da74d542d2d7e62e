"""Networks through the command line's own loop: batches, methods, resuming, the report, every mistake."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natgrad
from natgrad import config
from natgrad.cli.main import main
from natgrad.core import Pace
from natgrad.data import load
from natgrad.errors import InputError
from natgrad.models.network import examples
from natgrad.models.network.commands import evaluate
from natgrad.models.network.kind import KIND
from natgrad.models.network.spec import Shape
from natgrad.records import folder
from natgrad.report.listing import list_runs
from natgrad.report.making import report_runs
from trainings import timeless

TINY = {"model": "mlp", "layers": (4,), "epochs": 3, "batch_size": 400, "seed": 3}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for this module's runs; optax's Adam wants ordinary promotion."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield tmp_path_factory.mktemp("networks")
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="module")
def own(place):
    """Images of 4 x 5 with the label that their darkest row has, and a number for each."""
    rng = np.random.default_rng(0)
    images = rng.random((120, 4, 5)) * 0.6
    labels = rng.integers(0, 3, 120)
    images[np.arange(120), labels] += 0.4
    np.savez(place / "classes.npz", images=images, labels=labels)
    np.savez(place / "numbers.npz", images=images, labels=labels / 2 - 0.5)
    np.savez(place / "bare.npz", images=images)
    np.savez(place / "real.npz", images=9 * images - 4, labels=labels)
    return place


@pytest.fixture(scope="module")
def run(place):
    """A tiny perceptron on digits by the default method."""
    return natgrad.train(out=place / "whole", **TINY)


def settings_of(own, **changed):
    small = {"model": "mlp", "data": own / "classes.npz", "layers": (3,), "batch_size": 16, "epochs": 3}
    return small | changed


def problem(own, **changed):
    chosen = config.resolve(settings_of(own, **changed))
    data = load(chosen.data.name, binarize=chosen.data.binarize)
    return KIND.problem(jax.random.key(0), chosen, data)


# --- training -----------------------------------------------------------------------------------------


def test_a_resumed_training_has_the_bits_of_one_that_never_stopped(run, place):
    natgrad.train(out=place / "begun", **TINY | {"epochs": 1})
    resumed = natgrad.resume(place / "begun", epochs=3)
    assert json.dumps(timeless(list(run.trace))) == json.dumps(timeless(list(resumed.trace)))
    jax.tree.map(np.testing.assert_array_equal, run.model.parameters, resumed.model.parameters)
    assert run.config == resumed.config


def test_the_trace_tells_likelihood_error_and_what_became_of_the_steps(run):
    first, last = run.trace[0], run.trace[-1]
    assert last["test_error"] < 0.5 < first["test_error"]
    assert last["valid_loss"] == -last["valid_ll"] < first["valid_loss"]
    assert last["test_loss"] == -last["test_ll"]
    assert last["test_ll_se"] > 0
    assert 0 < last["residual"] < 1
    assert last["solver_iterations"] == 10
    assert last["damping"] == 0.1
    assert run.summary["test_error"] == last["test_error"]


def test_the_run_answers_for_new_rows_and_is_evaluated_like_its_last_row(run):
    data = load("digits", binarize="gray")
    predicted = run.model.predict(data.test / 16)
    assert np.mean(predicted != data.labels["test"]) == pytest.approx(run.trace[-1]["test_error"])
    np.testing.assert_allclose(run.model.means(data.test[:5] / 16).sum(axis=1), 1)
    found = evaluate(run.folder)
    assert (found["test_error"], found["rows"]) == (run.trace[-1]["test_error"], 300)
    assert evaluate(run.folder, rows=7)["rows"] == 7


@pytest.mark.parametrize(
    "method",
    [
        "hessian-free",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("krylov", "tonga", "units", "kfac", "plain")),
    ],
)
def test_every_method_lowers_the_loss(own, method):
    """The default method's own test is the run above."""
    few = {"metric.iterations": 3} if method not in ("kfac", "plain") else {}
    few |= {"batch_size": 64} if method == "krylov" else {}  # it goes all the way to its batch's minimum
    done = natgrad.train(
        out=own / f"by-{method}", **settings_of(own, method=method, **few), learning_rate=RATES[method]
    )
    losses = [row["valid_loss"] for row in done.trace]
    assert losses[-1] < losses[0] - 0.1
    assert done.trace[-1]["steps_refused"] == done.trace[-1]["divergences"] == 0


RATES = {"hessian-free": 1.0, "krylov": 1.0, "tonga": 0.5, "units": 0.5, "kfac": 0.01, "plain": 1.0}


def test_kfac_takes_the_factors_of_the_metrics_rows_and_a_rate(own):
    """The last layer's are known: the mean square of its inputs, and one over the outputs' variance."""
    settings = {"method": "kfac", "output": "linear", "model.beta": 0.5, "data": own / "numbers.npz"}
    chosen = config.resolve(settings_of(own, **settings))
    data = load(chosen.data.name, binarize=chosen.data.binarize)
    task = KIND.problem(jax.random.key(0), chosen, data)
    model = KIND.fresh(jax.random.key(3), chosen, Shape.of(chosen, data))
    method, batch = task.algorithm(None, Pace(10)), task.draw(jax.random.key(1), task.rows, jnp.arange(96), 0)
    state = method.init(jax.random.key(2), model, batch)
    after, info = jax.jit(method.step)(jax.random.key(4), state, batch)
    hidden = np.tanh(np.asarray(batch.rows.inputs @ model[0].weight.T + model[0].bias))
    inputs = np.column_stack([hidden, np.ones(len(hidden))])
    block = info.evidence.factor.operator.blocks[-1]
    np.testing.assert_allclose(block.inputs, inputs.T @ inputs / len(inputs), atol=1e-10)
    np.testing.assert_allclose(block.outputs, [4.0], rtol=1e-10)
    moved = jax.tree.map(lambda new, old, way: new - old + 0.01 * way, after.model, model, info.direction)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(moved)) < 1e-12


@pytest.mark.parametrize(
    ("name", "changed", "column"),
    [
        ("convnet", {"model": "convnet", "filters": (2,), "model.filter_width": 2}, "valid_loss"),
        (
            "regression",
            {"output": "linear", "model.beta": 0.5, "data": "numbers.npz"},
            "test_squared_error",
        ),
    ],
)
@pytest.mark.few(1)
@pytest.mark.slow
def test_the_other_networks_learn_too(own, name, changed, column):
    changed = changed | {"data": own / changed.get("data", "classes.npz"), "optimizer": "adam"}
    done = natgrad.train(out=own / name, **settings_of(own, method="plain", **changed), learning_rate=0.02)
    assert done.trace[-1][column] < done.trace[0][column]
    rows = np.random.default_rng(1).random((3, 20))
    shape = {"convnet": (3,), "regression": (3, 1)}[name]
    assert done.model.predict(rows).shape == shape


def test_an_autoencoders_decoder_mirrors_its_layers(own):
    chosen = config.resolve(settings_of(own, model="autoencoder", layers=(7, 5, 2)))
    sizes = Shape.of(chosen, load(chosen.data.name, binarize=chosen.data.binarize))
    shape = jax.eval_shape(lambda: KIND.fresh(jax.random.key(0), chosen, sizes))
    assert [layer.weight.shape for layer in shape] == [(7, 20), (5, 7), (2, 5), (5, 2), (7, 5), (20, 7)]


# --- batches ------------------------------------------------------------------------------------------


def drawn(own, position=1, **changed):
    """A batch of the problem, and which rows of the training set it holds, by their inputs."""
    found = problem(own, **changed)
    order = jnp.asarray(np.random.default_rng(0).permutation(found.number))
    return found, order, found.draw(jax.random.key(1), found.rows, order, position)


def test_inputs_are_gray_values_and_targets_their_labels(own):
    found, order, batch = drawn(own)
    data = load(own / "classes.npz", binarize="gray")
    values, labels = np.asarray(data.train) / 255, data.labels["train"]
    at = [
        int(np.flatnonzero((np.abs(values - row) < 1e-9).all(axis=1))[0])
        for row in np.asarray(batch.rows.inputs)
    ]
    np.testing.assert_array_equal(batch.rows.targets, labels[at])
    np.testing.assert_array_equal(batch.rows.targets, found.rows.targets[order[16:32]])
    assert batch.metric is None


def test_a_part_of_the_own_batch_may_serve_the_metric(own):
    _, _, batch = drawn(own, **{"metric.rows": 5})
    np.testing.assert_array_equal(batch.metric.inputs, batch.rows.inputs[:5])
    np.testing.assert_array_equal(batch.metric.targets, batch.rows.targets[:5])


def test_a_different_batch_follows_in_the_order_and_never_overlaps(own):
    for position in range(96 // 16):
        found, order, batch = drawn(own, position, metric_data="different", **{"metric.rows": 40})
        wanted = np.concatenate([order, order])[(position + 1) * 16 :][:40]
        np.testing.assert_array_equal(
            batch.metric.inputs, examples.inputs_of(jax.random.key(0), found.rows.labeled, wanted)
        )
        assert not set(map(bytes, np.asarray(batch.rows.inputs))) & set(
            map(bytes, np.asarray(batch.metric.inputs))
        )


@pytest.mark.parametrize(("name", "rows"), [("unlabeled", 16), ("both", 32)])
def test_unlabeled_rows_are_others_than_the_gradients(own, name, rows):
    found, _, batch = drawn(own, labeled=30, metric_data=name, position=0)
    assert found.number == 30
    assert len(found.rows.unlabeled.values) == 66
    assert batch.metric.targets is None
    assert batch.metric.inputs.shape == (rows, 20)
    others = {bytes(row) for row in np.asarray(found.rows.unlabeled.values)}
    inputs = np.round(np.asarray(batch.metric.inputs[-16:]) * 255).astype(np.uint8)
    assert {bytes(row) for row in inputs} <= others
    assert not others & {bytes(row) for row in np.asarray(found.rows.labeled.values)}


def test_labeled_rows_keep_the_shares_of_the_classes(own):
    data = load(own / "classes.npz", binarize="gray")
    found = problem(own, labeled=48)
    shares = np.bincount(data.labels["train"]) / 2
    assert np.abs(np.bincount(np.asarray(found.rows.targets)) - shares).max() <= 1


# --- the report and the command line ------------------------------------------------------------------


def test_the_report_shows_the_curves_of_error_and_loss(run, tmp_path):
    page = (tmp_path / "page.html", report_runs([run.folder], out=tmp_path / "page.html"))[0].read_text()
    for column in ("valid_error test_error", "train_loss valid_loss", "residual"):
        assert f'data-y="{column}"' in page
    assert "test_error" in page
    assert f"{run.trace[-1]['test_error']:.2%}" in page
    assert "--model mlp" in page
    assert "Reconstructions" not in page


@pytest.mark.slow
def test_an_autoencoder_learns_and_its_report_has_reconstructions(own, tmp_path):
    changed = {"model": "autoencoder", "layers": (4, 3), "method": "plain", "labeled": 64}
    done = natgrad.train(out=own / "drawn", **settings_of(own, **changed), learning_rate=0.1)
    assert done.trace[-1]["test_squared_error"] < done.trace[0]["test_squared_error"]
    assert list_runs(done.folder)[0]["headline"] == "test_squared_error"
    assert done.trace[-1]["step"] == 3 * 64 // 16
    assert done.model.predict(np.zeros((3, 20))).shape == (3, 20)
    report_runs([done.folder], out=tmp_path / "page.html")
    assert "test rows 1 to 10" in (tmp_path / "page.html").read_text()


def test_the_command_line_lists_networks_by_their_headline(run, capsys):
    with pytest.raises(SystemExit):
        main(["runs", str(run.folder)])
    shown = capsys.readouterr().out
    assert "test error" in shown
    assert f"{run.trace[-1]['test_error']:.2%}" in shown


def test_a_network_has_no_samples(run, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["sample", str(run.folder)])
    assert ended.value.code == 2
    assert "sample" in capsys.readouterr().err


def test_the_config_of_a_network_is_complete_and_repeats(run, tmp_path):
    again = config.resolve({}, run.folder / "config.toml")
    assert again == run.config == folder.open_run(run.folder)[1]
    assert (again.data.binarize, again.metric.data, again.model.output) == ("gray", "same", "softmax")


UNFIT = [
    (
        {"data": "bare.npz"},
        "have no labels to learn; use --model autoencoder, labeled data such as digits",
    ),
    (
        {"data": "numbers.npz"},
        "the softmax output expects class numbers, the labels of .* are float64; use --output",
    ),
    ({"output": "sigmoid"}, "the sigmoid output expects targets from 0 to 1, got 2.0; rescale the targets"),
    (
        {"labeled": 97},
        "expected at most the 96 training rows of .* to be labeled, got 97; lower --labeled",
    ),
    ({"metric_data": "unlabeled"}, "there are no unlabeled rows for the metric, since every training row"),
    ({"metric.rows": 17}, "metric.rows: expected at most the batch's 16 rows, got 17; raise --batch-size"),
    (
        {"metric_data": "different", "metric.rows": 81},
        "a different batch of 81 rows for the metric needs 97 labeled rows, there are 96; lower",
    ),
]


@pytest.mark.parametrize(("given", "match"), UNFIT, ids=str)
def test_data_that_do_not_fit_the_network_are_one_sentence(own, given, match):
    given = given | ({"data": own / given["data"]} if "data" in given else {})
    with pytest.raises(InputError, match=match):
        problem(own, **given)


@pytest.mark.slow
def test_inputs_may_be_real(own, place):
    done = natgrad.train(
        out=own / "real", **settings_of(own, data=own / "real.npz", **{"data.binarize": "real"})
    )
    assert done.trace[-1]["test_loss"] < done.trace[0]["test_loss"]
    data = load(own / "real.npz", binarize="real")
    assert data.train.min() < -3
    assert data.train.max() > 3
    assert done.model.predict(data.test).shape == (12,)
    with pytest.raises(InputError, match="expected finite numbers, got NaN or infinity"):
        done.model.predict(np.full((1, 20), np.nan))
    again = evaluate(done.folder)
    assert again["test_loss"] == pytest.approx(done.trace[-1]["test_loss"])


def test_real_inputs_reach_the_network_as_they_are(own):
    found, order, batch = drawn(own, data=own / "real.npz", **{"data.binarize": "real"})
    np.testing.assert_array_equal(batch.rows.inputs, found.rows.labeled.values[order[16:32]])
    assert found.rows.labeled.values.dtype == jnp.float32


def test_real_rows_of_an_autoencoder_need_a_distribution_that_has_them(own, tmp_path):
    real = {"model": "autoencoder", "data.binarize": "real"}
    assert problem(own, data=own / "real.npz", output="linear", **real)
    inside = np.random.default_rng(0).random((40, 6))
    outside = np.where(np.arange(6) == 2, 1.5, inside)
    for at in ("train", "test"):
        rows = {name: outside if name == at else inside for name in ("train", "valid", "test")}
        np.savez(tmp_path / f"{at}.npz", **rows)
        with pytest.raises(InputError, match=r"the sigmoid output expects targets from 0 to 1, got 1\.5"):
            problem(own, data=tmp_path / f"{at}.npz", **real)


def test_a_convnet_needs_images(tmp_path):
    np.savez(tmp_path / "flat.npz", rows=np.random.default_rng(0).random((40, 6)), labels=np.arange(40) % 2)
    with pytest.raises(
        InputError, match=r"a convnet needs images, the rows of .* are not images; give --image-shape"
    ):
        problem(tmp_path, model="convnet", data=tmp_path / "flat.npz")


def test_a_mistake_on_the_command_line_exits_with_two(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--model", "mlp", "--data", "3by3", "--epochs", "1"])
    assert stopped.value.code == 2
    assert "the data 3by3 have no labels to learn" in capsys.readouterr().err


def test_the_loss_that_knows_nothing_is_what_jumps_are_measured_by(own):
    assert problem(own).ignorance == pytest.approx(math.log(3))
    assert problem(own, model="autoencoder").ignorance == pytest.approx(20 * math.log(2))
