"""A real training: its gallery, its event files, its page with pictures, its place in the list."""

import base64
import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from natgrad.cli import tensorboard
from natgrad.cli.main import app
from natgrad.errors import InputError
from natgrad.records import gallery
from natgrad.report.listing import list_runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained") / "run"
    settings = "--method rws --layers 4 --epochs 2 --batch-size 256 --evaluation.every 1 --evaluation.rows 50"
    from natgrad.cli.main import _run

    _run(["train", *settings.split(), "--out", str(place), "--tensorboard", "--quiet", "--json"])
    return place


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Tag -> step -> value of every event file: records of (length, checksum, content, checksum)."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, dict[int, float]] = {}
    for path in folder.glob("events.out.tfevents.*"):
        raw, place = path.read_bytes(), 0
        while place < len(raw):
            (length,) = struct.unpack_from("<Q", raw, place)
            event = Event.FromString(raw[place + 12 : place + 12 + length])
            place += 16 + length
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


@pytest.mark.slow
def test_event_files_hold_what_the_trace_holds(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "trace.jsonl").read_text("utf-8").splitlines()]
    found = scalars(run)
    for name in ("test_ll", "valid_loss", "epoch", "gradient_norm"):
        expected = {row["step"]: row[name] for row in rows if row.get(name) is not None}
        assert found[name] == pytest.approx(expected, rel=1e-6)
    assert set(found["train_loss"]) == {row["step"] for row in rows[1:]}
    assert set(found["loss_of_late"]) == {row["step"] for row in rows[1:]}


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_its_events(run: Path, tmp_path: Path) -> None:
    from natgrad.cli.main import _run

    again = shutil.copytree(run, tmp_path / "run")
    _run(["resume", str(again), "--epochs", "4", "--tensorboard", "--quiet", "--json"])
    assert len(list(again.glob("events.out.tfevents.*"))) == 2
    rows = [json.loads(line) for line in (again / "trace.jsonl").read_text("utf-8").splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3, 4]
    assert scalars(again)["test_ll"] == pytest.approx({row["step"]: row["test_ll"] for row in rows}, rel=1e-6)
    assert set(scalars(again)["loss_of_late"]) == {row["step"] for row in rows[1:]}


def test_dotted_columns_become_groups_and_gaps_stay_gaps(tmp_path: Path) -> None:
    told: list[Any] = []

    class Bar:
        def advanced(self, steps: int, total: int, loss: float) -> None:
            told.append((steps, total, loss))

        def evaluated(self, row: dict[str, Any]) -> None:
            told.append(row)

    with tensorboard.watching(Bar(), tmp_path / "run") as watch:
        assert not (tmp_path / "run").exists()
        watch.evaluated({"step": 3, "generation.0.residual": 0.5, "train_loss": None})
        watch.advanced(4, 9, 1.5)
    assert scalars(tmp_path / "run") == {
        "step": {3: 3.0},
        "generation/0/residual": {3: 0.5},
        "loss_of_late": {4: 1.5},
    }
    assert told == [{"step": 3, "generation.0.residual": 0.5, "train_loss": None}, (4, 9, 1.5)]


def test_a_disk_that_refuses_events_ends_them_and_not_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("in the way", "utf-8")
    events = tensorboard.Events(tmp_path / "run")
    for steps in (1, 2):
        events.advanced(steps, 9, 1.5)
    events.close()
    assert [record.message for record in caplog.records] == [
        f"no more event files in {tmp_path / 'run'}: File exists"
    ]


def test_without_the_package_the_flag_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"needs the package tensorboardX; install it with pip install tensorboardX"
    ):
        tensorboard.Events(tmp_path)


def test_the_gallery_and_the_page_show_the_training(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = dict(gallery.pictures(run))
    assert list(kept) == [0, 5, 10]
    assert all(sheet.image_shape == (8, 8) for sheets in kept.values() for sheet in sheets.values())
    app(["report", str(run), "--json"])
    said = json.loads(capsys.readouterr().out)
    text = Path(said["report"]).read_text("utf-8")
    assert re.findall(r'alt="(test rows[^"]*)"', text) == ["test rows 1 to 10", "test rows 11 to 20"]
    source = re.search(r'<img src="data:image/png;base64,([^"]+)" alt="test rows', text)
    assert source is not None
    header = base64.b64decode(source[1])[16:24]
    assert struct.unpack(">II", header) == (91, 19)  # ten digits of 8 x 8 in two rows, one pixel apart
    assert "natgrad train --method rws --layers 4 --epochs 2" in text


def test_the_list_knows_it(run: Path) -> None:
    (line,) = list_runs(run.parent)
    assert (line["name"], line["state"], line["epochs"]) == ("run", "finished", 2)
    last = json.loads((run / "trace.jsonl").read_text("utf-8").splitlines()[-1])
    assert line["headline_value"] == last[line["headline"]]
