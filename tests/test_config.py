"""Settings: complete, round-tripped, and one sentence for every mistake."""

import tomllib
from pathlib import Path
from typing import get_args

import pytest

from natgrad import config, defaults
from natgrad.cli.flags import Flags
from natgrad.errors import InputError, unknown


def test_defaults_are_complete_and_survive_toml(tmp_path):
    whole = config.resolve({})
    (tmp_path / "c.toml").write_text(config.dump(whole))
    assert config.resolve({}, tmp_path / "c.toml") == whole
    written = tomllib.loads((tmp_path / "c.toml").read_text())
    assert {name for section in written.values() if isinstance(section, dict) for name in section} >= {
        "layers", "samples", "learning_rate", "epochs", "batch_size", "chunk", "split_seed", "test_samples"
    }  # fmt: skip


def test_every_setting_survives_toml(tmp_path):
    settings = {
        "method": "ws",
        "seed": 2**32 - 1,
        "data": "some/where.npz",
        "data.binarize": "resample",
        "image_shape": (7, 3),
        "layers": (5, 4, 3, 2),
        "coding": "binary",
        "model.bias": -0.1,
        "model.weights": "lecun-normal",
        "samples": 3,
        "objective.baseline": False,
        "optimizer": "adam",
        "learning_rate": 1 / 3,
        "optimizer.schedule": "cosine",
        "optimizer.decay_steps": 17,
        "epochs": 0,
        "evaluation.patience": 4,
    }
    whole = config.resolve(settings)
    (tmp_path / "c.toml").write_text(config.dump(whole))
    again = config.resolve({}, tmp_path / "c.toml")
    assert again == whole
    assert (again.optimizer.learning_rate, again.model.layers) == (1 / 3, (5, 4, 3, 2))
    assert (again.data.image_shape, again.seed) == ((7, 3), 2**32 - 1)


@pytest.mark.parametrize(("short", "dotted"), config.SHORT.items())
def test_short_and_dotted_names_are_the_same_setting(short, dotted):
    examples = {
        "method": "ws",
        "data": "3by3",
        "image_shape": (2, 2),
        "layers": (4,),
        "coding": "binary",
        "optimizer": "adam",
        "device": "cpu",
        "solver": "cg",
        "model": "mlp",
        "metric_data": "different",
        "activation": "relu",
        "output": "linear",
        "filters": (3, 4),
    }
    network = dict.fromkeys(("labelled", "metric_data", "activation", "output"), "mlp") | {
        "filters": "convnet"
    }
    value, base = examples.get(short, 7), {"model": network[short]} if short in network else {}
    one, other = config.resolve({short: value} | base), config.resolve({dotted: value} | base)
    assert one == other != config.resolve(base)


def test_every_flag_is_a_short_name():
    assert set(Flags.__dataclass_fields__) <= set(config.SHORT)


def test_settings_come_over_the_file_and_the_file_over_defaults(tmp_path):
    (tmp_path / "c.toml").write_text("seed = 3\n[model]\nlayers = [4]\n[training]\nepochs = 9\n")
    got = config.resolve({"epochs": 2, "model.bias": 0.5}, tmp_path / "c.toml")
    assert (got.seed, got.model.layers, got.training.epochs, got.model.bias) == (3, (4,), 2, 0.5)


def test_paths_are_data_names():
    assert config.resolve({"data": Path("a") / "b.npy"}).data.name == "a/b.npy"


@pytest.mark.parametrize("name", get_args(config.OptimizerName))
def test_adaptive_optimisers_start_at_smaller_rates_unless_told(name):
    rate = config.resolve({"optimizer": name, "method": "rws"}).optimizer.learning_rate
    assert rate == defaults.OPTIMIZER_RATES.get(name, 0.1)
    assert config.resolve({"optimizer": name, "learning_rate": 0.3}).optimizer.learning_rate == 0.3


def test_plain_methods_bear_a_larger_rate_than_natural_ones():
    rates = {name: config.resolve({"method": name}).optimizer.learning_rate for name in ("rws", "nrws")}
    assert rates["rws"] == 0.1 > rates["nrws"]
    assert config.resolve({"method": "rws", "learning_rate": 0.3}).optimizer.learning_rate == 0.3


MISTAKES = [
    ({"method": "rsw"}, r"unknown method 'rsw'; did you mean 'rws'\? \(known: .*rws, ws\)"),
    ({"method": "zzzz"}, r"unknown method 'zzzz'; known are .*rws, ws$"),
    ({"optimizer": "adm"}, r"unknown optimizer 'adm'; did you mean 'adam'\?"),
    ({"optimizer": [1, 2]}, r"unknown optimizer '\[1, 2\]'; known are adam, "),
    ({"optimizer.schedule": "cosin"}, r"unknown optimizer.schedule 'cosin'; did you mean 'cosine'\?"),
    ({"coding": "sign"}, r"unknown model.coding 'sign'; did you mean 'signed'\?"),
    ({"data.binarize": "rond"}, r"unknown data.binarize 'rond'; did you mean 'round'\?"),
    ({"device": "cqu"}, r"unknown training.device 'cqu'; did you mean 'cpu'\?"),
    ({"format": 2}, "unknown format '2'; known are 1"),
    ({"learning_rat": 1}, "unknown setting 'learning_rat'; did you mean 'learning_rate'"),
    ({"optimizer.schedul": 1}, "unknown setting 'optimizer.schedul'; did you mean 'optimizer.schedule'"),
    ({"modell.layers": 1}, "unknown setting 'modell.layers'; did you mean 'model.layers'"),
    ({"wake_share": 1}, r"unknown setting 'wake_share'; did you mean 'objective.wake_share'"),
    ({"qqqqqq": 1}, "unknown setting 'qqqqqq'; known are activation, "),
    ({"learning_rate": -0.1}, r"^optimizer.learning_rate: expected a number greater than 0, got -0.1$"),
    ({"learning_rate": 0}, "expected a number greater than 0, got 0"),
    ({"learning_rate": float("nan")}, "expected a (finite number|number greater than 0), got nan"),
    ({"learning_rate": float("inf")}, "expected a finite number, got inf"),
    ({"learning_rate": "x"}, "optimizer.learning_rate: expected a number, got 'x'"),
    ({"learning_rate": [1]}, r"expected a number, got \[1\]"),
    ({"samples": 0}, "^objective.samples: expected a number greater than 0, got 0$"),
    ({"samples": 1.5}, "objective.samples: expected a whole number, got 1.5"),
    ({"samples": [1]}, r"objective.samples: expected a whole number, got \[1\]"),
    ({"epochs": -1}, "training.epochs: expected a number greater than or equal to 0, got -1"),
    ({"batch_size": 0}, "training.batch_size: expected a number greater than 0, got 0"),
    ({"seed": -1}, "^seed: expected a number greater than or equal to 0, got -1"),
    ({"seed": 2**32}, "^seed: expected a number less than 4294967296, got 4294967296"),
    ({"optimizer.momentum": 1.0}, "optimizer.momentum: expected a number less than 1, got 1.0"),
    ({"optimizer.final_fraction": 2.0}, "expected a number less than or equal to 1, got 2.0"),
    ({"layers": [4, 0]}, "^model.layers: expected a number greater than 0, got 0$"),
    ({"layers": "a"}, "model.layers: expected a list of whole numbers, got 'a'"),
    ({"layers": ["a"]}, "model.layers: expected a whole number, got 'a'"),
    ({"layers": []}, r"model.layers: expected at least one whole number, got \[\]"),
    ({"image_shape": [3]}, r"image_shape: expected two whole numbers, height and width, got \[3\]"),
    ({"image_shape": [3, 1, 2]}, "image_shape: expected two whole numbers, height and width, got"),
    ({"objective.baseline": "maybe"}, "objective.baseline: expected true or false, got 'maybe'"),
    ({"objective.baseline": [1]}, r"objective.baseline: expected true or false, got \[1\]"),
    ({"data": 3}, "data.name: expected a name, got 3"),
    ({"seed.a": 3}, "seed: expected a whole number, got {'a': 3}"),
]


@pytest.mark.parametrize(("settings", "match"), MISTAKES, ids=[str(case[0]) for case in MISTAKES])
def test_mistakes_are_one_sentence(settings, match):
    with pytest.raises(InputError, match=match) as caught:
        config.resolve(settings)
    message = str(caught.value)
    assert "\n" not in message
    assert "pydantic" not in message
    assert len(message) < 1200


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"[a\n", r"c.toml is not valid TOML \(Expected .*\); correct it, or start from --dry-run's output"),
        (b"\xff\xfe", "c.toml is not valid TOML"),
        (b"data = 3\n", "^data: expected a section of settings, got 3"),
        (b"[optimizer]\nlearnrate = 3\n", "'optimizer.learnrate'; did you mean 'optimizer.learning_rate'"),
    ],
)
def test_mistakes_in_a_file(tmp_path, text, match):
    (tmp_path / "c.toml").write_bytes(text)
    with pytest.raises(InputError, match=match):
        config.resolve({}, tmp_path / "c.toml")


def test_a_dotted_setting_below_a_value_of_the_file(tmp_path):
    (tmp_path / "c.toml").write_text("model = 3\n")
    with pytest.raises(InputError, match=r"model.bias: 'model' is a single value here, not a section"):
        config.resolve({"model.bias": 1}, tmp_path / "c.toml")


def test_missing_files(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the config file .*none.toml: No such file"):
        config.resolve({}, tmp_path / "none.toml")
    with pytest.raises(InputError, match="Is a directory; give an existing TOML file"):
        config.resolve({}, tmp_path)


def test_long_lists_name_only_the_nearest():
    names = [f"name-{number}" for number in range(30)]
    assert str(unknown("thing", "name-7x", names)).startswith(
        "unknown thing 'name-7x'; did you mean 'name-7'"
    )
    assert "known" not in str(unknown("thing", "name-7x", names)).removeprefix("unknown")
    assert str(unknown("thing", "!", names)).endswith("name-9")
