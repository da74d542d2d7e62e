"""The command line: exit codes, one sentence or one JSON line, and nothing half-written left."""

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from natgrad.cli import commands
from natgrad.cli.main import main
from natgrad.models import registry

QUICK = [
    "--method",
    "rws",
    "--layers",
    "3,2",
    "--batch-size",
    "8",
    "--samples",
    "3",
    "--epochs",
    "2",
    "--seed",
    "0",
]
START = "import sys; from natgrad.cli.main import main; main(sys.argv[1:])"


def fresh_process(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", START, *map(str, arguments)], capture_output=True, text=True, **options
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def data(place):
    np.save(place / "own.npy", np.random.default_rng(0).integers(0, 2, (50, 6)).astype(np.uint8))
    return place / "own.npy"


@pytest.fixture(scope="module")
def trained(place, data):
    """One training in a process of its own, as a user starts it."""
    return fresh_process("train", "--data", data, *QUICK, "--out", place / "run", "--json", check=True)


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Call the command here, in an empty folder; returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        return stopped.value.code, *capsys.readouterr()

    return run


def fails(call, *arguments, code=2):
    """The one sentence of a mistake, the same for people and for machines."""
    got, out, err = call(*arguments)
    assert (got, out) == (code, "")
    assert err.startswith("natgrad: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    got, out, _ = call(*arguments, "--json")
    assert got == code
    assert out.count("\n") == 1
    assert json.loads(out) == {"error": err.removeprefix("natgrad: ").rstrip("\n")}
    assert list(Path().iterdir()) == []
    return err


def test_training_ends_with_one_json_line(trained, place, data):
    assert trained.stdout.count("\n") == 1
    result = json.loads(trained.stdout)
    promised = {"run", "method", "data", "epochs", "steps", "train_seconds"}
    promised |= {"train_loss", "valid_loss", "test_ll", "test_ll_se"}
    assert promised <= set(result)
    assert (result["run"], result["data"]) == (str(place / "run"), str(data))
    assert (result["epochs"], result["steps"]) == (2, 10)
    assert "epoch    2  train loss" in trained.stderr
    assert sorted(path.name for path in (place / "run").iterdir()) == [
        "config.toml",
        "environment.json",
        "gallery",
        "samples.png",
        "state",
        "trace.jsonl",
    ]


@pytest.mark.slow
def test_a_fresh_process_repeats_a_run_bit_for_bit(trained, place):
    again = fresh_process("train", place / "run" / "config.toml", "--out", place / "again", "--quiet")
    assert (again.returncode, again.stderr) == (0, "")
    traces = [
        [
            {key: value for key, value in json.loads(line).items() if not key.endswith("seconds")}
            for line in (place / name / "trace.jsonl").read_text().splitlines()
        ]
        for name in ("run", "again")
    ]
    assert traces[0] == traces[1]
    names = sorted(path.name for path in (place / "run" / "state").glob("*.safetensors"))
    assert len(names) == 2
    for name in names:
        one, other = ((place / run / "state" / name).read_bytes() for run in ("run", "again"))
        assert one == other


def test_evaluating_and_sampling_a_run(call, trained, place):
    with jax.enable_x64(False):  # as the run was trained
        code, out, _ = call("evaluate", place / "run", "--samples", 50, "--json")
        assert (code, out.count("\n")) == (0, 1)
        result = json.loads(out)
        assert {"test_ll", "test_ll_se", "samples"} <= set(result)
        assert result["samples"] == 50
        code, out, _ = call("sample", place / "run", "--number", 4, "--out", place / "s.png")
    assert (code, "s.png" in out) == (0, True)
    assert (place / "s.png").stat().st_size > 1000


def test_help_is_quick_and_imports_no_jax():
    code = f"import sys\ntry:\n    {START}\nfinally:\n    print('jax' in sys.modules, file=sys.stderr)"
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "False"
    assert time.perf_counter() - began < 10
    assert all(word in done.stdout for word in ("train", "evaluate", "sample", "data"))


@pytest.mark.parametrize(
    "line",
    [
        "train --dry-run --model convnet",
        *(
            pytest.param(line, marks=pytest.mark.slow)
            for line in ("train --help", "train --model mlp --help", "evaluate --help")
        ),
    ],
)
def test_what_only_tells_imports_no_jax(line):
    code = f"import sys\ntry:\n    {START}\nfinally:\n    print('jax' in sys.modules, file=sys.stderr)"
    words = [sys.executable, "-c", code, *line.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "False"
    assert done.stdout


def test_a_training_looks_only_at_its_own_kind_and_method():
    """Settings of other kinds are not imported, those of other methods not composed."""
    code = (
        "import sys\nfrom natgrad.cli import commands, main\n"
        "seen = lambda settings, *rest, **others: print(settings.method)\n"
        "commands._show_config = seen\n"
        "try:\n    main.main(['train', '--method', 'nrws', '--layers', '3', '--quiet', '--dry-run'])\n"
        "except SystemExit:\n    pass\n"
        "from natgrad.models.helmholtz.spec import SPEC\n"
        "print('natgrad.models.network.spec' in sys.modules, len(SPEC.settings.composed))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["nrws", "False 1"]


def test_help_of_train_groups_flags_by_kind(call):
    code, out, _ = call("train", "--help")
    common, machine, network = (out.index(title) for title in HEADINGS)
    assert code == 0
    assert common < machine < network
    assert common < out.index("--batch-size") < machine < out.index("--samples") < network
    assert machine < out.index("--coding") < network < out.index("--labeled")
    assert (out.count("--layers"), out.count("--damping")) == (3, 4)  # the kinds that have them


HEADINGS = ("─ Settings ─", "─ Settings of helmholtz ─", "─ Settings of mlp, convnet, autoencoder ─")


def test_help_of_one_kind_shows_its_flags_alone(call):
    _, out, _ = call("train", "--model", "convnet", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert "─ Settings of convnet ─" in out
    assert "--coding" not in text
    assert "--filters Filters of each bank. [list of whole numbers > 0] [default: 8,16]" in text
    assert "[tanh | sigmoid | relu] [default: tanh]" in text
    assert "--epochs Passes over the training rows. [whole number >= 0] [default: 20]" in text
    _, out, _ = call("train", "--model", "convnet", "--method", "hessian-free", "--help")
    assert "--optimizer" not in out
    assert "--method natural" not in out
    _, out, _ = call("train", "--method", "rws", "--help")
    assert "--damping" not in out
    assert "--samples" in out


def test_a_new_kind_has_flags_help_and_commands(call, monkeypatch):
    monkeypatch.setitem(registry.FOLDERS, "coin", "coin_kind:SPEC")
    code, out, _ = call("train", "--model", "coin", "--sides", "3", "--faces", "7", "--dry-run")
    assert (code, "sides = 3  # whole number > 0" in out, "faces = [7]  # list of" in out) == (0, True, True)
    Path("run").mkdir()
    Path("run/config.toml").write_text(out)
    _, out, _ = call("train", "--help")
    assert "─ Settings of coin ─" in out
    assert "--metal" in out
    _, out, _ = call("--help")
    assert "Toss the coin of a run." in out
    code, out, _ = call("toss", "run", "--times", "2", "--json")
    expected = {"run": "run", "times": 2, "tosses": [{"toss": 0, "side": 1}, {"toss": 1, "side": 1}]}
    assert (code, json.loads(out)) == (0, expected)
    code, out, _ = call("toss", "run", "--times", "2")
    assert [" ".join(line.split()) for line in out.splitlines()[-3:]] == ["toss side", "0 1", "1 1"]
    code, _, err = call("evaluate", "run")
    assert (code, err) == (
        2,
        "natgrad: a model of kind coin has no command evaluate; its only command is toss\n",
    )
    code, _, err = call("toss", "run", "--times", "2.5")
    assert "--times: expected a whole number, got '2.5'" in err
    _, out, _ = call("toss", "--help")
    assert "Runs of coin:" in out
    assert "How often." in out


def test_help_of_a_command_is_that_of_every_kind_or_of_the_one_of_a_run(call):
    _, out, _ = call("evaluate", "--help")
    assert (
        out.index("Runs of helmholtz:")
        < out.index("--memory-mb")
        < out.index("Runs of mlp, convnet, autoencoder:")
    )
    _, out, _ = call("evaluate", "--model", "mlp", "--help")
    assert "--memory-mb" not in out
    _, out, _ = call("train", "--model", "mlp", "--dry-run")
    Path("run").mkdir()
    Path("run/config.toml").write_text(out)
    _, out, _ = call("evaluate", "run", "--help")
    assert "--memory-mb" not in out
    assert "held-out rows" in " ".join(out.split())


def test_values_of_flags_are_of_the_type_of_their_setting(call):
    line = ("train", "--data", "2024-01-01", "--layers", "7", "--image-shape", "2,3", "--dry-run", "--json")
    settings = json.loads(call(*line)[1])
    assert (settings["data"]["name"], settings["data"]["image_shape"]) == ("2024-01-01", [2, 3])
    assert settings["model"]["layers"] == [7]


def test_help_of_train_names_the_everyday_flags(call):
    code, out, _ = call("train", "--help")
    assert code == 0
    for flag in (
        "--method",
        "--data",
        "--layers",
        "--learning-rate",
        "--seed",
        "--out",
        "--json",
        "--dry-run",
    ):
        assert flag in out


@pytest.mark.slow
def test_an_interrupt_exits_with_130(tmp_path, data):
    """Ctrl-C in the middle of a long training: the records so far stay."""
    long = [
        "--method",
        "rws",
        "--layers",
        "3",
        "--batch-size",
        "8",
        "--epochs",
        "10000000",
        "--evaluation.every",
        "10000000",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", START, "train", "--data", data, "--out", tmp_path / "run", *long],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(tmp_path / "run" / "trace.jsonl")
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert err.endswith(f"; continue with `natgrad resume {tmp_path / 'run'}`\n")
    assert "natgrad: interrupted and saved at step " in err
    assert "Traceback" not in err
    assert list((tmp_path / "run" / "state").glob("*.json"))


def wait_for(path, seconds=120):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} was not written"
        time.sleep(0.2)


def test_a_dry_run_prints_the_config_and_writes_nothing(call):
    code, out, _ = call("train", "--dry-run", "--layers", "5,4", "--objective.baseline", "false")
    assert code == 0
    Path("c.toml").write_text(out)
    code, out, _ = call("train", "c.toml", "--dry-run", "--json", "--seed", "3")
    settings = json.loads(out)
    assert (code, settings["seed"]) == (0, 3)
    assert (settings["model"]["layers"], settings["objective"]["baseline"]) == ([5, 4], False)
    assert [path.name for path in Path().iterdir()] == ["c.toml"]


def test_listing_data(call):
    code, out, _ = call("data", "list", "--json")
    assert code == 0
    assert {"digits", "3by3", "mini-mnist"} <= {entry["name"] for entry in json.loads(out)["sets"]}
    code, out, _ = call("data", "check", "3by3", "--json")
    assert json.loads(out)["ok"] is True
    code, out, _ = call("data", "list")
    assert (code, "binarized-mnist" in out) == (0, True)


def test_version(call):
    code, out, _ = call("--version")
    assert (code, out) == (0, "0.1.0\n")


MISTAKES = [
    ("train --method rsw", "unknown method 'rsw'; did you mean 'rws'?"),
    ("train --data mnits", "unknown data set 'mnits'; did you mean 'mnist'"),
    ("train --data digit", "unknown data set 'digit'; did you mean 'digits'?"),
    ("train --learning-rate -1", "optimizer.learning_rate: expected a number greater than 0, got -1"),
    ("train --learning-rate nan", "optimizer.learning_rate: expected a finite number, got nan"),
    ("train --learning-rate x", "optimizer.learning_rate: expected a number, got 'x'"),
    ("train --samples 0", "objective.samples: expected a number greater than 0, got 0"),
    ("train --samples 1.5", "objective.samples: expected a whole number, got 1.5"),
    ("train --epochs -1", "training.epochs: expected a number greater than or equal to 0, got -1"),
    ("train --batch-size 0", "training.batch_size: expected a number greater than 0, got 0"),
    (
        "train --data 3by3 --batch-size 15001",
        "batch size 15001 is larger than the training set of 15000 rows",
    ),
    ("train --data 3by3 --image-shape 2,2", "expected an image shape of 9 pixels, got 2x2"),
    ("train --layers 10,x", "model.layers: expected a list of whole numbers, got '10,x'"),
    ("train --layers 4.5", "model.layers: expected a whole number, got 4.5"),
    ("train --device tpu --data 3by3", "no tpu found here, only cpu; use --device auto"),
    ("train --optimizer.schedul cosine", "'optimizer.schedul'; did you mean 'optimizer.schedule'"),
    ("train --wake-shar 1", "Unknown option: --wake-shar"),
    ("train --epoch 1", "Unknown option: --epoch. Did you mean --epochs? Try `natgrad train --help`."),
    ("evalute runs", 'Unknown command "evalute". Did you mean "evaluate"?'),
    (
        "train --method rws --damping 0.1",
        "metric.damping is not a setting of the method rws of helmholtz, but of",
    ),
    ("train --method rws --refresh 2", "metric.refresh is not a setting of the method rws of helmholtz"),
    ("train --method rws --metric.kl_radius 0.1", "metric.kl_radius is not a setting of the method rws"),
    ("train --method ws --objective.baseline true", "objective.baseline is not a setting of the method ws"),
    ("train --method dnrws --solver direct", "metric.solver is not a setting of the method dnrws"),
    ("train --method bihm --objective.sleeps 2", "objective.sleeps is not a setting of the method bihm"),
    ("train --optimizer adam --metric.kl_radius 0.1", "decides its own steps, got the optimizer adam"),
    ("train --optimizer adam --metric.adaptive true", "decides its own steps, got the optimizer adam"),
    ("train --metric.average 0.9 --solver cg", "metric.average needs a solver that keeps a matrix"),
    ("train --model mlp --samples 3", "objective.samples is not a setting of the method natural of mlp"),
    (
        "train --labeled 3",
        "data.labeled is not a setting of the method nrws of helmholtz, but of models of kind mlp",
    ),
    ("train --model mlpp --help", "unknown model 'mlpp'; did you mean 'mlp'?"),
    ("train --seed --quiet", "--seed needs a value; write --seed VALUE"),
    ("sample --model mlp none", "a model of kind mlp has no command sample; its only command is evaluate"),
    (
        "fisher none --model autoencoder",
        "a model of kind autoencoder has no command fisher; its only command is evaluate",
    ),
    ("evaluate --model mlpp none", "unknown model 'mlpp'; did you mean 'mlp'?"),
    ("train none.toml", "cannot read the config file none.toml: No such file or directory"),
    ("train one two", "Unused Tokens: ['two']"),
    ("evaluate none", "none is not a run folder (it has no config.toml)"),
    ("sample none", "none is not a run folder (it has no config.toml)"),
    ("evaluate", "requires an argument"),
    ("evaluate --samples 2 none", "none is not a run folder (it has no config.toml)"),
    ("evaluate none --model helmholtz --samples 2.5", "--samples: expected a whole number, got '2.5'"),
    (
        "evaluate none --model mlp --samples 2",
        "--samples of evaluate is for runs of helmholtz, vae, and this is not one of them. Try `natgrad",
    ),
    ("evaluate none --model mlp --bogus 2", "Unknown option: --bogus"),
    ("resume none --learning-rate 2", "resume takes no settings of a training, got --learning-rate; leave"),
    (
        "train --metric.generation none --metric.recognition none",
        "the method nrws measures one network at least, got metric.generation none and metric.recognition "
        "none; leave one of them out, or use --method rws",
    ),
    (
        "train --objective.wake_share 0 --objective.sleep_share 0",
        "got shares of 0; give objective.sleep_share",
    ),
    ("train --method ws --objective.sleep_share 0", "recognition learns from dreams"),
    ("data get mnits", "unknown data set 'mnits'; did you mean 'mnist'"),
    ("data check zzzzzz", "unknown data set 'zzzzzz'; known are 3by3, "),
    ("frobnicate --nonsense.key 5", 'Unknown command "frobnicate"'),
    ("frobnicate", 'Unknown command "frobnicate"'),
]


@pytest.mark.parametrize(("line", "sentence"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_mistakes_are_one_sentence_and_leave_nothing(call, line, sentence):
    assert sentence in fails(call, *line.split())


@pytest.mark.parametrize("text", ["seeds = [0, 1]", 'method = ["rws", "nrws"]', "[sweep]\nseeds = [0]"])
def test_the_file_of_a_sweep_is_known(call, tmp_path_factory, text):
    file = tmp_path_factory.mktemp("elsewhere") / "s.toml"
    file.write_text(text)
    assert fails(call, "train", str(file)).startswith(
        f"natgrad: {file} is the file of a sweep; write natgrad sweep"
    )


WITHOUT_SETTINGS = [
    *("data list", "data check 3by3", "data", "relax flow", "runs", "resume r", "report r", "fisher r"),
    *("evaluate r", "sample r", "--version"),
]


@pytest.mark.parametrize("line", WITHOUT_SETTINGS)
def test_commands_without_settings_refuse_them(call, line):
    words = line.removesuffix(" 3by3").removesuffix(" r")
    err = fails(call, *line.split(), "--odd.key", "5", "--s.b=1")
    assert err == f"natgrad: {words} takes no settings of a training, got odd.key, s.b; leave them out\n"


def test_settings_without_a_command_are_a_mistake(call):
    assert "expected a command before nonsense.key" in fails(call, "--nonsense.key", "5")


def test_a_dotted_flag_without_a_value(call):
    code, _, err = call("train", "--optimizer.momentum")
    assert (code, err) == (
        2,
        "natgrad: --optimizer.momentum needs a value; write --optimizer.momentum VALUE\n",
    )


def idx_gz(shape, count):
    header = b"\0\0\x08" + bytes([len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    return gzip.compress(header + bytes(count), mtime=0)


def npz_bytes(folder):
    np.savez(folder / "whole.npz", x=np.zeros((20, 4)))
    return (folder / "whole.npz").read_bytes()


FILES = {
    "nan.npy": (np.full((20, 4), np.nan), "expected finite numbers in 'rows' of"),
    "large.npy": (np.full((20, 4), 2.5), "expected values in [0, 1], bytes 0..255"),
    "negative.npy": (np.full((20, 4), -0.5), "got -0.5 to -0.5; rescale them"),
    "flat.npy": (np.zeros(5), "got the shape (5,); reshape it"),
    "empty.npy": (np.zeros((0, 4)), "holds none; give a file with rows"),
    "text.npy": (b"hello", "has a damaged header"),
    "empty.csv": (b"", "give a set that is not empty"),
    "text.csv": (b"0,1\n0,x\n", "expected numbers separated by commas"),
    "cut.npz": (None, "cannot be unpacked"),
    "rows.txt": (b"0 1", "expected a file ending in .npy, .npz or .csv"),
}


@pytest.mark.parametrize("name", FILES)
def test_data_that_cannot_be_used(call, place, name):
    content, sentence = FILES[name]
    if isinstance(content, np.ndarray):
        np.save(place / name, content)
    else:
        (place / name).write_bytes(npz_bytes(place)[:300] if content is None else content)
    assert sentence in fails(call, "train", "--data", place / name, *QUICK)


def test_corrupt_published_files(call, place, monkeypatch):
    """Damaged IDX files below NATGRAD_DATA are found out before anything is trained on them."""
    for name in ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz"):
        path = place / "published" / "mnist" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(idx_gz((10, 28, 28), 28 * 28))
    monkeypatch.setenv("NATGRAD_DATA", str(place / "published"))
    err = fails(call, "train", "--data", "mnist", *QUICK)
    assert "expected the sha256" in err or "was not found" in err


def test_output_folders_that_cannot_be_used(call, place, data):
    (place / "file").write_text("x")
    (place / "full").mkdir()
    (place / "full" / "x").write_text("x")
    start = ["train", "--data", data, *QUICK, "--out"]
    assert "is not empty; give another --out or remove it" in fails(call, *start, place / "full")
    for folder in (place / "file", place / "file" / "run", "/proc/natgrad/run"):
        assert "cannot write the run to" in fails(call, *start, folder)
    assert [path.name for path in (place / "full").iterdir()] == ["x"]


def test_runs_that_cannot_be_measured(call, trained, place):
    run = place / "run"
    with jax.enable_x64(False):  # as the run was trained
        assert "samples: expected at least 1, got 0" in fails(call, "evaluate", run, "--samples", "0")
        assert "rows: expected at least 0" in fails(call, "evaluate", run, "--rows", "-1")
        assert "memory_mb: expected a number greater" in fails(call, "evaluate", run, "--memory-mb", "0")
        assert "number: expected at least 1, got 0" in fails(call, "sample", run, "--number", "0")
        assert "cannot write the picture" in fails(call, "sample", run, "--out", "none/s.png")
    assert "holds float32 where float64 is used now" in fails(call, "evaluate", run)


def test_damaged_states_are_said(call, trained, place):
    broken = place / "broken"
    broken.mkdir()
    for name in ("config.toml", "trace.jsonl"):
        (broken / name).write_bytes((place / "run" / name).read_bytes())
    assert "holds no readable state; train it again" in fails(call, "evaluate", broken)
    (broken / "state").mkdir()
    for path in (place / "run" / "state").iterdir():
        (broken / "state" / path.name).write_bytes(path.read_bytes()[:-2])
    assert "holds no readable state; train it again" in fails(call, "evaluate", broken)
    assert "holds no readable state; train it again" in fails(call, "sample", broken)


def test_anything_else_is_exit_code_one_with_its_traceback(call, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr(commands, "resolve", broken)
    code, out, err = call("train", "--json")
    assert code == 1
    assert json.loads(out) == {"error": "RuntimeError: a bug"}
    assert "Traceback" in err


def test_a_reader_that_goes_away_ends_it_silently(place):
    """`natgrad data list --json | true`."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, "data", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")  # as if SIGPIPE had ended it, like other tools
