"""Pipes, devices and folders where files should be: nothing blocks, and a bad run hides no others."""

import os
import shutil
import time

import pytest

import natgrad
from hostile.attempts import sentence
from natgrad.errors import InputError
from natgrad.records import folder
from natgrad.records import state as states
from natgrad.relax.search import Search
from natgrad.report.listing import list_runs
from natgrad.report.making import report_runs
from trainings import SETTINGS, same

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def run(place, data):
    return natgrad.train(data=data, out=place / "run", **(SETTINGS | {"epochs": 1})).folder


@pytest.fixture
def copied(run, tmp_path):
    return shutil.copytree(run, tmp_path / "runs" / "bad")


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def inside(run, name):
    """A file of a run by its name, or those of its newest state by their ending."""
    return states.manifests(run)[0].with_suffix(name) if name.startswith(".") else run / name


@pytest.mark.parametrize("name", ["config.toml", "trace.jsonl", "environment.json", ".json", ".safetensors"])
@pytest.mark.parametrize("make", [pipe, endless, os.mkdir], ids=["pipe", "device", "folder"])
@pytest.mark.few(5)
def test_what_is_not_a_file_is_passed_over_or_refused(copied, run, name, make, tried):
    shutil.copytree(run, copied.parent / "good")
    path = inside(copied, name)
    path.unlink()
    make(path)
    for read in (natgrad.load, natgrad.resume, lambda place: report_runs([place], out=copied.parent / "r")):
        sentence(lambda read=read: read(copied))
    listed = {line["name"]: line for line in list_runs(copied.parent)}
    assert listed["good"]["state"] == "finished"
    tried("files that are none", 4)


def test_a_lock_that_is_a_pipe_does_not_block(copied):
    (copied / "state" / "lock").unlink(missing_ok=True)
    os.mkfifo(copied / "state" / "lock")
    assert list_runs(copied.parent)[0]["state"] == "finished"


def test_arrays_without_their_manifest_are_swept(copied):
    """A kill between two unlinks leaves arrays that no manifest names."""
    orphan = copied / "state" / "0000000001.safetensors"
    orphan.write_bytes(b"left behind")
    natgrad.resume(copied, epochs=2)
    assert not orphan.exists()
    assert len(states.manifests(copied)) == len(list((copied / "state").glob("*.safetensors")))


def test_a_full_disk_before_the_first_record_promises_nothing(tmp_path):
    with pytest.raises(InputError, match="nothing had been recorded yet"), folder.writing(tmp_path):
        raise OSError(28, "No space left on device")
    (tmp_path / "trace.jsonl").touch()
    with pytest.raises(InputError, match="what was saved before is kept"), folder.writing(tmp_path):
        raise OSError(28, "No space left on device")


def test_a_search_that_changed_on_the_disk_is_not_continued(tmp_path, tried):
    search = Search(3, seed=1)
    search.tell([1.0] * len(search.ask()))
    search.save(tmp_path)
    assert Search.load(tmp_path).evaluations == search.evaluations
    path = tmp_path / "search.safetensors"
    whole = path.read_bytes()
    for place in range(len(whole) - 1, len(whole) - 800, -37):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(InputError, match="holds no readable search"):
            Search.load(tmp_path)
        tried("flipped bits")


@pytest.mark.parametrize("take", [shutil.copytree, os.rename], ids=["copied", "moved"])
@pytest.mark.few(0)
def test_a_run_that_is_elsewhere_continues_as_it_would_have(take, run, copied, tmp_path, monkeypatch, tried):
    """Also where clocks went back and files seem to be of the future: nothing is decided by them."""
    natgrad.resume(copied, epochs=3)
    start = shutil.copytree(run, tmp_path / "start")
    take(start, tmp_path / "elsewhere")
    days = iter(range(10**6, 0, -1))
    monkeypatch.setattr(time, "time", lambda: 86400.0 * next(days))
    for path in (tmp_path / "elsewhere").rglob("*"):
        os.utime(path, (4e9 - len(path.name), 4e9 - len(path.name)))
    natgrad.resume(tmp_path / "elsewhere", epochs=3)
    same(tmp_path / "elsewhere", copied)
    tried("runs elsewhere")
