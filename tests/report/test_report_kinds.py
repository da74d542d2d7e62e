"""A kind of model that nobody knows, listed and reported by what its spec says: nothing goes by its name."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from made_specs import Toy
from rich.text import Text

from natgrad.cli.main import app
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.report import charts, columns, differences, pictures, tables
from natgrad.report.listing import list_runs
from natgrad.report.making import report_runs
from natgrad.report.reading import read_run

pytestmark = pytest.mark.usefixtures("toy")


def row(epoch: int, hits: float) -> dict[str, Any]:
    """A row of a toy's trace: no likelihood, and two parts with a layer each."""
    found: dict[str, Any] = {"epoch": epoch, "step": epoch, "seconds": 0.5 * epoch, "train_loss": 1.0}
    found |= {"valid_loss": 1 - hits, "valid_hits": hits, "test_hits": hits / 2}
    return found | {"left.0.residual": 0.1, "right.0.residual": 0.2, "left.0.spin": 0.3}


def toy_run(make: Any, name: str, *hits: float, **settings: Any) -> Path:
    return make(name, chosen=Toy(**settings), rows=[row(epoch, hit) for epoch, hit in enumerate(hits)])


def test_runs_are_listed_by_their_kinds_own_figure(make: Any, tmp_path: Path) -> None:
    toy_run(make, "runs/good", 0.1, 0.8, 0.2)
    toy_run(make, "runs/better", 0.1, 0.9, 0.1)
    toy_run(make, "runs/none")
    make("runs/other", data="somewhere")
    found = list_runs(tmp_path / "runs")
    assert [line["name"] for line in found if line["kind"] == "toy"] == ["better", "good", "none"]
    better = next(line for line in found if line["name"] == "better")
    assert (better["headline"], better["headline_title"]) == ("test_hits", "hits")
    assert (better["criterion"], better["best_criterion"], better["headline_value"]) == (
        "valid_hits",
        0.9,
        0.45,  # of the state that is used
    )
    assert (better["valid"], better["valid_value"], better["best_epoch"]) == ("valid_hits", 0.9, 1)
    assert next(line["headline"] for line in found if line["name"] == "other") == "test_ll"


def test_the_list_has_a_table_for_each_figure_and_fits_a_terminal(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy_run(make, "runs/toys/one-with-a-name-that-no-terminal-has-room-for", 0.1, 0.8)
    make("runs/other", epochs=1)
    (make("runs/bad") / "trace.jsonl").write_text("{\n{}\n", "utf-8")
    app(["runs", str(tmp_path / "runs")])
    whole = capsys.readouterr().out
    assert "toys/one-with-a-name-that-no-terminal-has-room-for" in whole
    assert whole.count("seconds") == 0
    assert len(re.findall(r"^run .* s +state", whole, re.MULTILINE)) == 2
    assert re.search(r"1/3 +1 +0\.8000 +40\.00% +0\.5 +unfinished", whole)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    app(["runs", str(tmp_path / "runs")])
    narrow = [Text.from_ansi(line).plain for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, narrow[:-1])) <= 80
    named = [
        line for line in narrow if line.startswith("toys/one-with-a-name-that-no-terminal-has-room-for ")
    ]
    assert len(named) > 1  # one table does not have room for all columns
    assert all(any(figure in line for line in named) for figure in ("0.8000", "40.00%", "unfinished"))


def test_charts_and_figures_come_from_the_spec(make: Any) -> None:
    record = read_run(toy_run(make, "run", 0.1, 0.8, 0.6))
    learned = charts.learning([record])
    assert re.findall(r'data-y="([^"]*)"', learned)[::2] == ["train_loss valid_loss", "valid_hits test_hits"]
    assert "<b>Hits</b> <small>per shot; dashed: validation hits, solid: hits</small>" in learned
    assert re.findall(r'data-y="([^"]*)"', charts.layers([record])) == ["residual", "spin"]
    assert charts.step([record]) == ""
    shown = tables.figures_of(record)
    assert {name: shown[name] for name in ("hits", "valid loss", "of epoch")} == {
        "hits": "40.00%",
        "valid loss": "0.2000",
        "of epoch": 1,
    }
    assert (shown["kind"], shown["widths"], next(iter(shown))) == ("toy", [3, 2], "hits")
    assert "test LL" not in shown


def test_the_page_holds_runs_of_several_kinds(make: Any, tmp_path: Path) -> None:
    first, second = toy_run(make, "toys", 0.1, 0.8), make("others", data="somewhere", epochs=2)
    head = re.findall(r"<th[^>]*>([^<]+)</th>", tables.final_figures([read_run(first), read_run(second)]))
    assert head[:4] == ["run", "hits", columns.described(["helmholtz"])["test_ll"].title, "train loss"]
    report_runs([first, second], out=tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "different kinds of model: their losses may not be comparable" in text
    assert [name for name in ("valid_hits test_hits", "test_ll", "kl") if f'data-y="{name}"' in text] == [
        "valid_hits test_hits",
        "test_ll",
    ]
    assert re.findall(r"<h3><span[^>]*></span>(\w+)</h3><pre>(.*?)</pre>", text) == [
        ("toys", "natgrad train --model toy"),
        ("others", "natgrad train --data somewhere --layers 6,3 --epochs 2"),
    ]
    block = re.search(r'id="runs">(.*?)</script>', text, re.DOTALL)
    assert block is not None
    told = json.loads(block[1])
    assert told["curves"]["valid_hits"] == {"title": "validation hits", "line": "dashed", "error": ""}
    assert told["curves"]["test_ll"]["error"] == "test_ll_se"
    assert [list(frame["pictures"]) for frame in told["runs"][0]["frames"]] == [["means", "units"]] * 2


def test_a_kinds_panels_are_sections_and_what_fails_is_said(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [toy_run(make, name, 0.1) for name in ("one", "two")]
    report_runs(runs, out=tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    said = re.findall(r"Nothing more can be shown: [^<]* holds no readable state; [^<]*\.</p>", text)
    assert len(said) == 2
    assert "panel-" not in text
    monkeypatch.setattr(pictures, "load", lambda folder: folder)
    monkeypatch.setattr(pictures, "load_settings", lambda data: data.name)
    report_runs(runs, out=tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    section = text[text.index('id="panel-tracks"') :]
    section = section[: section.index("</section>")]
    assert section.count("Where the toy went.") == 1
    assert re.findall(r'alt="([^"]*)"', section) == ["there and back"] * 2
    assert "Nothing more can be shown" not in text


def test_a_kind_that_is_not_installed_is_shown_by_the_names_of_its_columns(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = read_run(toy_run(make, "run", 0.1, 0.8))
    monkeypatch.delitem(registry.FOLDERS, "toy")
    assert columns.headline("toy", {}) is None
    assert columns.criterion("toy").name == "valid_loss"
    assert re.findall(r"<b>(.*?)</b>", charts.step([record])) == ["Test hits", "Valid hits"]
    assert tables.figures_of(record)["valid loss"] == "0.2000"
    monkeypatch.setattr(pictures, "load", lambda folder: folder)
    with pytest.raises(InputError, match="the kind of model 'toy' is not known here; install the package"):
        pictures.drawn_panels(record)


def test_rows_too_large_are_not_drawn(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    record = read_run(toy_run(make, "run", 0.1))
    monkeypatch.setattr(pictures, "load", lambda folder: folder)
    monkeypatch.setattr(pictures, "load_settings", lambda data: data.name)
    monkeypatch.setattr(pictures, "_LARGEST", 1)
    with pytest.raises(InputError, match="rows of 2 values are too large to be drawn here"):
        pictures.drawn_panels(record)


def test_what_decides_defaults_is_told_only_where_it_is_not_the_default() -> None:
    assert differences.command(Toy(method="jump")) == "natgrad train --model toy --method jump"
    assert differences.unusual(Toy(method="jump", seed=3)) == {"seed": 3}
