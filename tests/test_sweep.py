"""Sweeps: what a file expands to, what is found wrong before anything runs, what is resumed and compared."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sweeps
from natgrad import config
from natgrad.cli.main import main
from natgrad.errors import InputError
from natgrad.records.folder import locked
from natgrad.sweep import plan as plans
from natgrad.sweep import sweep, worker
from natgrad.sweep.choice import deciding_row
from natgrad.sweep.search import SettingSearch
from natgrad.sweep.table import markdown
from sweeps import BASE, DATA, grid

file, fake = sweeps.file, sweeps.fake  # fixtures


def read(file, text, base=BASE):
    return plans.read_plan(file(DATA + text, base), {})


def settings_of(plan):
    return [candidate.setting for candidate in plan.candidates]


def test_lists_expand_to_a_grid(file):
    plan = read(file, "[model]\nlayers = [[3], [4, 2]]\n[optimizer]\nlearning_rate = [0.1, 0.2, 0.3]\n")
    got = [(each["model.layers"], each["optimizer.learning_rate"]) for each in settings_of(plan)]
    assert got == [(layers, rate) for layers in ([3], [4, 2]) for rate in (0.1, 0.2, 0.3)]
    assert plan.section.seeds == (0,)


def test_a_list_of_sizes_is_one_value(file):
    plan = read(file, "[model]\nlayers = [4, 2]\n[objective]\ngrowth = [[1, 20], [2, 30]]\n")
    assert [plans.resolved(each, 0).model.layers for each in settings_of(plan)] == [(4, 2)]
    plan = read(file, "[objective]\ngrowth = [[], [[1, 20]]]\n")
    assert [plans.resolved(each, 0).objective.growth for each in settings_of(plan)] == [(), ((1, 20),)]


@pytest.mark.parametrize("text", ["seeds = [3, 4]\n", "seed = [3, 4]\n", "[sweep]\nseeds = [3, 4]\n"])
def test_seeds_have_three_places(file, text):
    plan = read(file, "", base=text + BASE if "[" not in text.split("=")[0] else BASE + text)
    assert plan.section.seeds == (3, 4)
    assert len(plan.candidates) == 1


def test_variants_have_lists_of_their_own_and_defaults_by_method(file):
    variants = '[[sweep.variants]]\nmethod = "rws"\n[[sweep.variants]]\nmethod = "nrws"\n'
    variants += "metric.damping = [0.1, 0.2]\n"
    plan = read(file, variants, base="[training]\nbatch_size = 8\n")
    found = [plans.resolved(each, 0) for each in settings_of(plan)]
    assert [(each.method, hasattr(each, "metric")) for each in found] == [
        ("rws", False),
        ("nrws", True),
        ("nrws", True),
    ]
    assert [each.metric.damping for each in found[1:]] == [0.1, 0.2]
    assert [each.optimizer.learning_rate for each in found] == [0.1, 0.05, 0.05]


def test_equal_settings_are_one_and_flags_come_last(file):
    assert len(read(file, "[optimizer]\nlearning_rate = [0.1, 0.1]\n").candidates) == 1
    path = file(DATA + "[optimizer]\nlearning_rate = [0.1, 0.3]\n")
    plan = plans.read_plan(path, {"optimizer.learning_rate": [0.5, 0.6, 0.7], "training.epochs": 9})
    assert [each["optimizer.learning_rate"] for each in settings_of(plan)] == [0.5, 0.6, 0.7]
    assert {plans.resolved(each, 0).training.epochs for each in settings_of(plan)} == {9}


def test_a_trial_s_name_is_a_function_of_its_settings():
    one, same = (config.resolve({"learning_rate": 0.1, "seed": 3, "data": "digits"}) for _ in range(2))
    other = config.resolve({"learning_rate": 0.2, "seed": 3})
    assert plans.name_of(one) == plans.name_of(same) != plans.name_of(other)
    assert plans.name_of(one).startswith("digits-nrws-")
    assert plans.name_of(one).endswith("-seed3")
    again = plans.name_of(config.resolve({"learning_rate": 0.1, "seed": 4}))
    assert again.rsplit("-", 1)[0] == plans.name_of(one).rsplit("-", 1)[0]


SEARCH = "[sweep]\ntrials = 3\n"

MISTAKES = [
    (
        "[optimizer]\nlearning_rate = [0.1, -1]\n",
        "optimizer.learning_rate: expected a number greater than 0, got -1",
    ),
    (
        "[optimizer]\nlearning_rat = [0.1]\n",
        "'optimizer.learning_rat'; did you mean 'optimizer.learning_rate'",
    ),
    (
        "[optimizer]\nlearning_rate = []\n",
        "optimizer.learning_rate: expected at least one value in its list, got none",
    ),
    (
        "[optimizer]\nlearning_rate = [[0.1, 0.2]]\n",
        "optimizer.learning_rate: expected a number, got [0.1, 0.2]",
    ),
    ("[optimizer]\nname = ['sgd', 'adma']\n", "unknown optimizer 'adma'; did you mean"),
    (
        "[model]\nlayers = [[3], 4]\n",
        "model.layers: expected a list of lists, got [[3], 4]; put every alternative",
    ),
    ("[model]\nlayers = [[3], ['x']]\n", "model.layers: expected a whole number, got 'x'"),
    ("[training]\nbatch_size = [8, 100]\n", "the batch size 100 is larger than the training set of 40 rows"),
    (
        "[optimizer]\nlearning_rate = {low = 0.1, high = 1}\n",
        "optimizer.learning_rate: a range needs a search",
    ),
    ("[sweep]\nseeds = []\n", "sweep.seeds: expected"),
    ("[sweep]\nseeds = [1.5]\n", "sweep.seeds: expected a valid integer"),
    ("[sweep]\nseeds = [-1]\n", "seed: expected a number greater than or equal to 0, got -1"),
    ("[sweep]\nobjective = 'test'\n", "sweep.objective: expected 'last' or 'best', got 'test'"),
    ("[sweep]\ntrails = 3\n", "unknown setting 'sweep.trails'; did you mean 'sweep.trials'?"),
    ("[sweep]\ntrials = 0\n", "sweep.trials: expected greater than 0, got 0"),
    (SEARCH, "sweep.trials: expected a range or a list of values to search, got none; give one"),
    (SEARCH + "variants = [{}, {}]\n", "sweep.variants: a search takes none"),
    (
        SEARCH + "[optimizer]\nlearning_rate = {low = 1, high = 0.1}\n",
        "expected a range with low < high, got 1 to 0.1",
    ),
    (
        SEARCH + "[optimizer]\nlearning_rate = {low = 0, high = 1, log = true}\n",
        "a range with 0 < low < high",
    ),
    (
        SEARCH + "[optimizer]\nlearning_rate = {low = 0, high = 1}\n",
        "learning_rate: expected a number greater than 0",
    ),
    (SEARCH + "[optimizer]\nlearning_rate = {lo = 0.1, high = 1}\n", "optimizer.learning_rate.low: expected"),
    (
        SEARCH + "[optimizer]\nlearning_rate = {low = 'a', high = 1}\n",
        "optimizer.learning_rate.low: expected a valid",
    ),
    (
        SEARCH + "[objective]\nsamples = {low = 1.5, high = 3.5}\n",
        "objective.samples: expected a whole number, got 1.5",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_mistakes_are_found_before_anything_runs(file, capsys, text, sentence):
    base = BASE.split("[")[0] if "[training]" in text else BASE
    path = file(DATA + text, base)
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", str(path)])
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert sorted(place.name for place in Path().iterdir()) == ["own.npy", "s.toml"]


def test_other_mistakes_are_said(file, capsys):
    with pytest.raises(
        InputError, match=r"expected the seeds in one place, got them in seeds and sweep.seeds"
    ):
        read(file, "[sweep]\nseeds = [1]\n", base="seeds = [2]\n" + BASE)
    with pytest.raises(InputError, match="sweep: expected a section of settings, got 3"):
        read(file, "", base="sweep = 3\n" + BASE)
    with pytest.raises(InputError, match="unknown data set 'digist'"):
        sweep(file("[data]\nname = ['digits', 'digist']\n"))
    path = file(DATA)
    with pytest.raises(InputError, match="workers: expected at least 1, got 0"):
        sweep(path, workers=0)
    with pytest.raises(InputError, match=r"cannot write the sweep to own.npy/x"):
        sweep(path, out="own.npy/x")
    with pytest.raises(InputError, match=r"cannot read the config file none.toml"):
        sweep("none.toml")


def test_settings_are_compared_on_validation_means(file, fake):
    path = grid(file, [0.1, 0.3, 0.6], "[sweep]\nseeds = [0, 2]\nobjective = 'best'\n")
    lines = []
    found = sweep(path, workers=2, out="out", say=lines.append)
    rates = [record["setting"]["optimizer.learning_rate"] for record in found["settings"]]
    assert rates == [0.3, 0.1, 0.6]
    best = found["settings"][0]
    assert best["valid_ll"] == pytest.approx(0.01)
    assert best["valid_ll_sd"] == pytest.approx(np.std([0.0, 0.02], ddof=1))
    assert (best["seeds"], best["test_ll"], best["epoch"]) == (2, 0.3, 1)
    assert found["failed"] == {}
    assert len(lines) == 6
    assert json.loads(Path("out/table.json").read_text()) == found
    table = Path("out/table.md").read_text().splitlines()
    assert table[0] == "| optimizer.learning_rate | seeds | valid LL | test LL | epoch | seconds |"
    assert table[2] == "| 0.3 | 2 | 0.010 ±0.014 | 0.300 ±0.000 | 1 | 1.0 |"
    assert Path("out/sweep.png").read_bytes().startswith(b"\x89PNG")
    path.write_text(path.read_text().replace("objective = 'best'", "objective = 'last'"))
    last = sweep(path, out="out", compare_only=True)
    assert last["settings"][0]["valid_ll"] == pytest.approx(-0.99)


def test_a_failing_trial_does_not_stop_the_others(file, fake, capsys):
    path = grid(file, [0.9, 0.8, 0.1, 0.3])
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", str(path), "--workers", "1", "--out", "out", "--json"])
    out, err = capsys.readouterr()
    assert stopped.value.code == 1
    found = json.loads(out)
    assert sorted(found["failed"].values()) == [
        "it did not like it",
        "its process ended with code 9; see out/workers.log",
    ]
    assert [record["seeds"] for record in found["settings"]] == [1, 1, 0, 0]
    assert found["settings"][2]["valid_ll"] is None
    assert err.count("failed: ") == 2


def test_what_a_user_should_know_of_a_training_is_said_and_recorded(file, fake):
    said = []
    sweep(grid(file, [0.3, 0.7]), workers=1, out="out", say=said.append)
    assert ["warning: it hardly learns" in line for line in said] == [False, True]
    lines = map(json.loads, Path("out/trials.jsonl").read_text().splitlines())
    assert [line.get("warning") for line in lines] == [None, "it hardly learns"]


def test_a_trial_hands_on_the_warning_of_its_run(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "train_trial", lambda *given: {"warning": "it hardly learns"})
    found = worker.attempt({"folder": str(tmp_path), "config": {}})
    assert found == {"error": None, "warning": "it hardly learns"}


def test_finished_trials_are_skipped_and_others_tried_again(file, fake):
    path = grid(file, [0.1, 0.8])
    first, second = [], []
    sweep(path, workers=1, out="out", say=first.append)
    with Path("out/trials.jsonl").open("a") as stream:
        stream.write('{"trial": "cut o')
    sweep(path, workers=1, out="out", say=second.append)
    assert ["was finished" in line for line in first] == [False, False]
    assert ["was finished" in line for line in second] == [True, False]
    grid(file, [0.1, 0.2])  # a grid that has grown keeps what it has
    assert json.loads(Path("out/trials.jsonl").read_text().splitlines()[-1])["error"]  # a line of its own
    third = []
    sweep(path, workers=1, out="out", say=third.append)
    assert ["was finished" in line for line in third] == [True, False]


def test_two_sweeps_do_not_share_a_folder(file, fake):
    path = grid(file, [0.1])
    code = "import fcntl; f = open('out/trials.jsonl', 'a'); fcntl.flock(f, fcntl.LOCK_EX);"
    code += "print(1, flush=True); input()"
    Path("out").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with pytest.raises(
            InputError, match="another sweep is running in out; wait for it, or give another --out"
        ):
            sweep(path, out="out")
        other.communicate(b"\n")


def test_a_search_finds_the_best_setting_and_goes_on(file, fake):
    path = file(
        DATA + "[optimizer]\nlearning_rate = {low = 0.01, high = 0.7}\n"
        "[sweep]\nseeds = [0, 1]\ntrials = 4\nobjective = 'best'\n[model]\nlayers = [[3], [4, 2]]\n"
    )
    first = sweep(path, workers=1, out="out")
    assert len(first["settings"]) == 4
    assert all(len(record["runs"]) == 2 for record in first["settings"])
    rates = {record["setting"]["optimizer.learning_rate"] for record in first["settings"]}
    assert len(rates) == 4
    assert all(0.01 <= rate <= 0.7 for rate in rates)
    path.write_text(path.read_text().replace("trials = 4", "trials = 12"))
    lines = []
    longer = sweep(path, workers=1, out="out", say=lines.append)
    again = {record["setting"]["optimizer.learning_rate"] for record in longer["settings"]}
    assert rates < again
    assert len(longer["settings"]) == 12
    assert len(lines) == 16
    best = longer["settings"][0]["setting"]["optimizer.learning_rate"]
    assert best == min(again, key=lambda rate: abs(rate - 0.3))


def test_a_search_remembers_what_was_under_way(tmp_path):
    space = {"a": plans.Range(low=1, high=9), "b": [[1], [2, 3]]}
    one = SettingSearch(space, 0, tmp_path / "search.jsonl")
    settings = [one.ask() for _ in range(3)]
    assert all(isinstance(each["a"], int) and each["b"] in ([1], [2, 3]) for each in settings)
    one.tell(settings[0], 1.0)
    one.tell(settings[1], None)
    with (tmp_path / "search.jsonl").open("a") as stream:
        stream.write('{"asked": {"a"')  # cut off by a kill
    two = SettingSearch(space, 0, tmp_path / "search.jsonl")
    assert two.done == settings[:1]
    assert [two.ask(), two.ask()] == settings[1:]
    assert [trial.value for trial in two.study.trials if trial.value is not None] == [1.0]
    two.tell(settings[2], 2.0)
    assert SettingSearch(space, 0, tmp_path / "search.jsonl").done == [settings[0], settings[2]]
    narrow = SettingSearch({"a": plans.Range(low=20, high=30), "b": [[1]]}, 0, tmp_path / "search.jsonl")
    assert (narrow.done, narrow.waiting) == ([], [])


def test_a_search_without_optuna_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        InputError, match=r"sweep.trials: a search needs optuna, which is missing; pip install optuna"
    ):
        SettingSearch({"a": [1, 2]}, 0, tmp_path / "search.jsonl")


def test_a_dry_run_lists_the_trials(file, capsys):
    for text, expected in (("[0.1, 0.2]", 2), ("{low = 0.1, high = 0.2}\n[sweep]\ntrials = 7", 1)):
        path = file(DATA + f"[optimizer]\nlearning_rate = {text}\n")
        with pytest.raises(SystemExit) as stopped:
            main(["sweep", str(path), "--dry-run", "--json"])
        assert stopped.value.code == 0
        assert len(json.loads(capsys.readouterr().out)["trials"]) == expected
    assert sorted(place.name for place in Path().iterdir()) == ["own.npy", "s.toml"]


def test_rows_that_are_not_finite_do_not_count():
    section = plans.SweepSection(criterion="valid_ll", columns=("valid_ll", "test_ll"))
    assert (
        deciding_row([{"epoch": 0, "valid_ll": -3.0}, {"epoch": 1, "valid_ll": None}], section)["epoch"] == 0
    )
    best = section.model_copy(update={"objective": "best"})
    assert deciding_row([{"epoch": 0, "valid_ll": None}], best) is None
    line = {"variant": "", "setting": {}, "seeds": 0} | dict.fromkeys(
        ["valid_ll", "valid_ll_sd", "test_ll", "test_ll_sd", "epoch", "seconds"]
    )
    assert markdown(section.columns, [line])[2] == "| 0 | - | - | - | - |"


def test_starting_a_sweep_imports_no_jax():
    code = "import sys, natgrad.sweep.worker; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_a_real_trial_is_a_run_like_any_other(file):
    """One worker, two trials, the second of which cannot have its folder."""
    path = grid(file, [0.1, 0.2], "[evaluation]\nevery = 1\n")
    names = [plans.name_of(plans.resolved(each, 0)) for each in settings_of(plans.read_plan(path, {}))]
    Path("out").mkdir()
    (Path("out") / names[1]).write_text("a file")
    found = sweep(path, workers=1, out="out")
    assert list(found["failed"]) == [names[1]]
    assert "cannot write the run to" in found["failed"][names[1]]
    assert {"config.toml", "trace.jsonl", "state"} <= {
        place.name for place in Path("out", names[0]).iterdir()
    }
    trace = [json.loads(line) for line in Path("out", names[0], "trace.jsonl").read_text().splitlines()]
    assert found["settings"][0]["valid_ll"] == trace[-1]["valid_ll"]
    assert [row["epoch"] for row in trace] == [0, 1, 2]


START = "import sys; from natgrad.cli.main import main; main(sys.argv[1:])"


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A folder with a sweep of two trials of some seconds each; its command but for --out; how it ends."""
    place = tmp_path_factory.mktemp("long")
    np.save(place / "own.npy", np.random.default_rng(0).integers(0, 2, (50, 6)).astype(np.uint8))
    text = BASE.replace("epochs = 2", "epochs = 1500\nchunk_steps = 5\nsave_seconds = 0.2") + DATA
    text += "[model]\nlayers = [3]\n[optimizer]\nlearning_rate = [0.1, 0.2]\n[evaluation]\nevery = 500\n"
    (place / "s.toml").write_text(text)
    command = [sys.executable, "-c", START, "sweep", "s.toml", "--workers", "1", "--quiet", "--out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(place / "xla"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        subprocess.run([*command, "whole"], check=True)
        yield place, command, finished(place / "whole")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_sweep_goes_on_as_if_it_had_not_been(long, number):
    """Stopped in the middle of a trial, continued: the same traces as without the stop, but for seconds."""
    place, command, whole = long
    name = f"stopped-{number}"
    with subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 240
        while not any(int(file.name[:10]) for file in (place / name).glob("*/state/*.json")):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=90)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    if number != signal.SIGKILL:
        assert err == f"natgrad: interrupted; the same command continues {name}\n"
    for run in (place / name).glob("*/state"):
        wait_until_free(run.parent)  # an orphaned worker notices
    assert finished(place / name) == {}
    subprocess.run([*command, name], check=True)
    assert len(whole) == 2
    assert finished(place / name) == whole


def wait_until_free(run, seconds=60):
    end = time.monotonic() + seconds
    while locked(run):
        assert time.monotonic() < end
        time.sleep(0.05)


def finished(place):
    """The traces of finished trials, without seconds."""
    found = {}
    for line in map(json.loads, Path(place, "trials.jsonl").read_text().splitlines()):
        name = plans.name_of(plans.resolved(line["settings"], line["seed"]))
        rows = map(json.loads, Path(place, name, "trace.jsonl").read_text().splitlines())
        found[name] = [{key: row[key] for key in row if not key.endswith("seconds")} for row in rows]
    return found


def test_why_a_trial_failed_names_its_folder_and_not_where_it_is(tmp_path, monkeypatch):
    def fails(folder, settings, shorter):
        raise InputError(f"the training of {folder} diverged")

    monkeypatch.setattr(worker, "train_trial", fails)
    found = worker.attempt({"folder": str(tmp_path / "digits-rws-0"), "config": {}})
    assert found == {"error": "the training of digits-rws-0 diverged"}
