"""Reading takes at most twice a file's size and 64 MB, whatever the file says: held to it by the system.

One process reads every case under a limit of its address space: what it has, twice the file and 64 MB.
Large files are sparse, so that they cost nothing to make.
"""

import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import counting
from cases import machine
from natgrad import config
from natgrad.records import folder
from natgrad.records import state as states
from natgrad.records.notes import Notes, TrainingProgress

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="no /proc: memory is not measured"
)

MB = 1 << 20
READER = """
import json, resource, sys
import jax
import natgrad
from natgrad import config
from natgrad.data import load
from natgrad.errors import InputError
from natgrad.evaluate.given_images import GivenImages
from natgrad.report.listing import list_runs
from natgrad.models.helmholtz.trained import Trained

ACTIONS = {
    "data": load,
    "round": lambda path: load(path, binarize="round"),
    "real": lambda path: load(path, binarize="real"),
    "run": natgrad.load,
    "config": lambda path: config.resolve({}, path),
    "model": Trained.load,
    "list": list_runs,
    "given": lambda path: GivenImages(None, 784, None).rows(path),
}

def taken():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[0]) * resource.getpagesize()

def attempt(action, path):
    try:
        ACTIONS[action](path)
        return "read"
    except InputError as error:
        return str(error)
    except BaseException as error:
        return f"not a sentence: {error!r}"

jax.block_until_ready(jax.jit(lambda x: x + 1)(jax.numpy.zeros(3)))
for line in sys.stdin:
    action, path, allowed = json.loads(line)
    if allowed is not None:
        resource.setrlimit(resource.RLIMIT_AS, (taken() + allowed, resource.RLIM_INFINITY))
    found = attempt(action, path)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    """Read a path in the other process, within twice its size (or a given one) and 64 MB."""
    process = subprocess.Popen(
        [sys.executable, "-c", READER],
        env=os.environ | {"JAX_ENABLE_X64": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ask(action, path, allowed):
        counting.count("test_memory.py", "files read in bounded memory", allowed is not None)
        process.stdin.write(json.dumps([action, str(path), allowed]) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    warm = tmp_path_factory.mktemp("warm")
    for name in ("a.npz", "a.npy", "a.csv"):  # what is imported and compiled once is not the file's
        ask("round", data(warm / name, np.eye(9)), None)
    ask("run", saved(warm / "run"), None)
    ask("list", warm, None)
    yield lambda action, path, size=None: ask(action, path, 2 * (size or path.stat().st_size) + 64 * MB)
    process.kill()
    process.communicate()


def data(path, array):
    if path.suffix == ".csv":
        np.savetxt(path, array, "%d", ",")
    elif path.suffix == ".npy":
        np.save(path, array)
    else:
        np.savez_compressed(path, train=array)
    return path


def sparse(path, start, size):
    path.write_bytes(start)
    os.truncate(path, len(start) + size)
    return path


def header(dtype, shape, order=False):
    text = repr({"descr": dtype, "fortran_order": order, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def saved(run, sizes=(4, 3, 2), **files):
    """A run with one state; what is given replaces its manifest or its arrays."""
    (run / "state").mkdir(parents=True)
    folder.write(run / "config.toml", config.dump(config.resolve({"layers": sizes[1:], "method": "rws"})))
    folder.append(run, {"epoch": 0, "step": 0, "seconds": 0.0})
    notes = Notes(shape={"visible": sizes[0]}, progress=TrainingProgress(rows=1, recorded=0))
    states.save_state(run, 0, {"state": {"model": machine(sizes)}}, notes.model_dump())
    for kind, raw in files.items():
        (run / "state" / f"0000000000.{kind}").write_bytes(raw)
    return run


KINDS = [("|u1", False, "round"), ("|u1", True, "data"), ("<f2", False, "data"), ("<f4", False, "real")]
SLOW = [("|u1", False, "data"), ("|u1", True, "round"), ("|i1", False, "round"), ("<f8", True, "data")]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("dtype", "order", "action"), [*KINDS, *(pytest.param(*kind, marks=pytest.mark.slow) for kind in SLOW)]
)
def test_large_arrays_are_read(tmp_path, reading, dtype, order, action):
    """In two copies at most, of any type and order."""
    size = np.dtype(dtype).itemsize
    width = 40 * MB // size // 20_000
    path = sparse(tmp_path / "a.npy", header(dtype, (20_000, width), order), 20_000 * width * size)
    with path.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write({"f": b"\x38", "u": b"\x07", "i": b"\x01"}[dtype[1]])  # a mean, a gray value, a bit
    assert reading(action, path) == "read"


@pytest.mark.slow
def test_long_tables_are_read(tmp_path, reading):
    (tmp_path / "a.csv").write_text("0,1\n" * (5 * MB // 4))
    assert reading("data", tmp_path / "a.csv") == "read"


def test_compressed_arrays_are_read_as_far_as_they_fit(tmp_path, reading):
    assert reading("round", data(tmp_path / "a.npz", np.full((40_000, 784), 7, np.uint8))) == "read"
    bomb = data(tmp_path / "b.npz", np.zeros((80_000, 784), np.uint8))
    assert "is read in at most twice its size and 64 MB of memory" in reading("data", bomb)
    by_column = np.zeros((30_000, 784), np.uint8, order="F")
    assert "is read in at most twice its size" in reading("data", data(tmp_path / "c.npz", by_column))


def directory(entries):
    """An archive that is all directory."""
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<HHH", 1, 0, 0) + bytes(12) + b"a"
    return entry * entries + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(entry) * entries, 0, 0)


def member(raw, declared):
    """An archive whose one member says it has so many bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.npy", raw)
    whole = bytearray(stream.getvalue())
    place = whole.index(b"PK\x01\x02") + 24
    whole[place : place + 4] = struct.pack("<L", declared)
    return bytes(whole)


HOSTILE = {
    "an archive that is all directory": (
        "a.npz",
        directory(400_000),
        0,
        "its directory of 18800000 bytes is too long",
    ),
    "a member that says it is huge": (
        "a.npz",
        member(header("|u1", (4_000_000, 1000)), 4_000_000_000 + len(header("|u1", (4_000_000, 1000)))),
        0,
        "is read in at most twice its size and 64 MB of memory",
    ),
    "a shape that is not there": (
        "a.npy",
        header("<f8", (10**12, 784)),
        1000,
        "expected 6272000000000000 bytes",
    ),
    "a header of gigabytes": (
        "a.npy",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        200 * MB,
        "has a damaged header",
    ),
    "a deep header": ("a.npy", b"\x93NUMPY\x01\x00\x00\x20" + b"[" * 8192, 0, "has a damaged header"),
    "rows of a hundred million values": (
        "a.npy",
        header("|u1", (3, 10**8)),
        3 * 10**8,
        "rows of at most 1048576",
    ),
    "a hundred million rows of one value": (
        "a.npy",
        header("|u1", (10**8, 1)),
        10**8,
        "is read in at most twice",
    ),
    "a table of one line": ("a.csv", b"0,", 100 * MB, "a line of more than 1048576 characters"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_data_are_refused(tmp_path, reading, case):
    name, raw, more, sentence = HOSTILE[case]
    assert sentence in reading("data", sparse(tmp_path / name, raw, more))


@pytest.mark.slow
def test_a_large_state_is_read(tmp_path, reading):
    """Two arrays of 50 MB."""
    run = saved(tmp_path / "run", (4, 2500, 2500))
    assert reading("run", run, (run / "state" / "0000000000.safetensors").stat().st_size) == "read"


def tensors(raw):
    return len(raw).to_bytes(8, "little") + raw


many = ",".join(f'"{n}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for n in range(100_000))
STATES = {
    "a header of many arrays": {"safetensors": tensors(b"{" + many.encode() + b"}")},
    "a header longer than the file": {"safetensors": struct.pack("<Q", 1 << 62)},
    "a deep manifest": {"json": b"[" * (MB - 1)},
    "a wide manifest": {"json": b"[" + b"{}," * (MB // 3 - 2) + b"{}]"},
    "a long manifest": {"json": bytes(40 * MB)},
}


@pytest.mark.parametrize("case", STATES)
def test_hostile_states_are_refused(tmp_path, reading, case):
    run = saved(tmp_path / "run", **STATES[case])
    if "safetensors" in STATES[case]:
        sealed(run)
    size = sum(path.stat().st_size for path in (run / "state").iterdir())
    assert reading("run", run, size).endswith(
        "holds no readable state; train it again, or restore its state/ folder"
    )
    assert reading("list", run, size) == "read"


def sealed(run):
    """A manifest with the right checksum of whatever the arrays are."""
    blob, path = (run / "state/0000000000.safetensors").read_bytes(), run / "state/0000000000.json"
    content = {name: value for name, value in json.loads(path.read_text()).items() if name != "seal"}
    content["sha256"] = hashlib.sha256(blob).hexdigest()
    path.write_text(json.dumps(content | {"seal": states._seal(content)}))


def test_other_files_are_refused(tmp_path, reading):
    run = saved(tmp_path / "run")
    sparse(run / "environment.json", b"{", 100 * MB)
    assert reading("list", run, 100 * MB) == "read"
    (run / "trace.jsonl").write_bytes(b'{"a": [' + b"1," * (20 * MB) + b"1]}\n{}\n")
    assert "line 1 of" in reading("run", run, 40 * MB)
    model = tmp_path / "m.safetensors"
    model.write_bytes(STATES["a header of many arrays"]["safetensors"])
    assert "its header is too long" in reading("model", model)
    given = sparse(tmp_path / "given.npy", header("|u1", (60_000, 784)), 60_000 * 784)
    assert "expected at most 4194304 values" in reading("given", given)


@pytest.mark.parametrize(
    "raw",
    [
        b"a = " + b"[" * 4000,
        b"\n".join(b"a" + b".a" * 2000 + b"%d = 1" % number for number in range(14)),
        b"\n".join(b"[%d" % number + b".a" * 2000 + b"]" for number in range(14)),
        b"a = [" + b"{}," * 1300 + b"]",
    ],
    ids=["deep", "dotted", "tables", "wide"],
)
def test_hostile_configs_are_refused(tmp_path, reading, raw):
    (tmp_path / "c.toml").write_bytes(raw)
    assert not reading("config", tmp_path / "c.toml").startswith(("not a sentence", "read"))
    assert "too long for a config" in reading("config", sparse(tmp_path / "d.toml", raw, 200 * MB))
