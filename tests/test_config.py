"""Settings: complete, round-tripped, read by somebody, and one sentence for every mistake."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from natgrad import config
from natgrad.cli import settings_page, wording
from natgrad.cli.dry_run import annotated
from natgrad.config import names, sections
from natgrad.errors import InputError, unknown
from natgrad.models import registry

EVERY = [reader for reader, _ in names.all_settings()]
every = pytest.mark.parametrize("reader", EVERY, ids="-".join)


def usual(reader, **more):
    """The config of a kind and a method."""
    return config.resolve({"model": reader[0], "method": reader[1]} | more)


@pytest.fixture
def coin(monkeypatch):
    """A kind of somebody else's, registered while everything is imported already."""
    monkeypatch.setitem(registry.FOLDERS, "coin", "coin_kind:SPEC")
    return registry.spec_of("coin")


@every
def test_defaults_are_complete_and_survive_toml(tmp_path, reader):
    whole = usual(reader)
    (tmp_path / "c.toml").write_text(config.dump(whole))
    assert config.resolve({}, tmp_path / "c.toml") == whole
    written = tomllib.loads((tmp_path / "c.toml").read_text())
    assert (written["model"]["kind"], written["method"]) == reader
    named = {f"{name}.{key}" for name, part in written.items() if isinstance(part, dict) for key in part}
    read = names.fields_of(type(whole))
    assert named <= set(read)
    assert {name for name in set(read) - named if "." in name} == {
        name for name, field in read.items() if field.default is None
    }


@every
def test_a_dry_run_shows_every_setting_and_is_read_back(tmp_path, reader):
    whole = usual(reader, seed=7)
    text = annotated(whole)
    (tmp_path / "c.toml").write_text(text)
    assert config.resolve({}, tmp_path / "c.toml") == whole
    lines = text.splitlines()
    for name, field in names.fields_of(type(whole)).items():
        last = name.split(".")[-1]
        at = [n for n, line in enumerate(lines) if line.startswith((f"{last} =", f"# {last} ="))]
        assert at, name
        takes = wording.allowed(name, field, reader)
        assert any(lines[n].endswith(takes) or lines[n - 1].endswith(takes) for n in at), name
    assert max(map(len, lines)) <= 80
    assert "# constant | cosine" in text or reader[1] == "hessian-free"
    assert "# schedule_steps =  # not set: the whole training; takes whole number > 0" in lines


def test_a_dry_run_keeps_odd_texts(tmp_path):
    whole = config.resolve(
        {"data": 'a "b" \\ \x7f é\n#.npy', "objective.growth": [[3, 4], [5, 6]], "epochs": 0}
    )
    (tmp_path / "c.toml").write_text(annotated(whole), encoding="utf-8")
    assert config.resolve({}, tmp_path / "c.toml") == whole


def test_every_setting_survives_toml(tmp_path):
    settings = {
        "method": "rws",
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
        "recognition.rate": 0.3,
        "optimizer": "adam",
        "learning_rate": 1 / 3,
        "optimizer.schedule": "inverse-time",
        "optimizer.hold_steps": 5,
        "epochs": 0,
        "evaluation.patience": 4,
    }
    whole = config.resolve(settings)
    (tmp_path / "c.toml").write_text(config.dump(whole))
    again = config.resolve({}, tmp_path / "c.toml")
    assert again == whole
    assert hash(again) == hash(whole)
    assert (again.optimizer.learning_rate, again.model.layers) == (1 / 3, (5, 4, 3, 2))
    assert (again.data.image_shape, again.seed) == ((7, 3), 2**32 - 1)


def other_value(name, field):
    """A value of a setting that is not its default."""
    if choices := [choice for choice in names.choices(field.annotation) if choice != field.default]:
        return choices[-1]
    if depth := names.depth(field.annotation):
        return (5, 7) if depth == 1 else ((5, 7),)
    return {str: "3by3", bool: not field.default}.get(field.annotation, 7)


@pytest.mark.parametrize("kind", registry.kind_names())
def test_short_and_dotted_names_are_the_same_setting(kind):
    methods, short_names = registry.spec_of(kind).methods_of(kind), names.short_names(kind)
    fields = names.fields_named(short_names.values(), kind)
    for short, dotted in short_names.items():
        if dotted not in fields:
            continue  # of another kind that shares the spec
        given = {"method": methods[-1], "model": kind}
        value = given.get(short) or other_value(dotted, fields[dotted])
        base = {
            "model.kind": kind,
            "method": next(each for each in methods if dotted in fields_of(kind, each)),
        }
        one, other = config.resolve(base | {short: value}), config.resolve(base | {dotted: value})
        assert one == other
        assert one != config.resolve(base) or short == "model"


def fields_of(kind, method):
    return names.fields_of(registry.spec_of(kind).settings[kind, method])


@pytest.mark.parametrize("spec", list(registry.specs()), ids=lambda spec: next(iter(spec.kinds)))
def test_specs_are_whole(spec):
    assert {kind for kind, _ in spec.settings} == set(spec.kinds)
    assert {method for _, method in spec.settings} == set(spec.methods)
    every_name = {name for settings in spec.settings.values() for name in names.fields_of(settings)}
    assert set(spec.short.values()) <= every_name
    assert not set(spec.short) & set(names.COMMON)
    columns = {column.name for column in spec.columns}
    shared = {column.name for column in registry.COLUMNS}
    assert spec.headline_of() in columns
    assert spec.criterion in columns | shared
    for column in spec.columns:  # of a shared column a kind may say more, but it means the same
        for other in registry.COLUMNS:
            if column.name == other.name:
                assert (column.title, column.unit, column.higher) == (other.title, other.unit, other.higher)
    for reader, settings in spec.settings.items():
        assert all(field.description for field in names.fields_of(settings).values()), reader
    for place in spec.commands.values():
        assert registry.resolve_reference(place).__doc__


def test_a_method_has_its_settings_and_no_others():
    """Some rows of the agreed table."""

    def section(name, kind, method):
        return {field.split(".")[1] for field in fields_of(kind, method) if field.startswith(f"{name}.")}

    def machine(method, name):
        return section(name, "helmholtz", method)

    assert machine("ws", "objective") == {"samples", "sleep_share", "sleeps", "growth"}
    assert machine("bihm", "objective") == machine("nbihm", "objective") == {"samples", "baseline", "growth"}
    assert machine("rws", "objective") == machine("dnrws", "objective")
    assert machine("rws", "metric") == set()
    assert machine("nrws", "metric") - machine("dnrws", "metric") == {"solver", "iterations"}
    assert machine("rws", "generation") == {"rate"}
    assert machine("nrws", "recognition") == {"rate", "damping", "refresh"}
    assert section("metric", "mlp", "krylov") == {"data", "rows", "iterations"}
    assert section("optimizer", "mlp", "hessian-free") == {"learning_rate"}
    assert section("model", "convnet", "plain") - section("model", "mlp", "plain") == {
        "filters",
        "filter_width",
    }


def test_settings_come_over_the_file_and_the_file_over_defaults(tmp_path):
    (tmp_path / "c.toml").write_text("seed = 3\n[model]\nlayers = [4]\n[training]\nepochs = 9\n")
    got = config.resolve({"epochs": 2, "model.bias": 0.5}, tmp_path / "c.toml")
    assert (got.seed, got.model.layers, got.training.epochs, got.model.bias) == (3, (4,), 2, 0.5)


def test_the_kind_of_a_file_decides_its_defaults(tmp_path):
    (tmp_path / "c.toml").write_text('model.kind = "autoencoder"\n')
    got = config.resolve({}, tmp_path / "c.toml")
    assert (got.method, got.model.layers, got.model.output) == ("natural", (200, 30), "sigmoid")
    assert (got.training.epochs, got.data.binarize) == (20, "gray")


def test_paths_are_data_names():
    assert config.resolve({"data": Path("a") / "b.npy"}).data.name == "a/b.npy"


@pytest.mark.parametrize("name", ["sgd", *sections.RATES])
def test_adaptive_optimizers_start_at_smaller_rates_unless_told(name):
    rate = config.resolve({"optimizer": name, "method": "rws"}).optimizer.learning_rate
    assert rate == sections.RATES.get(name, 0.1)
    assert config.resolve({"optimizer": name, "learning_rate": 0.3}).optimizer.learning_rate == 0.3


def test_plain_methods_bear_a_larger_rate_than_natural_ones():
    rates = {name: config.resolve({"method": name}).optimizer.learning_rate for name in ("rws", "nrws")}
    assert rates["rws"] == 0.1 > rates["nrws"]
    assert config.resolve({"method": "rws", "learning_rate": 0.3}).optimizer.learning_rate == 0.3


def test_settings_of_one_kind_import_neither_jax_nor_other_kinds():
    code = (
        "import sys; from natgrad import config; config.resolve({}); "
        "print([name for name in sys.modules if name.startswith(('jax', 'natgrad.models.network', 'numpy'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_new_kind_needs_nothing_but_its_spec(coin, tmp_path):
    whole = config.resolve({"model": "coin", "sides": 3, "metal": "gold"})
    assert (whole.method, whole.model.sides, whole.model.metal) == ("count", 3, "gold")
    assert whole.training.epochs == 100
    (tmp_path / "c.toml").write_text(annotated(whole))
    assert config.resolve({}, tmp_path / "c.toml") == whole
    assert "# weight =  # not set: weighed; takes number" in annotated(whole)
    with pytest.raises(
        InputError, match=r"model.layers is not a setting of the method count of coin, but of model"
    ):
        config.resolve({"model": "coin", "layers": (3,)})
    with pytest.raises(InputError, match=r"unknown setting 'side'; did you mean .*'sides'"):
        config.resolve({"model": "coin", "side": 3})
    with pytest.raises(InputError, match=r"model.sides is not a setting of .* but of models of kind coin"):
        config.resolve({"sides": 3})
    with pytest.raises(InputError, match=r"optimizer.name is not a setting of the method guess of coin"):
        config.resolve({"model": "coin", "method": "guess", "optimizer": "adam"})
    assert "model.faces" in names.depths()
    assert "| `model.sides` | `--sides` | 2 |" in settings_page.settings_markdown()


def test_the_page_of_settings_is_what_is_generated():
    page = Path(__file__).parents[1] / "docs/settings.md"
    assert page.read_text("utf-8") == settings_page.settings_markdown(), (
        "python -m natgrad.cli.settings_page > docs/settings.md"
    )


def test_the_page_names_every_setting_once_for_each_reader():
    tables = [line for line in settings_page.settings_markdown().splitlines() if line.startswith("| `")]
    for name in {name for kind, method in EVERY for name in fields_of(kind, method)}:
        assert any(line.startswith(f"| `{name}` |") for line in tables), name
    assert len([line for line in tables if line.startswith("| `training.epochs` |")]) == 1


UNREAD = [
    (
        {"method": "rws", "damping": 0.1},
        "metric.damping is not a setting of the method rws of helmholtz, but of",
    ),
    ({"method": "rws", "refresh": 2}, "metric.refresh is not .* but of the methods nrws, nws, dnrws, nbihm$"),
    ({"method": "rws", "metric.kl_radius": 0.1}, "metric.kl_radius is not a setting of the method rws"),
    ({"method": "ws", "objective.baseline": True}, "objective.baseline is not a setting of the method ws of"),
    ({"method": "dnrws", "solver": "direct"}, "metric.solver is not .* of the methods nrws, nws, nbihm$"),
    (
        {"method": "bihm", "objective.sleeps": 2},
        "objective.sleeps is not .* but of .*; the nearest that it has is objective.samples$",
    ),
    (
        {"optimizer": "adam", "metric.kl_radius": 0.1},
        "KL radius decides its own steps, got the optimizer adam; use",
    ),
    (
        {"optimizer.weight_decay": 0.1, "metric.kl_radius": 0.1},
        "KL radius decides its own steps, got weight decay 0.1; use sgd without weight decay, or",
    ),
    (
        {"optimizer.weight_decay": 0.1, "metric.renewal_kl": 0.1},
        "adds up the divergence of natural steps, got weight decay 0.1, which",
    ),
    (
        {"optimizer": "adam", "metric.adaptive": True},
        "adaptive damping .* decides its own steps, got .* adam; use sgd",
    ),
    (
        {"metric.average": 0.9, "solver": "cg"},
        "metric.average needs a solver that keeps a matrix, auto, direct, diag",
    ),
    (
        {"optimizer.hold_steps": 3},
        "optimizer.hold_steps is for the schedule inverse-time, got the schedule constant",
    ),
    (
        {"optimizer.decay_time": 3.0, "optimizer.schedule": "cosine"},
        "decay_time is for .*, got the schedule cosine",
    ),
    ({"labeled": 5}, "data.labeled is not .* helmholtz, but of models of kind mlp, convnet, autoencoder$"),
    (
        {"solver": "minres"},
        "metric.solver: expected auto or direct .* got minres, which is for models of kind mlp",
    ),
    ({"data.binarize": "real"}, "data.binarize: expected round or resample .* got real, which is for models"),
    (
        {"data.binarize": "gray"},
        "data.binarize: expected round or resample .* got gray, which is for models of kind",
    ),
    (
        {"metric.generation": "reference"},
        "unknown metric.generation 'reference'; known are dreams, none, wake",
    ),
    (
        {"objective.sleep_rate": 0.5},
        r"unknown setting 'objective.sleep_rate'; did you mean 'objective.sleep_share'",
    ),
    ({"training.chunk": 5}, r"unknown setting 'training.chunk'; did you mean 'training.chunk_steps'"),
    (
        {"method": "rws", "metric.dampin": 1},
        "unknown setting 'metric.dampin'; the nearest is metric.damping, not one",
    ),
    (
        {"method": "rws", "metric": {}},
        "metric is not a setting of the method rws of helmholtz, but of the methods",
    ),
    (
        {"model": "mlp", "method": "nrws"},
        "nrws does not train a model of kind mlp; its methods are natural, hessian",
    ),
    (
        {"method": "tonga"},
        "the method tonga does not train a model of kind helmholtz; its methods are nrws, ws",
    ),
    (
        {"model": "convnet", "method": "units"},
        "units does not train a model of kind convnet; its methods are natural",
    ),
    (
        {"model": "mlp", "samples": 3},
        "objective.samples is not a setting of the method natural of mlp, but of models",
    ),
    (
        {"model": "mlp", "method": "plain", "metric_data": "same"},
        "metric.data is not a setting of the method plain",
    ),
    (
        {"model": "mlp", "method": "tonga", "metric_data": "both"},
        "metric.data: expected same or different for .* tonga of mlp, got both, which is for the methods",
    ),
    (
        {"model": "mlp", "method": "units", "metric.adaptive": True},
        "metric.adaptive is not .* methods natural, tonga, kfac$",
    ),
    (
        {"model": "mlp", "method": "units", "solver": "minres"},
        "metric.solver: expected auto or cg or diagonal for",
    ),
    (
        {"model": "mlp", "method": "krylov", "optimizer": "adam"},
        "optimizer.name is not a setting of the method krylov",
    ),
    (
        {"model": "mlp", "method": "krylov", "damping": 0.1},
        "metric.damping is not a setting of the method krylov of",
    ),
    (
        {"model": "mlp", "metric.kl_radius": 0.1, "optimizer": "adam"},
        "KL radius decides its own steps, got the opt",
    ),
    (
        {"model": "mlp", "method": "hessian-free", "optimizer.schedule": "cosine"},
        "optimizer.schedule is not a setting of the method hessian-free of mlp, but of the methods natural",
    ),
    (
        {"model": "mlp", "filters": (3,)},
        "model.filters is not .* natural of mlp, but of models of kind convnet",
    ),
    (
        {"model": "mlp", "model.beta": 2.0},
        "model.beta is the deviation of a linear output, got the output softmax",
    ),
    (
        {"model": "autoencoder", "output": "softmax"},
        "model.output: expected sigmoid or linear .* got softmax, which is",
    ),
    ({"model": "mlpp"}, r"unknown model 'mlpp'; did you mean 'mlp'\?"),
]


@pytest.mark.parametrize(("settings", "match"), UNREAD, ids=[str(case[0]) for case in UNREAD])
def test_what_nobody_would_read_is_refused(settings, match):
    with pytest.raises(InputError, match=match) as caught:
        config.resolve(settings)
    assert "\n" not in str(caught.value)


ALLOWED = [
    {"metric.average": 0.9, "solver": "diagonal"},
    {"metric.average": 0.9, "method": "dnrws"},
    {"metric.kl_radius": 0.1, "solver": "shared"},
    {"optimizer.schedule": "inverse-time", "optimizer.hold_steps": 3},
    {"model": "mlp", "output": "linear", "model.beta": 2.0},
    {"model": "mlp", "method": "units", "optimizer": "adam", "metric_data": "both"},
    {"model": "convnet", "method": "tonga", "solver": "minres", "metric.rows_at_once": 5},
]


@pytest.mark.parametrize("settings", ALLOWED, ids=str)
def test_what_goes_together_is_accepted(settings):
    assert config.resolve(settings)


MISTAKES = [
    ({"method": "rsw"}, r"unknown method 'rsw'; did you mean 'rws'\? \(known: .*rws, ws\)"),
    ({"method": "zzzz"}, r"unknown method 'zzzz'; known are .*rws, ws$"),
    ({"optimizer": "adm"}, r"unknown optimizer 'adm'; did you mean 'adam'\?"),
    ({"optimizer": [1, 2]}, r"unknown optimizer '\[1, 2\]'; known are adam, "),
    ({"optimizer.schedule": "cosin"}, r"unknown optimizer.schedule 'cosin'; did you mean 'cosine'\?"),
    ({"coding": "sign"}, r"unknown model.coding 'sign'; did you mean 'signed'\?"),
    ({"data.binarize": "rond"}, r"unknown data.binarize 'rond'; did you mean 'round'\?"),
    ({"device": "cqu"}, r"unknown training.device 'cqu'; did you mean 'cpu'\?"),
    ({"format": 2}, "unknown format '2'; known are 4"),
    ({"learning_rat": 1}, "unknown setting 'learning_rat'; did you mean 'learning_rate'"),
    ({"optimizer.schedul": 1}, "unknown setting 'optimizer.schedul'; did you mean 'optimizer.schedule'"),
    ({"modell.layers": 1}, "unknown setting 'modell.layers'; did you mean 'model.layers'"),
    ({"wake_share": 1}, r"unknown setting 'wake_share'; did you mean 'objective.wake_share'"),
    ({"qqqqqq": 1}, "unknown setting 'qqqqqq'; known are batch_size, coding, damping, "),
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
    (
        {"optimizer.momentum": 0.5},
        "^optimizer.momentum is the decay of an optimizer's averages, got the optimizer sgd, which has none; "
        "leave it out, or use --optimizer momentum$",
    ),
    (
        {"model": "mlp", "method": "hessian-free", "training.schedule_steps": 5},
        "^training.schedule_steps is the length of schedules that have an end, got it for settings that "
        "follow none; leave it out, or give training.epochs$",
    ),
    (
        {"optimizer.schedule": "inverse-time", "training.schedule_steps": 5},
        "follow none; leave it out, or give optimizer.schedule$",
    ),
    (
        {"optimizer.final_fraction": 0.5},
        "^optimizer.final_fraction is for schedules that have an end, got the schedule constant; leave it "
        "out, or give optimizer.schedule$",
    ),
    (
        {"model": "rbm", "optimizer.schedule": "inverse-time", "optimizer.final_fraction": 0.01},
        "^optimizer.final_fraction is for schedules that have an end, got the schedule inverse-time; leave",
    ),
    ({"training.schedule_steps": 5}, "follow none; leave it out, or give optimizer.schedule$"),
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
