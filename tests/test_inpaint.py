"""Completions and posteriors, held to enumeration: hidden pixels must follow p(x_hidden | x_known)."""

import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import cases
import natgrad
import oracles
from cases import CODINGS
from natgrad.cli.main import main
from natgrad.data import load_settings
from natgrad.errors import InputError
from natgrad.evaluate.given_images import GivenImages
from natgrad.layers import generator
from natgrad.models.helmholtz import inpainting as inpaint
from natgrad.models.helmholtz.inpainting import Chain
from natgrad.models.helmholtz.trained import Trained

ROW = np.array([1, 0, 0, 1])
HIDE = np.array([True, False, True, False])
CHAINS = 10_000


@cache
def trained(coding="signed", spread=0.8):
    return Trained(cases.machine((4, 3, 2), CODINGS[coding], spread=spread))


def joint_distribution(model):
    """Every (x_hidden, h) with its probability given the known pixels, by enumeration."""
    m = oracles.numpy_model(model)
    states, logs = [], []
    for pixels in oracles.all_states(int(HIDE.sum())):
        x = ROW.astype(float)
        x[HIDE] = pixels
        for hidden in oracles.hidden_states(m):
            states.append((x, *hidden))
            logs.append(oracles.log_joint(m, [x, *hidden]))
    return states, np.exp(np.array(logs) - np.logaddexp.reduce(logs))


def codes(*layers):
    """Each column of {0,1} layers as one number."""
    bits = np.concatenate([np.asarray(layer) for layer in layers]).round().astype(int)
    return (bits * 2 ** np.arange(len(bits))[:, None]).sum(axis=0)


def z_scores(drawn, names, distribution):
    """How far the frequency of every state is from its probability, in standard errors."""
    counts = np.array([(drawn == name).sum() for name in names])
    assert counts.sum() == len(drawn)
    return (counts - len(drawn) * distribution) / np.sqrt(len(drawn) * distribution * (1 - distribution))


@pytest.mark.parametrize("coding", ["signed", pytest.param("binary", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_completed_pixels_have_the_conditional_distribution(coding):
    model = trained(coding)
    rows = np.tile(ROW, (CHAINS // 10, 1))
    done = model.inpaint(rows, HIDE, number=10, steps=60, samples=2, seed=1)
    assert done.samples.shape == done.means.shape == (len(rows), 10, 4)
    flat = done.samples.reshape(-1, 4)
    assert (flat[:, ~HIDE] == ROW[~HIDE]).all()
    states, distribution = joint_distribution(model.parameters)
    names = codes(np.array([x for x, *_ in states]).T)
    marginal = {name: distribution[names == name].sum() for name in np.unique(names)}
    z = z_scores(codes(flat.T), list(marginal), np.array(list(marginal.values())))
    assert np.abs(z).max() < 5
    assert 0.1 < done.moved.mean() < 0.5  # sixty steps forget the start


@pytest.mark.parametrize("samples", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_step_leaves_the_conditional_distribution_as_it_is(samples):
    """From exact draws of (x_hidden, h) given x_known, one step leads to exact draws again."""
    model = trained().parameters
    states, distribution = joint_distribution(model)
    start = np.random.default_rng(0).choice(len(states), CHAINS, p=distribution)
    coded = [np.array([state[i] for state in states])[start].T * 2 - 1 for i in range(3)]
    hidden = tuple(jnp.asarray(layer)[:, :, None] for layer in coded[1:])
    nothing = jnp.zeros(CHAINS, jnp.int32)
    chain = Chain(jnp.asarray(coded[0]), hidden, jnp.zeros((4, CHAINS)), nothing)
    hide = jnp.asarray(np.tile(HIDE[:, None], CHAINS))
    after = jax.jit(lambda key: inpaint.advance(key, model, chain, hide, samples=samples))(generator.key(7))
    assert 0 < int(after.moves.sum()) < CHAINS
    on = [model.coding.on(after.visible), *(model.coding.on(layer[:, :, 0]) for layer in after.hidden)]
    names = codes(*(np.array([state[i] for state in states]).T for i in range(3)))
    seen = distribution > 1e-3  # rarer states hold too few draws for a z-score
    drawn = codes(*on)
    z = z_scores(
        drawn[np.isin(drawn, names[seen])], names[seen], distribution[seen] / distribution[seen].sum()
    )
    assert np.abs(z).max() < 5


@pytest.mark.slow
def test_chains_start_from_dreams_that_explain_the_known_pixels():
    """With many dreams the start alone is near the distribution; it is exact in the limit."""
    model = trained().parameters
    visible = jnp.asarray(np.tile(ROW * 2.0 - 1, (2000, 1)).T)
    hide = jnp.asarray(np.tile(HIDE[:, None], 2000))
    chain = jax.jit(lambda key: inpaint.start(key, model, visible, hide, 2000))(generator.key(3))
    states, distribution = joint_distribution(model)
    expected = distribution @ np.array([x for x, *_ in states])
    got = np.asarray(model.coding.on(chain.visible)).mean(axis=1)
    np.testing.assert_allclose(got, expected, atol=0.06)
    assert np.abs(expected - trained().sample(2000).mean(axis=0))[HIDE].max() > 0.1  # not the prior's


@pytest.mark.slow
def test_seeds_and_portions_decide_completions():
    rows = np.tile(ROW, (3, 1))
    one, same, other = (trained().inpaint(rows, HIDE, number=2, seed=seed) for seed in (1, 1, 2))
    assert (one.samples == same.samples).all()
    assert (one.means != other.means).any()
    each = np.stack([HIDE, ~HIDE, HIDE])
    done = trained().inpaint(rows, each, steps=1)
    assert (done.samples[:, 0][~each] == rows[~each]).all()
    assert (done.means[:, 0][~each] == rows[~each]).all()
    assert ((done.means > 0) & (done.means < 1))[:, 0][each].all()


@pytest.mark.parametrize("coding", ["signed", pytest.param("binary", marks=pytest.mark.slow)])
def test_reconstructions_agree_with_enumeration(coding):
    model = trained(coding, spread=0.3)  # weights of little variance: the error is a tenth of the tolerance
    m = oracles.numpy_model(model.parameters)
    rows = np.array([[0, 1, 1, 0], [1, 1, 0, 1], [0, 0, 0, 1]])
    got = model.reconstruct(rows, samples=100_000)
    likelihood = model.inferred(rows, samples=100_000).log_likelihood
    weight, bias = m["generation"][0]
    for row, mean, log_p in zip(rows, got, likelihood, strict=True):
        joint = [(h, np.exp(oracles.log_joint(m, [row, *h]))) for h in oracles.hidden_states(m)]
        total = sum(p for _, p in joint)
        expected = sum(p * oracles.sigmoid(weight @ oracles.code(m, h[0]) + bias) for h, p in joint) / total
        np.testing.assert_allclose(mean, expected, atol=0.01)
        np.testing.assert_allclose(log_p, np.log(total), atol=0.03)


@pytest.mark.slow
def test_what_is_said_of_a_row_does_not_depend_on_its_neighbors():
    rows = trained().sample(300, seed=5)  # more than one portion
    together = trained().posterior(rows, samples=20)[0]
    for order in (slice(7, 8), slice(None, None, -1)):
        alone = trained().posterior(rows[order], samples=20)[0]
        np.testing.assert_array_equal(alone, together[order])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"number": 0}, "number: expected at least 1, got 0"),
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"samples": -1}, "samples: expected at least 1, got -1"),
        (
            {"rows": ROW[None] * 0.5},
            "expected rows of 0 and 1 to complete, got values in between; round them",
        ),
        ({"rows": ROW}, r"expected at least one row of 4 values, got an array of shape \(4,\)"),
        (
            {"mask": HIDE[:3]},
            r"expected a mask of 4 values, true where a pixel is hidden, got shape \(3,\) of bool",
        ),
        ({"mask": HIDE * 0.5}, r"got shape \(4,\) of float64; give one mask for all rows or one for each"),
        ({"mask": HIDE & False}, "expected a mask that hides at least one pixel, got none"),
    ],
)
def test_questions_that_cannot_be_answered_are_said(settings, match):
    given = {"rows": ROW[None], "mask": HIDE} | settings
    with pytest.raises(InputError, match=match):
        trained().inpaint(given.pop("rows"), given.pop("mask"), **given)


IMAGES = np.random.default_rng(0).integers(0, 2, (40, 3, 4)).astype(np.uint8)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on images of 3 x 4 pixels, hardly trained."""
    place = tmp_path_factory.mktemp("inpaint")
    np.save(place / "own.npy", IMAGES)
    settings = {"method": "rws", "layers": (3,), "batch_size": 8, "epochs": 1}
    return natgrad.train(data=place / "own.npy", out=place / "run", **settings)


def given_images(run, image_shape=(3, 4)):
    return GivenImages(load_settings(run.config.data), 12, image_shape)


def test_rows_of_a_split_and_of_files(run, tmp_path):
    dataset = given_images(run).dataset
    np.testing.assert_array_equal(given_images(run).rows("test:2"), dataset.test[[2]])
    np.testing.assert_array_equal(given_images(run).rows("valid:0,3"), dataset.valid[[0, 3]])
    for name, array in {
        "row": IMAGES[0].reshape(12),
        "image": IMAGES[0] * 0.7,
        "bytes": IMAGES[0] * np.uint8(255),
    }.items():
        np.save(tmp_path / f"{name}.npy", array)
        got = given_images(run).rows(str(tmp_path / f"{name}.npy"))
        np.testing.assert_array_equal(got, IMAGES[0].reshape(1, 12))
    np.save(tmp_path / "images.npy", IMAGES[:5])
    np.testing.assert_array_equal(
        given_images(run).rows(str(tmp_path / "images.npy")), IMAGES[:5].reshape(5, 12)
    )
    Image.fromarray(IMAGES[3] * np.uint8(200)).save(tmp_path / "a.png")
    np.testing.assert_array_equal(given_images(run).rows(str(tmp_path / "a.png")), IMAGES[3].reshape(1, 12))


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("left", ["1100", "1100", "1100"]),
        ("right", ["0011", "0011", "0011"]),
        ("top", ["1111", "0000", "0000"]),
        ("bottom", ["0000", "0000", "1111"]),
        ("center", ["0000", "0110", "0000"]),
    ],
)
def test_masks_by_name_hide_that_part(run, name, hidden):
    got = given_images(run).mask(name).reshape(3, 4).astype(int)
    assert ["".join(map(str, line)) for line in got] == hidden


def test_masks_of_half_the_pixels_and_of_files(run, tmp_path):
    assert given_images(run, None).mask("half", seed=1).sum() == 6
    assert (given_images(run).mask("half", seed=1) != given_images(run).mask("half", seed=2)).any()
    np.save(tmp_path / "m.npy", IMAGES[0].astype(bool))
    np.testing.assert_array_equal(given_images(run).mask(str(tmp_path / "m.npy")), IMAGES[0].reshape(12) == 1)
    Image.fromarray(IMAGES[1] * np.uint8(255)).save(tmp_path / "m.png")
    np.testing.assert_array_equal(given_images(run).mask(str(tmp_path / "m.png")), IMAGES[1].reshape(12) == 1)


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code, *capsys.readouterr()


def test_the_command_completes_and_reconstructs(run, capsys, tmp_path):
    line = ["sample", run.folder, "--given", "test:0,1", "--json"]
    code, out, _ = call(capsys, *line, "--mask", "left", "--number", 3, "--steps", 5)
    found = json.loads(out)
    assert (code, found["images"], found["hidden"], found["number"], found["steps"]) == (0, 2, 6, 3, 5)
    assert 0 <= found["moved"] <= 1
    assert found["picture"] == str(run.folder / "completions.png")
    assert (run.folder / "completions.png").stat().st_size > 1000
    code, out, _ = call(capsys, *line, "--out", tmp_path / "r.png")
    assert (code, json.loads(out)["picture"]) == (0, str(tmp_path / "r.png"))
    assert (tmp_path / "r.png").stat().st_size > 1000


def write_files(place):
    np.save(place / "wide.npy", np.zeros((3, 5)))
    np.save(place / "gray.npy", np.full((3, 4), 0.4))
    np.save(place / "large.npy", np.full((3, 4), 2.0))
    Image.fromarray(np.zeros((4, 3), np.uint8)).save(place / "tall.png")
    (place / "text.png").write_text("no picture")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--mask left", "--mask needs --given: expected the image whose part is hidden"),
        ("--given test:99", "--given: expected a number below 4, the rows of test, got 99"),
        ("--given exam:1", "--given: expected test:NUMBER (or train:, valid:), a .npy or a .png file"),
        ("--given none.npy", "expected a readable file, none.npy is not"),
        ("--given none.png", "cannot read the picture none.png"),
        ("--given text.png", "cannot read the picture text.png"),
        (
            "--given tall.png",
            "expected a picture of 3 x 4 pixels (height x width), tall.png has 4 x 3; resize",
        ),
        ("--given wide.npy", "expected 12 values, or an image of 3 x 4 in wide.npy, got the shape (3, 5)"),
        ("--given large.npy", "expected values in [0, 1] or bytes in large.npy, got others; rescale them"),
        ("--given test:0 --mask lift", "unknown mask 'lift'; did you mean 'left'?"),
        ("--given test:0 --mask gray.npy", "--mask: expected one mask of 0 and 1 in gray.npy"),
        ("--given test:0 --mask left --number 0", "number: expected at least 1, got 0"),
        ("--given test:0 --mask left --steps 0", "steps: expected at least 1, got 0"),
        ("--given test:0 --mask left --out none/c.png", "cannot write the picture none/c.png"),
    ],
)
def test_mistakes_are_one_sentence(run, capsys, monkeypatch, tmp_path, line, sentence):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    code, out, err = call(capsys, "sample", run.folder, *line.split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_names_of_parts_need_images(run, tmp_path):
    with pytest.raises(
        InputError, match="--mask: 'left' needs images, and the rows of this run have no image"
    ):
        given_images(run, None).mask("left")
    Image.fromarray(np.zeros((3, 4), np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"a.png is a picture, and the rows of this run have no image shape"):
        given_images(run, None).rows(str(tmp_path / "a.png"))
