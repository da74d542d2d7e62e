"""Files are replaced whole: a disk that fails leaves the old one, and nothing under a temporary name."""

import errno
import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import cases
from natgrad import writing
from natgrad.errors import InputError
from natgrad.evaluate.pictures import save_figure
from natgrad.models.helmholtz import export
from natgrad.records import folder
from natgrad.relax import saved
from natgrad.relax.figures import draw_ball
from natgrad.relax.runs import plot

SENTENCES = {
    "plain": None,
    "search": "cannot save the search to .*: No space left on device; give a folder you can write to",
    "model": "cannot write the model to .*: No space left on device; give a file you can write to",
    "picture": "cannot write the picture .*: No space left on device; give a file you can write to",
    "convergence": "cannot write the picture .*: No space left on device; give a file you can write to",
    "flow": "cannot write the picture .*: No space left on device; give a file you can write to",
}
HISTORY = dict.fromkeys(("evaluations", "best", "generation_median"), np.arange(3.0))
WRITERS = {
    "plain": lambda path: writing.write(path, b"new"),
    "search": lambda path: saved.write_search(path.parent, {"a": np.zeros(2)}, {}),
    "model": lambda path: export.save_model(path, cases.machine((3, 2))),
    "picture": lambda path: save_figure(path, Figure()),
    "convergence": lambda path: plot(path, "sphere", HISTORY),
    "flow": draw_ball,
}


def full(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


@contextmanager
def refused(sentence):
    with pytest.raises(InputError if sentence else OSError, match=sentence or "No space left on device"):
        yield


@pytest.mark.few(3)
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(name, call, tmp_path, monkeypatch):
    """Every writer of the package has its bytes on the disk before it gives them the file's name."""
    path = tmp_path / saved.NAME
    path.write_bytes(b"old")
    with monkeypatch.context() as patched:
        patched.setattr(writing.os if call == "fsync" else writing.Path, call, full)
        with refused(SENTENCES[name]):
            WRITERS[name](path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    WRITERS[name](path)
    assert path.read_bytes() != b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_through_a_link(name, tmp_path):
    """A link under the temporary name is removed: what it points to is somebody else's."""
    other = tmp_path / "other"
    other.write_bytes(b"theirs")
    (tmp_path / "here").mkdir()
    path = tmp_path / "here" / saved.NAME
    path.with_name(f".{path.name}.tmp").symlink_to(other)
    WRITERS[name](path)
    assert other.read_bytes() == b"theirs"
    assert not path.is_symlink()


def test_files_grow_at_their_end(tmp_path):
    for text in ("a\n", b"b\n"):
        writing.extend(tmp_path / "trace", text)
    assert (tmp_path / "trace").read_text() == "a\nb\n"
    folder.append(tmp_path, {"a": 1})
    folder.append(tmp_path, {"a": 2})
    assert list(folder.trace(tmp_path)) == [{"a": 1}, {"a": 2}]


def test_a_picture_has_the_format_of_its_name(tmp_path):
    save_figure(tmp_path / "a.svg", Figure())
    assert "<svg" in (tmp_path / "a.svg").read_text()
    save_figure(tmp_path / "a.other", Figure())
    assert (tmp_path / "a.other").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("linked", [False, True])
def test_what_is_not_a_file_is_not_replaced(tmp_path, linked):
    """The superuser who names a device as output would lose it, and so would everybody else."""
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "pipe"
    if linked:
        path = tmp_path / "link"
        path.symlink_to("pipe")
    with pytest.raises(OSError, match="Not a file"):
        writing.write(path, b"new")
    with pytest.raises(
        InputError, match=r"cannot write the picture .*: Not a file; give a file you can write to"
    ):
        save_figure(path, Figure())
    assert (tmp_path / "pipe").is_fifo()
    assert path.is_symlink() == linked


@pytest.mark.parametrize("place", ["/dev/stdout", "/dev/report.html", "/proc/report.html", "/dev/fd/9"])
def test_no_file_is_put_among_devices(place):
    """Only asked, not tried."""
    with pytest.raises(OSError, match="Not a"):
        writing.check_replaceable(Path(place))
    writing.check_replaceable(Path("/dev/shm/report.html"))
