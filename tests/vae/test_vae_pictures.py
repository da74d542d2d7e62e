"""What a report shows: traversals, the map of latent vectors, and how a page draws it."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from natgrad.core import PointMap
from natgrad.evaluate.panels import in_unit_range, planar_map
from natgrad.models.vae.panels import latent_panels, prior_grid, traversed
from natgrad.report.maps import drawn_map

ROWS = np.random.default_rng(0).integers(0, 2, (30, 6)).astype(np.uint8)


class Stub:
    """A model whose latent vectors are the first values of a row, and whose data repeat them."""

    def __init__(self, latent):
        self.latent = latent

    def encode(self, rows):
        means = rows[:, : self.latent] * np.arange(1, self.latent + 1)
        return means, np.full_like(means, 0.5)

    def decode(self, latent):
        return np.tile(np.asarray(latent)[:, :1], (1, 6))

    def reconstruct(self, rows):
        return np.asarray(rows)


def panels(latent):
    labels = {"test": np.arange(30) % 3}
    dataset = SimpleNamespace(
        train=ROWS, test=ROWS, levels=1, resample=False, image_shape=(2, 3), labels=labels
    )
    config = SimpleNamespace(data=SimpleNamespace(split_seed=0))
    return latent_panels(SimpleNamespace(model=Stub(latent), config=config), dataset), dataset


def test_two_latent_units_are_shown_as_a_plane():
    found, _ = panels(2)
    (sheet,) = found["Latent traversals"].sheets.values()
    assert sheet.rows.shape == (144, 6)
    np.testing.assert_allclose(sheet.rows[:12, 0], prior_grid(12)[:12, 0])
    grid = prior_grid(12)
    assert grid[0, 0] < 0 < grid[0, 1]  # the upper left
    np.testing.assert_allclose(grid.mean(axis=0), 0, atol=1e-12)


def test_of_more_units_those_that_say_most_are_traversed_first():
    found, dataset = panels(4)
    ((caption, sheet),) = found["Latent traversals"].sheets.items()
    assert caption.startswith("units 3, 2, 1, 0; KL from ")
    assert sheet.rows.shape == (4 * 11, 6)
    line = traversed(np.array([5.0, 6.0, 7.0]), np.array([2]), np.array([-1.0, 1.0]))
    np.testing.assert_array_equal(line, [[5, 6, -1], [5, 6, 1]])
    drawn = found["Latent map"].sheets["means of q"]
    assert drawn.points.shape == (30, 2)
    order = np.random.default_rng(0).permutation(30)
    np.testing.assert_array_equal(drawn.classes, dataset.labels["test"][order])


def test_a_map_keeps_lengths_and_takes_the_widest_directions():
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    points = (rng.normal(size=(200, 5)) * [9, 4, 0, 0, 0]) @ turn
    dataset = SimpleNamespace(labels=None)
    found = planar_map(points, dataset, seed=0)
    assert found.classes is None
    np.testing.assert_allclose(
        np.linalg.norm(found.points, axis=1), np.linalg.norm(points, axis=1), rtol=1e-9
    )
    assert found.points[:, 0].std() > 1.5 * found.points[:, 1].std()
    assert planar_map(points[:, :1], dataset, seed=0).points.shape == (200, 2)
    real = SimpleNamespace(labels={"test": rng.normal(size=200)})
    assert planar_map(points, real, seed=0).classes is None


def test_a_page_draws_every_point_in_the_color_of_its_class():
    points = np.array([[0.0, 2.0], [2.0, 0.0], [-2.0, 0.0]])
    text = drawn_map(PointMap(points, np.array([3, 7, 7])))
    paths = re.findall(r'<path d="([^"]*h0)" class="(c\d)"', text)
    assert [(path.count("M"), color) for path, color in paths] == [(1, "c0"), (2, "c1")]
    across, down = map(float, re.match(r"M([\d.]+) ([\d.]+)h0", paths[0][0]).groups())
    assert across == pytest.approx(160)
    assert down < 40  # upward
    assert re.findall(r"<text[^>]*>(\d)</text>", text) == ["3", "7"]
    assert drawn_map(PointMap(points)).count("h0") == 3


def test_real_values_are_drawn_by_their_range():
    values = np.array([[-3.0, 1.0]])
    real = SimpleNamespace(train=np.array([[-3.0, 5.0]], np.float32))
    np.testing.assert_allclose(in_unit_range(real, values), [[0, 0.5]])
    assert in_unit_range(SimpleNamespace(train=ROWS), values) is values
