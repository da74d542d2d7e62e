"""Hostile and damaged files: one sentence or a good result, in little memory, and nothing else touched.

`test_memory.py` holds the worst of them to the system's own limit.
"""

import hashlib
import io
import json
import string
import tracemalloc
import zipfile
from datetime import timedelta

import jax.numpy as jnp
import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import counting
import natgrad
from cases import machine
from natgrad import config
from natgrad.config.names import all_settings, fields_of
from natgrad.data import load as load_data
from natgrad.errors import InputError
from natgrad.records import folder
from natgrad.records import state as states
from natgrad.records.notes import Notes, TrainingProgress
from natgrad.training import resume
from natgrad.training import run as training

fuzzed = settings(
    max_examples=40,
    deadline=timedelta(seconds=20),  # never a hang
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MARGIN = 64 << 20


def guarded(action, size):
    """What an action returns, or None for one sentence; anything else it raises is a failure."""
    counting.count("test_fuzz.py", "damaged or hostile files and settings")
    tracemalloc.start()
    try:
        return action()
    except InputError:
        return None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * size + MARGIN, f"{peak} bytes for a file of {size}"


def contents(place):
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The files of a run with two states, by their names."""
    run = tmp_path_factory.mktemp("sound")
    chosen = config.resolve({"layers": (3, 2), "method": "rws"})
    folder.write(run / "config.toml", config.dump(chosen))
    for step in (10, 20):
        folder.append(run, {"epoch": step // 10, "step": step, "seconds": 1.0, "test_ll": -3.0})
        at = TrainingProgress(epoch=step // 10, rows=step // 10, recorded=step // 10)
        notes = Notes(shape={"visible": 4, "image_shape": (2, 2)}, summary={"steps": step}, progress=at)
        state = {"state": {"model": machine(seed=step), "steps": jnp.int32(step)}}
        states.save_state(run, step, state, notes.model_dump())
    return {str(path.relative_to(run)): raw for path, raw in contents(run).items()}


@pytest.fixture
def attack(tmp_path, sound):
    """Load a run some of whose files were replaced; returns the step of the state that was used, or None."""
    run, other = tmp_path / "run", tmp_path / "precious"
    (run / "state").mkdir(parents=True)
    other.write_bytes(b"do not touch")

    def load(**replaced):
        for path in contents(run):
            path.unlink()
        files = sound | {name.replace("__", "/"): raw for name, raw in replaced.items()}
        for name, raw in files.items():
            (run / name).write_bytes(raw)
        before = contents(tmp_path)
        found = guarded(lambda: natgrad.load(run), sum(map(len, files.values())))
        guarded(lambda: resume._stored(run, folder.open_run(run)[1]), sum(map(len, files.values())))
        assert contents(tmp_path) == before
        return None if found is None else found.summary

    return load


NAMES = [
    "state/0000000020.json",
    "state/0000000020.safetensors",
    "state/0000000010.json",
    "config.toml",
    "trace.jsonl",
]


@st.composite
def damage(draw, raw):
    """Bytes that were truncated, extended, flipped, overwritten, or are others altogether."""
    kind = draw(st.sampled_from(["cut", "flip", "splice", "grow", "other"]))
    place = draw(st.integers(0, max(len(raw) - 1, 0)))
    if kind == "cut":
        return raw[:place]
    if kind == "flip":
        return raw[:place] + bytes([raw[place] ^ (1 << draw(st.integers(0, 7)))]) + raw[place + 1 :]
    extra = draw(st.binary(max_size=200))
    if kind == "splice":
        return raw[:place] + extra + raw[place + len(extra) :]
    return raw + extra if kind == "grow" else extra


@fuzzed
@given(st.data())
def test_damaged_run_folders(attack, sound, data):
    """A damaged newest state gives way to the older one; it is never used."""
    name = data.draw(st.sampled_from(NAMES))
    raw = data.draw(damage(sound[name]))
    summary = attack(**{name.replace("/", "__"): raw})
    if name.startswith("state/0000000020") and raw != sound[name]:
        assert summary == {"steps": 10}
    if name == "state/0000000010.json":
        assert summary == {"steps": 20}


@fuzzed
@given(st.permutations(NAMES))
def test_swapped_files(attack, sound, order):
    attack(**{name.replace("/", "__"): sound[other] for name, other in zip(NAMES, order, strict=True)})


def sealed(notes, blob, changes=()):
    """A manifest whose every checksum is right."""
    content = {"format": 2, "step": 20, "sha256": hashlib.sha256(blob).hexdigest(), "notes": notes} | dict(
        changes
    )
    return json.dumps(content | {"seal": states._seal(json.loads(json.dumps(content)))}).encode()


def tensors(header, body=b""):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + body


numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none())
texts = st.text(max_size=12) | st.sampled_from(["../../precious", "/etc/passwd", "visible", "progress", "\0"])
trees = st.recursive(
    numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
keys = ["visible", "image_shape", "summary", "progress", "checksums"]


@fuzzed
@given(
    st.dictionaries(st.sampled_from(keys), trees)
    | trees
    | st.fixed_dictionaries({"visible": st.integers(1, 2**31 - 1)}),
    st.dictionaries(st.sampled_from(["format", "step", "sha256", "notes", "more"]), trees, max_size=2),
)
def test_hostile_manifests(attack, sound, notes, changes):
    """Sealed as they should be, saying what they should not."""
    blob = sound["state/0000000020.safetensors"]
    attack(**{"state__0000000020.json": sealed(notes, blob, changes)})


entry = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F64", "F32", "BF16", "I64", "U8", "BOOL", "F4", "X"]),
        "shape": st.lists(st.sampled_from([0, 1, 2, 3, 4, 10**6, 10**12, 2**63, -1]), max_size=4),
        "data_offsets": st.lists(st.sampled_from([0, 8, 96, 10**9, 2**64, -8]), min_size=1, max_size=3),
    }
)
model = ["state.model.prior", "state.model.generation.0.weight", "../../precious", "__metadata__"]


@fuzzed
@given(st.dictionaries(st.sampled_from(model), entry | trees), st.binary(max_size=100))
def test_hostile_arrays(attack, sound, header, body):
    """Huge declared shapes, odd types, overlapping places, names that are paths, with right checksums."""
    blob = tensors(header, body)
    notes = json.loads(sound["state/0000000020.json"])["notes"]
    attack(**{"state__0000000020.safetensors": blob, "state__0000000020.json": sealed(notes, blob)})


@pytest.mark.parametrize(
    ("arrays", "manifest"),
    [
        (tensors(b'{"a":' * 100_000), None),
        ((2**63).to_bytes(8, "little"), None),
        (tensors(b" " * (5 << 20)), None),
        (None, b"[" * 100_000),
        (None, b'{"format": ' + b"9" * 10_000 + b"}"),
        (None, b" " * (5 << 20)),
    ],
    ids=[
        "deep header",
        "header beyond the file",
        "long header",
        "deep manifest",
        "long number",
        "long manifest",
    ],
)
def test_oversized_headers_give_way_to_the_older_state(attack, sound, arrays, manifest):
    blob = arrays or sound["state/0000000020.safetensors"]
    notes = json.loads(sound["state/0000000020.json"])["notes"]
    manifest = manifest or sealed(notes, blob)
    summary = attack(**{"state__0000000020.safetensors": blob, "state__0000000020.json": manifest})
    assert summary == {"steps": 10}


@pytest.mark.parametrize("line", [b"[" * 100_000, b"7", b"\xff\xfe", b'{"a": ' + b"9" * 10_000 + b"}"])
def test_hostile_traces(attack, sound, line):
    assert attack(**{"trace.jsonl": line + b"\n" + sound["trace.jsonl"]}) is None
    assert attack(**{"trace.jsonl": sound["trace.jsonl"] + line}) == {"steps": 20}


def test_links_are_not_written_through(tmp_path):
    """A name that leads to somebody else's file is refused; the file stays."""
    (tmp_path / "precious").write_text("x")
    run = tmp_path / "run"
    (run / "state").mkdir(parents=True)
    (run / "trace.jsonl").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        folder.append(run, {"epoch": 0})
    for name in (".0000000001.safetensors.tmp", ".0000000001.json.tmp", "0000000001.json"):
        (run / "state" / name).symlink_to(tmp_path / "precious")
    states.save_state(run, 1, {"a": jnp.zeros(2)}, {})
    assert (tmp_path / "precious").read_text() == "x"
    assert states.load_state(run, {"a": jnp.zeros(2)})[1] == {}


settings_names = sorted({name for _, each in all_settings() for name in fields_of(each)} - {"format"})
values = numbers | texts | st.lists(numbers | st.lists(numbers, max_size=3), max_size=3)


@fuzzed
@given(st.dictionaries(st.sampled_from(settings_names), values, min_size=1, max_size=4))
def test_hostile_settings(tmp_path, chosen):
    """Any value for any setting: a config, or one sentence."""
    usable = {name: value for name, value in chosen.items() if not _holds_none(value)}
    guarded(lambda: config.resolve(usable), 0)
    tree = {}
    for name, value in usable.items():
        config._put(tree, name, value)
    try:
        text = tomli_w.dumps(tree)
    except (TypeError, ValueError):
        return
    (tmp_path / "c.toml").write_bytes(text.encode(errors="surrogatepass"))
    guarded(lambda: config.resolve({}, tmp_path / "c.toml"), len(text))


def _holds_none(value):
    return value is None or (isinstance(value, list) and any(map(_holds_none, value)))


@fuzzed
@given(st.data())
def test_damaged_configs(tmp_path, data):
    raw = data.draw(damage(config.dump(config.resolve({})).encode()))
    (tmp_path / "c.toml").write_bytes(raw)
    guarded(lambda: config.resolve({}, tmp_path / "c.toml"), len(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b"a = " + b"[" * 3000,
        b"[model]\nlayers = " + b"[" * 60_000,
        b"a" + b".a" * 30_000 + b" = 1",
        b"seed = " + b"9" * 4000,
        b"# x\n" * 20_000,
        b'[data]\nname = "' + b"x" * 4000 + b'"',
    ],
    ids=["deep", "deeper", "dotted", "number", "long", "name"],
)
def test_oversized_configs(tmp_path, raw):
    (tmp_path / "c.toml").write_bytes(raw)

    def use():
        return training._new_session(config.resolve({}, tmp_path / "c.toml"))

    assert guarded(use, len(raw)) is None


def test_configs_that_are_too_long_are_said(tmp_path):
    (tmp_path / "c.toml").write_bytes(b"# x\n" * 20_000)
    with pytest.raises(InputError, match=r"is not valid TOML \(too long for a config\); correct it"):
        config.read_toml(tmp_path / "c.toml")


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return stream.getvalue()


BITS = np.random.default_rng(0).integers(0, 2, (40, 6)).astype(np.uint8)
DATA = {
    "a.npy": npy(BITS),
    "b.npy": npy(BITS.astype(np.float32)),
    "a.npz": npz(**{"train.npy": npy(BITS), "valid.npy": npy(BITS), "test.npy": npy(BITS)}),
    "b.npz": npz(**{"../../precious.npy": npy(BITS), "labels.npy": npy(BITS[:, 0])}),
    "a.csv": b"\n".join(b",".join(b"%d" % value for value in row) for row in BITS),
}


@fuzzed
@given(st.data())
def test_damaged_data(tmp_path, data):
    name = data.draw(st.sampled_from(sorted(DATA)))
    raw = data.draw(damage(DATA[name]))
    (tmp_path / name).write_bytes(raw)
    before = contents(tmp_path)
    guarded(lambda: load_data(tmp_path / name), len(raw))
    assert contents(tmp_path) == before


headers = st.fixed_dictionaries(
    {
        "descr": st.sampled_from(["<f8", "|u1", "|O", "<U4", "|S0", "|V8", "<M8[s]", "<c16", "x", "<f2"]),
        "fortran_order": st.booleans(),
        "shape": st.lists(st.sampled_from([0, 1, 3, 10**6, 10**15, 2**70, -1]), max_size=3).map(tuple),
    }
)


@fuzzed
@given(headers, st.binary(max_size=120), st.booleans())
def test_hostile_arrays_of_data(tmp_path, header, body, packed):
    """Headers that declare what is not there."""
    text = (repr(header) + "\n").encode()
    raw = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body
    path = tmp_path / ("a.npz" if packed else "a.npy")
    path.write_bytes(npz(**{"train.npy": raw}) if packed else raw)
    guarded(lambda: load_data(path), len(raw))


def test_archives_that_would_burst_are_refused(tmp_path):
    """A hundred megabytes of nothing in a tenth of one."""
    path = tmp_path / "a.npz"
    path.write_bytes(
        npz(**{f"{name}.npy": npy(np.zeros((1 << 16, 800), np.uint8)) for name in ("train", "test")})
    )
    with pytest.raises(
        InputError,
        match=r"in at most twice its size and 64 MB of memory, .* bytes takes 106\d{6}; save it with",
    ):
        load_data(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("train.npy", npy(BITS))
    with pytest.raises(
        InputError, match=r"expected an .npz as numpy writes it, .* is compressed in another way"
    ):
        load_data(path)


@fuzzed
@given(st.text(alphabet=string.printable, max_size=300))
def test_any_text_as_a_table(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    guarded(lambda: load_data(tmp_path / "a.csv"), len(text))
