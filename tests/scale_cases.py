"""Trainings of a few steps on meshes of devices, and what their compiled steps send.

`python scale_cases.py MESH NAME... MESH NAME...` prints, as JSON, what these trainings computed on the mesh
before them, and for `bits` random numbers; with HOSTS=ADDRESS,PROCESSES,PROCESS in its environment, as one of
several processes. LONG_FROM is the number of steps from which on a training counts as long.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import config
from natgrad.data.in_file import RowsInFile
from natgrad.devices import everywhere, parts, placed
from natgrad.layers import generator
from natgrad.training import compile as compilation
from natgrad.training import hosts, session
from natgrad.training.compile import compiled
from natgrad.training.mesh import on_mesh, own_data
from natgrad.training.states import laid_out

MACHINE = {"layers": (8, 4), "samples": 3, "batch_size": 16}
NETWORK = {"model": "mlp", "layers": (8,), "batch_size": 16, "method": "natural", "damping": 0.1}
BOLTZMANN = {"model": "rbm", "method": "natural", "hidden": 8, "batch_size": 16, "chains": 16}
VARIATIONAL = {"model": "vae", "layers": (8,), "latent": 2, "batch_size": 16}
CASES = {
    "rws": MACHINE | {"method": "rws"},
    "nrws": MACHINE | {"method": "nrws"},
    "kept": MACHINE | {"method": "nrws", "refresh": 2},
    "direct": MACHINE | {"method": "nrws", "refresh": 2, "solver": "direct"},
    "dual": MACHINE | {"method": "nrws", "refresh": 2, "solver": "dual"},
    "diagonal": MACHINE | {"method": "nrws", "solver": "diagonal"},
    "few": MACHINE | {"method": "nrws", "metric.rows": 8},
    "network": NETWORK | {"solver": "cg", "metric.iterations": 4},  # more make rounding errors grow
    "network-minres": NETWORK | {"solver": "minres", "metric.iterations": 4},
    "network-direct": NETWORK | {"solver": "direct"},
    "network-dual": NETWORK | {"solver": "dual"},
    "network-rows": NETWORK | {"solver": "dual", "metric.rows": 8},
    "network-kfac": NETWORK | {"method": "kfac", "refresh": 2},
    "rbm": BOLTZMANN,
    "rbm-direct": BOLTZMANN | {"solver": "direct"},
    "rbm-blocks": BOLTZMANN | {"solver": "blocks"},
    "rbm-tempering": BOLTZMANN | {"objective.negative": "tempering"},
    "vae": VARIATIONAL,
}
FEW = {"metric.iterations": 4}
MORE = {
    "exact": MACHINE | {"method": "nrws", "solver": "exact"},
    "shared": MACHINE | {"method": "nrws", "solver": "shared"},
    "cg": MACHINE | {"method": "nrws", "solver": "cg"} | FEW,
    "units": NETWORK | {"method": "units", "solver": "cg"} | FEW,
    "units-diagonal": NETWORK | {"method": "units", "solver": "diagonal"},
    "rbm-dual": BOLTZMANN | {"solver": "dual"},
    "rbm-cg": BOLTZMANN | {"solver": "cg"} | FEW,
    "rbm-minres": BOLTZMANN | {"solver": "minres"} | FEW,
    "rbm-diagonal": BOLTZMANN | {"solver": "diagonal"},
    "vae-units": VARIATIONAL | {"method": "two-step", "solver": "units"},
    "vae-diagonal": VARIATIONAL | {"method": "two-step", "solver": "diagonal"},
    "vae-cg": VARIATIONAL | {"method": "two-step", "solver": "cg"} | FEW,
    "vae-dual": VARIATIONAL | {"method": "two-step", "solver": "dual"},
    "vae-factors": VARIATIONAL | {"method": "two-step", "solver": "kronecker", "refresh": 2},
    "vae-both": VARIATIONAL | {"method": "natural", "solver": "cg"} | FEW,
    "vae-direct": VARIATIONAL | {"method": "natural", "solver": "direct"},
}
"""The solvers that are not among the cases."""
ROWS, STEPS = 100, 3  # rows that no mesh divides by eight
HELD_OUT = 16
VIRTUAL = "--xla_force_host_platform_device_count"
_SENT = re.compile(
    r"= (.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


def tiny_data(folder):
    """Images of 4 x 4 pixels of two classes."""
    draw = np.random.default_rng(0)
    splits = {"train": ROWS, "valid": HELD_OUT, "test": HELD_OUT}
    arrays = {name: draw.integers(0, 2, (number, 4, 4)).astype(np.uint8) for name, number in splits.items()}
    labels = {f"{name}_labels": draw.integers(0, 2, number) for name, number in splits.items()}
    np.savez(folder / "tiny.npz", **arrays, **labels)
    return str(folder / "tiny.npz")


def sent(text):
    """What a compiled program sends: for every array its collective, type and shape on a device."""
    return [
        (name, kind, [int(side) for side in shape.split(",") if side])
        for results, name in _SENT.findall(text)
        for kind, shape in _ARRAY.findall(results)
    ]


def rounded(leaf):
    """To six digits, so that steps on other devices begin at the very same state."""
    return jnp.round(leaf, 6) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


@jax.numpy_dtype_promotion("standard")  # optax's Adam wants it
def training_of(name, file, number=STEPS):
    """The model and the loss after every step of a training, and what its compiled step sends."""
    READ.clear()
    settings = config.resolve((CASES | MORE)[name] | {"data": file, "epochs": -(-number // (ROWS // 16))})
    programs = []

    def recorded(*arguments, **options):
        programs.append(compiled(*arguments, **options))
        return programs[-1]

    session.compiled = recorded
    try:
        training = session.Session.begin(settings, own_data(settings))
        training.advance = training._compile()
    finally:
        session.compiled = compiled
    found = []
    for step in range(number):
        epoch, position = divmod(step, training.per_epoch)
        assert training._chunk(training._order(epoch), position, position + 1) is None
        leaves = jax.tree.leaves(everywhere((training.state.model, training.totals.value)))
        found.append(np.concatenate([np.ravel(leaf) for leaf in leaves]).tolist())
        if number == STEPS:
            training.state = laid_out(jax.tree.map(rounded, training.state), training.shape)
    text = programs[-1].as_text()
    facts = {"donated": "input_output_alias" in text, "apart": training.total >= compilation.LONG}
    return {"steps": found, "sent": sent(text), "read": sum(READ)} | facts


def bits():
    """Checksums of random numbers, split over rows, of every generator."""
    draw = jax.jit(lambda key: placed(jax.random.uniform(key, (6, 16)), None, "rows"))
    drawn = [draw(generator.key(3, kind)) for kind in ("mixer", "threefry")]
    assert all(each.is_fully_replicated == (parts("rows") == 1) for each in drawn)
    return [hashlib.sha256(np.asarray(each).tobytes()).hexdigest() for each in drawn]


def begun(*tokens, devices=1, **more):
    """A process that prints what some trainings compute on meshes of its devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {VIRTUAL}={devices}"
    return subprocess.Popen(
        [sys.executable, __file__, *tokens],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"} | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(process, seconds=280):
    """What such a process printed."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


READ = []
"""How many rows were read at a time of those that were left in their file."""


def noting(read):
    def noted(self, *given, **named):
        READ.append(len(self))
        return read(self, *given, **named)

    return noted


def main(*tokens):
    jax.config.update("jax_enable_x64", True)
    if given := os.environ.get("HOSTS"):
        address, processes, process = given.split(",")
        hosts.connect(hosts.Hosts(address, int(processes), int(process), 60))
    RowsInFile.__array__ = noting(RowsInFile.__array__)
    number, found = int(os.environ.get("STEPS", STEPS)), {}
    compilation.LONG = int(os.environ.get("LONG_FROM", compilation.LONG))
    with tempfile.TemporaryDirectory() as folder:
        file = tiny_data(Path(folder))
        for token in tokens:
            if "=" in token:
                mesh = token
            else:
                with on_mesh(mesh):
                    found[token] = bits() if token == "bits" else training_of(token, file, number)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
