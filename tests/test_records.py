"""Run folders: written whole, read back exactly, and honest about damage."""

import json
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import config
from natgrad.devices import surroundings
from natgrad.errors import InputError, Newer
from natgrad.records import folder
from natgrad.records import state as states
from natgrad.report.listing import list_runs

Pair = namedtuple("Pair", "weight count")


def example(value=1.0):
    return Pair({"a": jnp.full((2, 3), value), "b": (jnp.arange(3.0).reshape(3, 1).T, ())}, jnp.int32(7))


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def files(run):
    return sorted(path.name for path in (run / "state").iterdir())


def test_a_state_comes_back_bit_for_bit(tmp_path):
    state = example(1 / 3)
    states.save_state(tmp_path, 12, state, {"visible": 4, "loss": None})
    found, notes = states.load_state(tmp_path, jax.eval_shape(lambda: state))
    assert jax.tree.structure(found) == jax.tree.structure(state)
    for got, expected in zip(leaves(found), leaves(state), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype
    assert notes == {"visible": 4, "loss": None}


def test_names_say_the_place():
    assert set(states.arrays_by_name(example())) == {"weight.a", "weight.b.0", "count"}


def test_the_last_two_are_kept_and_nothing_else(tmp_path):
    for step in (0, 5, 10, 999_999_999):
        states.save_state(tmp_path, step, example(float(step)), {})
    stems = ["0000000010", "0999999999"]
    assert files(tmp_path) == [f"{stem}.{kind}" for stem in stems for kind in ("json", "safetensors")]
    assert float(states.load_state(tmp_path, example())[0].weight["a"][0, 0]) == 999_999_999


def truncate(path):
    path.write_bytes(path.read_bytes()[:-3])


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(bytes(raw))


DAMAGE = {
    "truncated arrays": ("safetensors", truncate),
    "flipped bit": ("safetensors", flip),
    "no arrays": ("safetensors", lambda path: path.unlink()),
    "truncated manifest": ("json", truncate),
    "empty manifest": ("json", lambda path: path.write_text("")),
    "other manifest": ("json", lambda path: path.write_text("[1]")),
    "no manifest": ("json", lambda path: path.unlink()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_state_gives_way_to_the_one_before(tmp_path, damage):
    states.save_state(tmp_path, 1, example(1.0), {"step": 1})
    states.save_state(tmp_path, 2, example(2.0), {"step": 2})
    kind, harm = DAMAGE[damage]
    harm(tmp_path / "state" / f"0000000002.{kind}")
    found, notes = states.load_state(tmp_path, example())
    assert (float(found.weight["a"][0, 0]), notes) == (1.0, {"step": 1})


def test_no_good_state_is_said(tmp_path):
    with pytest.raises(InputError, match="holds no readable state; train it again, or restore its state/"):
        states.load_state(tmp_path, example())
    states.save_state(tmp_path, 1, example(), {})
    flip(tmp_path / "state" / "0000000001.safetensors")
    with pytest.raises(InputError, match="holds no readable state"):
        states.load_state(tmp_path, example())


@pytest.mark.parametrize(
    "template",
    [
        Pair({"a": jnp.zeros((2, 4)), "b": (jnp.zeros((1, 3)), ())}, jnp.int32(0)),
        Pair({"a": jnp.zeros((2, 3)), "c": jnp.zeros(1)}, jnp.int32(0)),
    ],
    ids=["shape", "name"],
)
def test_a_state_that_does_not_fit_is_said(tmp_path, template):
    states.save_state(tmp_path, 1, example(), {})
    with pytest.raises(InputError, match=r"the state in .* does not fit its config.toml; restore the config"):
        states.load_state(tmp_path, template)


def test_a_state_of_another_precision_is_said(tmp_path):
    states.save_state(tmp_path, 1, {"a": jnp.zeros(2, jnp.float64)}, {})
    with pytest.raises(InputError, match="holds float64 where float32 is used now; set JAX_ENABLE_X64"):
        states.load_state(tmp_path, {"a": jnp.zeros(2, jnp.float32)})


def resealed(run, step, **changes):
    path = run / "state" / f"{step:010d}.json"
    content = {
        name: value for name, value in json.loads(path.read_text()).items() if name != "seal"
    } | changes
    path.write_text(json.dumps(content | {"seal": states._seal(content)}))


def test_a_state_of_a_newer_format_is_said_and_kept(tmp_path):
    """It is not damaged, and the older one does not take its place: saving would remove it."""
    for step in (1, 2):
        states.save_state(tmp_path, step, example(), {})
    resealed(tmp_path, 2, format=3, more="unknown")
    with pytest.raises(
        Newer,
        match=r"the state 0000000002 of .* was written by a newer natgrad \(its format is 3, this one "
        r"knows 2\); update natgrad to use it",
    ):
        states.load_state(tmp_path, example())
    path = tmp_path / "state" / "0000000002.json"
    path.write_text(path.read_text().replace('"format": 3', '"format": 4'))  # not sealed so: damaged
    states.load_state(tmp_path, example())


def test_a_config_of_an_older_format_is_said(tmp_path):
    folder.create(tmp_path / "run", config.resolve({}))
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace("format = 4", "format = 1"))
    with pytest.raises(
        InputError,
        match=r"config.toml was written by an older natgrad \(its format is 1, this one knows 4\), whose "
        "settings had other names; rename them",
    ):
        folder.open_run(tmp_path / "run")


def test_a_config_of_format_2_is_read_without_what_had_no_effect(tmp_path):
    """It had the end of a schedule also where there is none; where there is one, it is read."""
    folder.create(tmp_path / "run", config.resolve({}))
    path = tmp_path / "run" / "config.toml"
    whole = path.read_text()
    assert "final_fraction" not in whole
    for schedule, found in (("constant", None), ("inverse-time", None), ("cosine", 0.5)):
        given = whole.replace("format = 4", "format = 2").replace(
            'schedule = "constant"', f'schedule = "{schedule}"\nfinal_fraction = 0.5'
        )
        path.write_text(given)
        _, settings = folder.open_run(tmp_path / "run")
        assert (settings.optimizer.final_fraction, settings.format) == (found, 4)


def test_a_config_of_format_3_is_read_with_its_british_spelling(tmp_path):
    chosen = config.resolve({"model": "mlp", "data": "mnist", "labeled": 7, "data.binarize": "gray"})
    folder.create(tmp_path / "run", chosen)
    path = tmp_path / "run" / "config.toml"
    former = path.read_text().replace("format = 4", "format = 3").replace("labeled", "labelled")
    path.write_text(former.replace('"gray"', '"grey"'))
    assert "labelled = 7" in path.read_text()
    assert 'binarize = "grey"' in path.read_text()
    assert folder.open_run(tmp_path / "run")[1] == chosen


def test_a_config_of_a_newer_format_is_said(tmp_path):
    folder.create(tmp_path / "run", config.resolve({}))
    text = (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "run" / "config.toml").write_text(text.replace("format = 4", 'format = 5\nfuture = "x"'))
    with pytest.raises(
        Newer, match=r"config.toml was written by a newer natgrad \(its format is 5, this one"
    ):
        folder.open_run(tmp_path / "run")
    folder.append(tmp_path / "run", {"epoch": 0})
    (line,) = list_runs(tmp_path)
    assert line["state"] == "newer"
    assert "written by a newer natgrad" in line["problem"]


def test_what_a_kill_left_half_written_goes_with_the_next_state(tmp_path):
    states.save_state(tmp_path, 1, example(), {})
    (tmp_path / "state" / ".0000000007.safetensors.tmp").write_bytes(b"half")
    states.save_state(tmp_path, 2, example(), {})
    assert not [name for name in files(tmp_path) if "tmp" in name]


def test_a_part_of_a_state_can_be_loaded_alone(tmp_path):
    states.save_state(tmp_path, 1, example(3.0), {})
    found, _ = states.load_state(tmp_path, {"weight": {"a": jnp.zeros((2, 3))}})
    assert float(found["weight"]["a"][1, 2]) == 3.0


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    folder.write(tmp_path / "a.txt", "old")
    monkeypatch.setattr(folder.os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        folder.write(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old"


def test_writing_leaves_no_temporary_file(tmp_path):
    folder.write(tmp_path / "a.txt", "new")
    states.save_state(tmp_path, 1, example(), {})
    assert not [path for path in tmp_path.rglob("*") if "tmp" in path.name]


def test_lines_are_strict_json():
    row = {"nan": float("nan"), "inf": [float("inf"), 1.5], "deep": {"x": (-float("inf"), None, True)}}
    assert json.loads(folder.json_line(row)) == {
        "nan": None,
        "inf": [None, 1.5],
        "deep": {"x": [None, None, True]},
    }
    assert "\n" not in folder.json_line({"text": "a\nb"})


def test_the_trace_comes_back_without_an_unfinished_line(tmp_path):
    assert list(folder.trace(tmp_path)) == []
    for epoch in range(3):
        folder.append(tmp_path, {"epoch": epoch, "loss": float("nan")})
    with (tmp_path / "trace.jsonl").open("a") as stream:
        stream.write('{"epoch": 3, "lo')
    assert list(folder.trace(tmp_path)) == [{"epoch": epoch, "loss": None} for epoch in range(3)]
    (tmp_path / "trace.jsonl").write_text('{"epoch": 0}\n{"epo\n{"epoch": 2}\n')
    with pytest.raises(InputError, match=r"line 2 of .*trace.jsonl is damaged; remove that line"):
        list(folder.trace(tmp_path))


def test_folders_are_fresh_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = config.resolve({"data": "some/own.npy", "method": "ws"})
    made = [str(folder.create(None, settings)) for _ in range(3)]
    assert made == ["runs/own-ws-1", "runs/own-ws-2", "runs/own-ws-3"]
    assert folder.open_run(made[1])[1] == settings


def test_folders_that_cannot_be_used_are_said(tmp_path):
    settings = config.resolve({})
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        InputError, match=r"the output folder .* is not empty; give another --out or remove it"
    ):
        folder.create(tmp_path, settings)
    for place in (tmp_path / "file", tmp_path / "file" / "run", "/proc/natgrad/run"):
        with pytest.raises(InputError, match=r"cannot write the run to .*: .*; give another --out"):
            folder.create(place, settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]
    assert folder.create(tmp_path / "empty", settings) == tmp_path / "empty"


def test_only_unrecorded_runs_are_discarded(tmp_path):
    settings = config.resolve({})

    def fail(name):
        with folder.new_run(tmp_path / name, settings) as run:
            if name == "kept":
                folder.append(run, {"epoch": 0})
            raise ZeroDivisionError

    for name in ("kept", "lost"):
        with pytest.raises(ZeroDivisionError):
            fail(name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_other_folders_are_no_runs(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match=r"is not a run folder \(it has no config.toml\); give a folder"):
            folder.open_run(place)


def test_the_environment_is_json():
    facts = json.loads(folder.json_line(surroundings()))
    assert {"python", "natgrad", "jax", "numpy"} <= set(facts["versions"])
    assert facts["x64"] is True
