"""Trainings on a mesh of devices: the same steps, the same bits, and nothing sent that need not be."""

import json
import os
import subprocess
import sys
from math import prod
from typing import get_args

import numpy as np
import pytest

import natgrad
from natgrad.cli.main import main
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.training.mesh import mesh_sizes
from scale_cases import CASES, MORE, ROWS, VIRTUAL, begun, bits, printed, tiny_data, training_of

QUICK = ("rows=4", "bits", "nrws")
BLOCKS = {(17, 17), (9, 9), (5, 5), (48, 48), (154, 154)}  # of units, in sample space, of a network
PARAMETERS = 2 * (16 * 8 + 8 * 4) + 16 + 8 + 8 + 4 + 4  # of a machine with 16, 8 and 4 units
LONG = 1000  # seconds, of a computer that has other things to do
TOGETHER = 16 + 8 + 8 + 4  # inputs and outputs of the layers of one of its networks
SAMPLES, BATCH = 48, 16  # rows of a metric, and of a batch
COLUMNS = {"rbm-tempering": 160}  # of activations, which are gathered over units: of all temperatures
SAME = {"tonga": "natural", "nws": "nrws", "nbihm": "nrws"}  # methods with the solvers of another one


@pytest.fixture(scope="module")
def file(place):
    return tiny_data(place)


def check_same(found, file):
    """Every step as on one device; no block, factor or data set gathered."""
    for name, training in found.items():
        alone = training_of(name, file)["steps"]
        np.testing.assert_allclose(training["steps"], alone, rtol=0, atol=1e-10, err_msg=name)
        for collective, _, shape in training["sent"]:
            if collective not in ("all-reduce", "all-to-all"):  # which leave on a device its own share
                assert tuple(shape[-2:]) not in BLOCKS, (name, shape)
                assert not set(shape) & {ROWS, -(-ROWS // 8) * 8}, (name, shape)
                units = TOGETHER if shape[-1] == SAMPLES else 16  # of all layers at once, or of one
                assert prod(shape) <= units * COLUMNS.get(name, SAMPLES), (name, shape)


@pytest.fixture(scope="module")
def quick():
    """What one process finds on four devices."""
    return printed(begun(*QUICK, devices=4))


def test_steps_on_a_mesh_are_those_on_one_device(file, quick):
    check_same({name: found for name, found in quick.items() if name in CASES}, file)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "mesh",
    ["rows=1", "rows=2", "units=2", "rows=4", "rows=2,units=2", "rows=8", "rows=4,units=2", "rows=2,units=4"],
)
def test_steps_of_every_method_are_those_on_one_device(file, mesh):
    check_same(printed(begun(mesh, *CASES, devices=prod(mesh_sizes(mesh).values())), LONG), file)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_steps_of_every_further_solver_are_those_on_one_device(file):
    check_same(printed(begun("rows=2,units=2", *MORE, devices=4), LONG), file)


def test_every_solver_is_among_the_cases():
    def solvers(kind, method):
        metric = registry.spec_of(kind).settings[kind, method].model_fields.get("metric")
        found = metric and metric.annotation.model_fields.get("solver")
        return set(get_args(found.annotation)) - {"auto"} if found else set()

    kinds = ("helmholtz", "mlp", "rbm", "vae")
    methods = {kind: [own for of, own in registry.spec_of(kind).settings if of == kind] for kind in kinds}
    known = {
        (kind, method, solver)
        for kind in kinds
        for method in methods[kind]
        for solver in solvers(kind, method)
    }
    tried = {
        (case.get("model", "helmholtz"), case.get("method"), case.get("solver"))
        for case in (CASES | MORE).values()
    }
    assert {(kind, SAME.get(method, method), solver) for kind, method, solver in known} <= tried


def test_what_a_step_sends_is_what_the_formula_says(quick):
    check_formula(quick["nrws"]["sent"])


@pytest.mark.slow
def test_what_a_step_of_a_user_sends_is_what_the_formula_says():
    optimized = begun("rows=4", "nrws", devices=4, JAX_DISABLE_MOST_OPTIMIZATIONS="0")
    check_formula(printed(optimized)["nrws"]["sent"])


def check_formula(sent):
    """docs/scale.md: a batch of bytes, the rows of each network's metric, and the gradient, once each."""
    found = [_plain(each) for each in sent]
    reduced = [(kind, prod(shape)) for name, kind, shape in found if name == "all-reduce"]
    gathered = [prod(shape) for name, _, shape in found if name == "all-gather"]
    assert ("u8", BATCH * 16) in reduced
    numbers = sum(size for kind, size in reduced if kind == "f64")
    assert PARAMETERS <= numbers <= PARAMETERS + 8
    assert sum(gathered) <= SAMPLES * 2 * TOGETHER
    assert {name for name, _, _ in found} == {"all-reduce", "all-gather"}
    assert (len(reduced), len(gathered)) == (2, 2)  # messages: each costs more than its bytes


def _plain(each):
    name, kind, shape = each
    return name, kind, tuple(shape)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nrws", "rbm"])
def test_trainings_repeat_to_the_bit_on_the_same_mesh(name):
    runs = [printed(begun("rows=2,units=2", name, devices=4, STEPS="200"))[name]["steps"] for _ in range(2)]
    assert len(runs[0]) == 200
    assert runs[0] == runs[1]


def test_random_numbers_do_not_depend_on_the_layout(quick):
    assert quick["bits"] == bits()


RUNS = """
import json, natgrad
settings = {"method": "nrws", "layers": (8, 4), "batch_size": 16, "epochs": 2}
run = natgrad.train(data=FILE, out=OUT, mesh="rows=2,units=2", **settings)
print(json.dumps(run.summary))
"""
BACK = 'import natgrad; natgrad.resume(OUT, epochs=6, mesh="rows=4")'


def on_four_devices(code):
    """What a program prints last, in a process with four virtual devices."""
    environment = os.environ | {"XLA_FLAGS": f"{VIRTUAL}=4", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    asked = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=280
    )
    assert asked.returncode == 0, asked.stderr
    return asked.stdout.splitlines()[-1] if asked.stdout else ""


@pytest.mark.slow
def test_a_run_of_four_devices_continues_on_one_and_back(file, place):
    """A state carries no layout; what was computed on a mesh is in the environment."""
    code = RUNS.replace("FILE", repr(file)).replace("OUT", repr(str(place / "meshed")))
    on_four_devices(code)
    assert json.loads((place / "meshed/environment.json").read_text())["mesh"] == {"rows": 2, "units": 2}
    alone = natgrad.train(
        data=file,
        method="nrws",
        layers=(8, 4),
        batch_size=16,
        epochs=4,
        out=place / "alone",
    )
    continued = natgrad.resume(place / "meshed", epochs=4)
    assert continued.summary["steps"] == alone.summary["steps"] == 4 * (ROWS // 16)
    assert continued.summary["valid_ll"] == pytest.approx(alone.summary["valid_ll"], abs=1e-8)
    on_four_devices(BACK.replace("OUT", repr(str(place / "meshed"))))
    back, alone = natgrad.load(place / "meshed"), natgrad.resume(place / "alone", epochs=6)
    assert back.trace[-1]["step"] == alone.trace[-1]["step"] == 6 * (ROWS // 16)
    assert back.trace[-1]["valid_ll"] == pytest.approx(alone.trace[-1]["valid_ll"], abs=1e-8)


def test_a_mesh_that_does_not_fit_is_refused_in_a_sentence(file, place):
    ask = lambda **more: natgrad.train(data=file, out=place / "refused", **more)  # noqa: E731
    with pytest.raises(InputError, match=r"takes 8 devices, JAX finds 1 here.*device_count=8"):
        ask(mesh="rows=4,units=2")
    with pytest.raises(InputError, match=r"such as rows=4,units=2, got 'columns=2'"):
        ask(mesh="columns=2")
    assert not (place / "refused").exists()


EVALUATED = """
import json, sys
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
from natgrad import minimize
from natgrad.models.helmholtz.likelihood import log_likelihood
from natgrad.models.helmholtz.machine import helmholtz
from natgrad.models.rbm.annealed import courses, equally_spaced
from natgrad.models.rbm.machine import boltzmann
from natgrad.training.mesh import on_mesh
with on_mesh(sys.argv[1] if sys.argv[1:] else None):
    key = jax.random.key(0)
    model = boltzmann(key, (6, 4))
    logs = courses(key, model, jnp.zeros(6), equally_spaced(20, model), chains=64)
    machine = helmholtz(key, (6, 4, 2))
    rows = jnp.where(jax.random.bernoulli(key, 0.5, (6, 8)), 1.0, -1.0)
    found = log_likelihood(key, machine, rows, samples=16)
    best = minimize(jax.jit(lambda x: ((x - 1) ** 2).sum()), jnp.zeros(4), budget=400, population=16)
    print(json.dumps([logs[-1].tolist(), found.rows.tolist(), float(best.value)]))
"""


@pytest.mark.slow
def test_evaluations_and_searches_on_a_mesh_are_those_on_one_device():
    environment = os.environ | {"XLA_FLAGS": f"{VIRTUAL}=4", "JAX_PLATFORMS": "cpu"}
    found = []
    for mesh in ((), ("rows=4",)):
        asked = subprocess.run(
            [sys.executable, "-c", EVALUATED, *mesh],
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert asked.returncode == 0, asked.stderr
        found.append(json.loads(asked.stdout.splitlines()[-1]))
    for alone, together in zip(*found, strict=True):
        np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-10)


COMMANDS = """
import contextlib, io, json, natgrad
from natgrad.cli.relax import minimize
from natgrad.models.helmholtz.commands import evaluate
def minimized(mesh):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        minimize("sphere", size=4, mesh=mesh, quiet=True, json=True)
    return json.loads(printed.getvalue())["value"]
natgrad.train(data=FILE, method="rws", layers=(4,), batch_size=16, epochs=1, out=OUT)
print(json.dumps([[evaluate(OUT, samples=8, mesh=m)["test_ll"], minimized(m)] for m in (None, "rows=4")]))
"""


@pytest.mark.slow
def test_commands_on_a_mesh_find_what_they_find_on_one_device(file, place):
    code = COMMANDS.replace("FILE", repr(file)).replace("OUT", repr(str(place / "measured")))
    alone, together = json.loads(on_four_devices(code))
    np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-8)


MESSAGES = {"rws": 2, "kept": 4, "vae": 2, "network": 5, "network-direct": 5, "units": 5}
"""Of the compiled steps on a mesh of rows: data, the gradient with the loss, and what the metric sends.

Those of networks send labels, and the loss apart; the one message of each iteration is in a loop."""


@pytest.mark.slow
def test_all_arrays_of_a_gradient_and_of_an_iteration_go_in_one_message():
    found = printed(begun("rows=2", *MESSAGES, devices=2))
    assert {name: len(training["sent"]) for name, training in found.items()} == MESSAGES


VARIATIONAL_RUN = """
import json, natgrad
from natgrad.models.vae.commands import evaluate
natgrad.train(data=FILE, model="vae", layers=(8,), latent=2, batch_size=16, epochs=1, out=OUT)
found = [evaluate(OUT, samples=8, mesh=mesh) for mesh in (None, "rows=4")]
print(json.dumps([[each[name] for name in ("test_ll", "test_bound", "test_elbo")] for each in found]))
"""


@pytest.mark.slow
def test_a_likelihood_of_a_variational_autoencoder_on_a_mesh_is_that_on_one_device(file, place):
    code = VARIATIONAL_RUN.replace("FILE", repr(file)).replace("OUT", repr(str(place / "variational")))
    alone, together = json.loads(on_four_devices(code))
    np.testing.assert_allclose(together, alone, rtol=1e-9)


def test_a_mesh_for_what_does_not_split_is_refused_in_a_sentence(file, place, capsys):
    natgrad.train(data=file, model="mlp", layers=(4,), batch_size=16, epochs=1, out=place / "network")
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(place / "network"), "--mesh", "rows=1"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "natgrad: --mesh of evaluate is for runs of helmholtz, rbm, vae, and this is not one of them. "
        "Try `natgrad evaluate --help`.\n"
    )


CURVES = """
import json, jax, natgrad
from pathlib import Path
jax.config.update("jax_enable_x64", False)
settings = {"method": "nrws", "layers": (8, 4), "batch_size": 16, "epochs": 40, "evaluation.every": 5}
def curve(mesh):
    run = natgrad.train(data=FILE, out=f"{OUT}-{mesh}", mesh=mesh, device="cpu", **settings)
    rows = map(json.loads, (Path(run.folder) / "trace.jsonl").read_text().splitlines())
    return [[row["step"], row["test_ll"], row["test_ll_se"]] for row in rows]
print(json.dumps([curve(mesh) for mesh in (None, "rows=4", "rows=2,units=2")]))
"""


@pytest.mark.slow
def test_likelihood_curves_of_several_layouts_agree_within_their_errors(file, place):
    """In single precision, of 240 steps; with `device` given."""
    code = CURVES.replace("FILE", repr(file)).replace("OUT", repr(str(place / "curve")))
    alone, *others = np.array(json.loads(on_four_devices(code)))
    assert alone[-1, 0] == 40 * (ROWS // 16)
    assert alone[-1, 1] > alone[0, 1] + 3 * alone[0, 2]  # it has learned something
    for other in others:
        assert (other[:, 0] == alone[:, 0]).all()
        assert (abs(other[:, 1] - alone[:, 1]) < alone[:, 2]).all()


@pytest.mark.slow
def test_programs_of_long_trainings_take_the_same_steps_on_a_mesh(file):
    """Compiled with memory apart, and as always with the state's memory donated."""
    found = printed(begun("rows=2", "nrws", devices=2, LONG_FROM="1"))["nrws"]
    np.testing.assert_allclose(found["steps"], training_of("nrws", file)["steps"], rtol=0, atol=1e-10)
    assert found["apart"]
    assert found["donated"]


def test_a_state_is_donated_on_a_mesh(quick):
    assert quick["nrws"]["donated"]
    assert not quick["nrws"]["apart"]


def test_a_device_that_is_not_here_is_refused_on_a_mesh_too(file, place):
    with pytest.raises(InputError, match="gpu"):
        natgrad.train(data=file, mesh="rows=1", device="gpu", out=place / "elsewhere")
