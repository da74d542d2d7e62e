"""The page: escaped, self-contained, whole whatever the runs hold; its pictures decode to what was drawn."""

import base64
import io
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import HOSTILE, make_run
from made_specs import Toy
from safetensors.numpy import save

from natgrad.cli.main import app
from natgrad.core import Sheet
from natgrad.errors import InputError
from natgrad.records import gallery
from natgrad.report import charts, png
from natgrad.report.making import report_runs
from natgrad.report.markup import Markup, join_markup, tag
from natgrad.report.page import report_page
from natgrad.report.pictures import Pictures, frames
from natgrad.report.reading import read_run


class Reader(HTMLParser):
    """The page as a browser's parser sees it: elements with their attributes, and the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.inside = "", ""
        self.feed(text)

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        self.inside = name

    def handle_data(self, data: str) -> None:
        self.text += "" if self.inside in ("script", "style") else data

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.elements if found == name]


def page_of(*runs: Path, out: Path) -> str:
    report_runs(runs, out=out)
    return out.read_text("utf-8")


def numbers(text: str) -> list[dict[str, Any]]:
    block = re.search(r'<script type="application/json" id="runs">(.*?)</script>', text, re.DOTALL)
    assert block is not None
    return json.loads(block[1])["runs"]


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "<b>", Markup("<i></i>"), None, ["&", 3]) == "<p>&lt;b&gt;<i></i>&amp;3</p>"
    assert tag("a", title='"x"', hidden=True, lang=None) == '<a title="&quot;x&quot;" hidden></a>'
    assert join_markup("<", join_markup("<")) == "&lt;&lt;"


def test_a_hostile_run_stays_text(make: Any, tmp_path: Path) -> None:
    place = make(HOSTILE, data=f"</script><script>alert(2)</script>{HOSTILE}")
    facts = {"versions": {"natgrad": HOSTILE}, HOSTILE: "</script>" + HOSTILE}
    (place / "environment.json").write_text(json.dumps(facts), "utf-8")
    trace = [{"epoch": 0, "step": 0, "valid_loss": 1.0, HOSTILE: 2.0, "</script>" + HOSTILE: 3.0}]
    (place / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in trace), "utf-8")
    text = page_of(place, out=tmp_path / "page.html")
    seen = Reader(text)
    assert len(seen.of("script")) == 2
    assert all("onerror" not in attributes for _, attributes in seen.elements)
    assert {str(image["src"])[:22] for image in seen.of("img")} == {"data:image/png;base64,"}
    assert HOSTILE in seen.text
    assert numbers(text)[0]["name"] == HOSTILE


def test_the_page_asks_the_network_for_nothing_and_admits_only_its_own_script(
    make: Any, tmp_path: Path
) -> None:
    text = page_of(make("run"), out=tmp_path / "page.html")
    seen = Reader(text)
    addresses = [a[key] for _, a in seen.elements for key in ("src", "href") if key in a]
    assert addresses
    assert all(str(address).startswith("data:") for address in addresses)
    assert "@import" not in text
    assert "url(" not in text
    policy = next(str(a["content"]) for a in seen.of("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not [name for _, a in seen.elements for name in a if name.startswith("on") or name == "style"]


def test_numbers_travel_with_their_gaps(make: Any, tmp_path: Path) -> None:
    (run,) = numbers(page_of(make("run", epochs=2), out=tmp_path / "page.html"))
    assert run["columns"]["epoch"] == [0, 1, 2]
    assert run["columns"]["train_loss"] == [None, 5.4, 4.9]
    assert [frame["epoch"] for frame in run["frames"]] == [0, 1, 2]


def test_long_traces_are_thinned_with_their_last_row(make: Any) -> None:
    rows = [{"epoch": n, "step": n, "valid_loss": 1 / (n + 1)} for n in range(2 * charts.POINTS + 7)]
    found = charts.columns_for_script(read_run(make("run", rows=rows, pictures=False)))["columns"]["epoch"]
    assert len(found) <= charts.POINTS + 1
    assert (found[0], found[-1]) == (0, 2 * charts.POINTS + 6)


def test_charts_are_what_the_traces_hold(make: Any) -> None:
    plain, natural = read_run(make("plain", method="rws")), read_run(make("natural"))
    assert 'data-x="seconds"' in charts.learning([plain])
    assert 'data-y="train_loss valid_loss"' in charts.learning([plain])
    assert 'data-y="kl"' not in charts.learning([plain])
    assert charts.layers([plain]) == ""
    of_layers = re.findall(r'data-y="(\w+)"', charts.layers([plain, natural]))
    assert of_layers == ["gradient_norm", "cosine", "residual"]
    assert "steps_refused" not in charts.step([natural])  # zero throughout
    odd = read_run(make("odd", rows=[{"epoch": 0, "step": 0, "new_figure": 0.0, "steps_refused": 2}]))
    assert re.findall(r'data-y="(\w+)"', charts.step([odd])) == ["steps_refused", "new_figure"]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"epoch": 0, "step": 0, "seconds": 0.0, "train_loss": None, "valid_loss": 5.0, "test_ll": -5.0}],
        [{"epoch": 0, "step": 0, "valid_loss": None, "test_ll": None}],
        [{"epoch": 0}, {"epoch": None}, {"epoch": 1, "test_ll": -3.5, "kl": 0.1}],
    ],
)
def test_runs_with_little_in_them_have_a_page(make: Any, tmp_path: Path, rows: list[Any]) -> None:
    little = make("little", rows=rows, pictures=False)
    seen = Reader(page_of(little, make("whole", data="3by3"), out=tmp_path / "page.html"))
    assert "Not finished: little." in seen.text
    assert "different data (little: digits, round; whole: 3by3): their losses and figures" in seen.text
    assert Reader(page_of(little, out=tmp_path / "one.html")).text.count("little") >= 3


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
COLUMN = st.sampled_from(["epoch", "step", "seconds", "test_ll", "kl", "left.0.residual", "valid_loss"])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.dictionaries(COLUMN | st.text(max_size=8), ANYTHING, max_size=6), max_size=4),
    facts=ANYTHING,
    notes=ANYTHING,
)
def test_whatever_a_run_folder_holds_there_is_a_page(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], facts: Any, notes: Any
) -> None:
    place = make_run(tmp_path_factory.mktemp("any") / "run", rows=[])
    (place / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (place / "environment.json").write_text(json.dumps(facts), "utf-8")
    (place / "state" / "0000000000.json").write_text(json.dumps({"notes": notes}), "utf-8")
    record = read_run(place)
    text = report_page([record, record], [Pictures(frames(record), {}, "none")] * 2)
    seen = Reader(text)
    assert len(seen.of("script")) == 2
    assert len(numbers(text)) == 2
    assert "</html>" in text


def test_one_run_tells_its_unusual_settings_and_several_their_differences(make: Any, tmp_path: Path) -> None:
    first, second = make("first", epochs=2), make("second", epochs=2, seed=5)
    one = page_of(first, out=tmp_path / "one.html")
    shown = one[one.index('id="settings"') : one.index("<details>")]
    assert re.findall(r"<tr><th>([\w.]+)</th>", shown) == ["model.layers", "training.epochs"]
    two = page_of(first, second, out=tmp_path / "two.html")
    shown = two[two.index('id="settings"') : two.index("<details>")]
    assert re.findall(r"<tr><th>([\w.]+)</th>", shown) == ["seed"]
    assert "natgrad train --seed 5 --layers 6,3 --epochs 2" in two


def test_a_setting_that_one_run_alone_has_is_told_if_it_is_unusual(
    make: Any, toy: None, tmp_path: Path
) -> None:
    toys, usual = make("toys", chosen=Toy(seed=1)), make("usual", epochs=3, data="somewhere")
    unusual = make("unusual", epochs=3, data="somewhere", **{"training.save_seconds": 5.0})
    for other, expected in ((usual, []), (unusual, ["training.save_seconds"])):
        text = page_of(toys, other, out=tmp_path / "page.html")
        shown = text[text.index('id="settings"') : text.index("<details>")]
        names = re.findall(r"<tr><th>([\w.]+)</th>", shown)
        assert sorted(names) == ["method", "model.kind", "model.layers", "seed", *expected]


def test_the_report_goes_where_it_should_and_leaves_nothing_else(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = make("first"), make("second")
    before = set(first.iterdir())
    app(["report", str(first), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["report"] == str(first / "report.html")
    assert said["bytes"] == (first / "report.html").stat().st_size
    assert set(first.iterdir()) - before == {first / "report.html"}
    app(["report", str(first), str(second)])
    assert "report.html" in capsys.readouterr().out
    assert (tmp_path / "report.html").is_file()


def test_a_report_that_cannot_be_written_says_so(make: Any, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"cannot write the report .*give a file you can write to with --out"
    ):
        report_runs([make("run")], out=tmp_path / "absent" / "page.html")


def test_a_report_of_nothing_is_a_mistake() -> None:
    with pytest.raises(InputError, match="expected at least one run folder, got none"):
        report_runs([])


def test_png_holds_the_pixels_and_the_clear_value() -> None:
    from matplotlib.image import imread

    pixels = np.array([[0, 255, 17], [png.CLEAR, 34, 51]], np.uint8)
    read_back = imread(io.BytesIO(png.encode_png(pixels)), format="png")
    gray = read_back[..., 0] if read_back.ndim == 3 else read_back
    assert np.array_equal(np.round(gray * 255).astype(np.uint8), pixels)
    assert b"tRNS\x00\x80" in png.encode_png(pixels)
    assert base64.b64decode(png.data_uri(pixels).removeprefix("data:image/png;base64,")) == png.encode_png(
        pixels
    )


def test_pictures_of_images_are_square_sheets_and_of_other_rows_tables(make: Any) -> None:
    def size(uri: str) -> tuple[int, ...]:
        raw = base64.b64decode(uri.partition(",")[2])
        return int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")

    place = make("run", epochs=1)
    found = frames(read_run(place))
    assert [frame.epoch for frame in found] == [0, 1]
    for frame in found:
        assert list(frame.pictures) == ["means", "units"]
        assert size(frame.pictures["means"].uri) == (9, 9)  # 2 x 2 images of 3 x 3, one pixel apart
        assert size(frame.pictures["units"].uri) == (5, 4)  # 4 rows of 5 values
        assert [each.table for each in frame.pictures.values()] == [False, True]
    rows = np.zeros((4, 6))
    gallery.keep(
        place, 10, {"a line": Sheet(rows, (2, 3), columns=4), "too large": Sheet(np.zeros((1, 5000)))}
    )
    (line,) = frames(read_run(place))[-1].pictures.values()
    assert (size(line.uri), line.wide) == ((17, 4), True)


def test_damaged_pictures_and_unknown_steps_are_left_out(make: Any) -> None:
    place = make("run", epochs=3)
    files = sorted((place / "gallery").iterdir())
    files[0].write_bytes(b"")
    files[1].write_bytes(zlib.compress(b"nonsense"))
    files[2].rename(place / "gallery" / "0000009999.safetensors")
    (place / "gallery" / "..safetensors").write_bytes(b"x")
    assert [frame.epoch for frame in frames(read_run(place))] == [3]


def test_a_gallery_keeps_rows_whatever_their_order_in_memory(tmp_path: Path) -> None:
    rows = np.arange(12.0).reshape(4, 3) / 12
    turned = np.asfortranarray(rows)
    gallery.keep(tmp_path, 1, {"rows": Sheet(rows), "turned": Sheet(turned)})
    ((_, found),) = gallery.pictures(tmp_path)
    np.testing.assert_allclose(found["rows"].rows, rows, atol=1 / 255)
    np.testing.assert_array_equal(found["turned"].rows, found["rows"].rows)


def test_a_gallery_keeps_sheets_thinned_over_the_whole(tmp_path: Path) -> None:
    rows = np.linspace(-0.1, 1.1, 4 * 30).reshape(30, 4)
    sheets = {"z": Sheet(rows, (2, 2), 5), "a <b>": Sheet(np.array([[np.nan, 0.5]]))}
    for step in range(0, 10 * gallery.KEPT + 10, 10):
        gallery.keep(tmp_path, step, sheets)
    found = dict(gallery.pictures(tmp_path))
    assert list(found) == list(range(0, 10 * gallery.KEPT + 10, 20))
    assert list(found[0]) == ["z", "a <b>"]
    first, second = found[0].values()
    assert first.rows.shape == (gallery.PICTURES, 4)
    np.testing.assert_allclose(first.rows, np.clip(rows[: gallery.PICTURES], 0, 1), atol=0.5 / 255)
    assert (first.image_shape, first.columns) == ((2, 2), 5)
    assert (second.image_shape, second.columns) == (None, None)
    np.testing.assert_allclose(second.rows, [[0, 128 / 255]])
    gallery.keep(tmp_path, 1, {})
    gallery.keep(tmp_path / "no folder", 1, sheets)  # pictures are no reason to stop
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "gallery").symlink_to(tmp_path / "gallery")
    gallery.keep(tmp_path / "other", 1, sheets)  # nor to touch another folder
    assert 1 not in dict(gallery.pictures(tmp_path))


@pytest.mark.parametrize(
    ("layout", "kept"),
    [
        ({"image_shape": [3, 4], "columns": 2}, ((3, 4), 2)),
        ({"image_shape": [2, 9], "columns": 10**9}, (None, None)),
        ({"image_shape": [-3, -4], "columns": 0}, (None, None)),
        ({"image_shape": [12.0, True], "columns": "2"}, (None, None)),
        ({"image_shape": {"0": 3}, "columns": [2]}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_a_gallerys_layout_is_not_believed(tmp_path: Path, layout: Any, kept: Any) -> None:
    gallery_of(tmp_path, {"a": np.zeros((40, 12), np.uint8)}, json.dumps({"a": layout}))
    ((_, sheets),) = gallery.pictures(tmp_path)
    assert (sheets["a"].image_shape, sheets["a"].columns) == kept
    assert len(sheets["a"].rows) == gallery.PICTURES


@pytest.mark.parametrize("layout", [None, "", "[1]", "3", "{}", '{"b": {}}', '{"a": 3}', "[" * 10_000])
def test_a_file_that_is_no_gallery_is_left_out(tmp_path: Path, layout: str | None) -> None:
    gallery_of(tmp_path, {"a": np.zeros((2, 12), np.uint8)}, layout)
    assert list(gallery.pictures(tmp_path)) == []


def test_arrays_that_are_no_sheets_are_left_out_and_many_are_cut(tmp_path: Path) -> None:
    arrays = {
        "float": np.zeros((2, 3), np.float32),
        "deep": np.zeros((2, 3, 4), np.uint8),
        "empty": np.zeros((0, 3), np.uint8),
        **{str(number): np.zeros((1, 1), np.uint8) for number in range(2 * gallery.SHEETS)},
    }
    gallery_of(tmp_path, arrays, json.dumps({key: {} for key in arrays}))
    ((_, sheets),) = gallery.pictures(tmp_path)
    assert list(sheets) == [str(number) for number in range(gallery.SHEETS - 3)]


def gallery_of(place: Path, arrays: dict[str, np.ndarray], layout: str | None) -> None:
    (place / "gallery").mkdir()
    content = save(arrays, None if layout is None else {"sheets": layout})
    (place / "gallery" / "0000000000.safetensors").write_bytes(content)
