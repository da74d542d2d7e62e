"""Grids of images: every pixel where it belongs, any shape, any number."""

import numpy as np
import pytest
from PIL import Image

from natgrad.core import Sheet
from natgrad.errors import InputError
from natgrad.evaluate.pictures import grid, save_samples, save_sheets

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_grid_holds_every_image_in_reading_order():
    images = np.arange(5 * 6, dtype=float).reshape(5, 6) / 30
    sheet = grid(images, (2, 3), columns=2)
    assert sheet.shape == (3 * 3 + 1, 2 * 4 + 1)
    for number, image in enumerate(images):
        top, left = (number // 2) * 3 + 1, (number % 2) * 4 + 1
        np.testing.assert_array_equal(sheet[top : top + 2, left : left + 3], image.reshape(2, 3))
    assert (sheet[0] == 0.5).all()
    assert (sheet[:, 4] == 0.5).all()


@pytest.mark.parametrize(("number", "shape"), [(1, (3, 3)), (7, (2, 5)), (64, None), (2, (1, 9))])
def test_any_number_and_shape_is_saved(tmp_path, number, shape):
    means = np.random.default_rng(0).random((number, shape[0] * shape[1] if shape else 11))
    save_samples(tmp_path / "a.png", means, (means > 0.5).astype(np.uint8), shape)
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_sheets_stand_side_by_side_under_their_captions(tmp_path):
    """Each in a square of its own, as large as fits: 2 x 3 images of 2 x 2 pixels are 7 x 10 with gaps."""
    pixels = np.arange(24.0).reshape(6, 4) / 24
    save_sheets(tmp_path / "a.png", {"first": Sheet(pixels, (2, 2), 3), "second": Sheet(pixels[:4], (2, 2))})
    drawn = np.asarray(Image.open(tmp_path / "a.png"))
    assert drawn.shape == (648, 1200)
    for panel, (height, width) in zip((drawn[:, :600], drawn[:, 600:]), ((7, 10), (7, 7)), strict=True):
        rows, columns = (np.flatnonzero((panel[48:] < 255).any(axis=axis)) for axis in (1, 0))
        seen = np.ptp(rows[-round(588 * height / width) :]) + 1, np.ptp(columns) + 1
        np.testing.assert_allclose(seen, (588 * height / width, 588), atol=1)
    written = (drawn[:40, 600:] < 128).any(axis=0)
    assert written[270:330].any()
    assert not written[:200].any()
    assert not written[400:].any()


def test_other_formats_are_written_as_their_names_say(tmp_path):
    save_sheets(tmp_path / "a.svg", {"first": Sheet(np.eye(4), (2, 2))})
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_no_sheets_are_no_picture(tmp_path):
    save_sheets(tmp_path / "a.png", {})
    assert list(tmp_path.iterdir()) == []


def test_unwritable_pictures_are_said(tmp_path):
    (tmp_path / "file").write_text("x")
    means = np.zeros((2, 4))
    for place in (tmp_path / "file" / "a.png", tmp_path / "none" / "a.png", tmp_path):
        with pytest.raises(
            InputError, match=r"cannot write the picture .*: .*; give a file you can write to"
        ):
            save_samples(place, means, means, None)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
