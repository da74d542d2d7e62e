"""A map of points for a page: dots of a plane in the colors of their classes, as SVG without a script."""

from collections.abc import Iterator

import numpy as np

from natgrad.core import PointMap
from natgrad.report.markup import Markup, tag

_SIDE, _MARGIN = 320, 8  # of the picture, in its own units
COLORS_OF_CLASSES = 10
_RADII = (1, 2, 3)


def drawn_map(drawn: PointMap) -> Markup:
    """Dots, circles of radius one, two, three around the origin, and every class's number at its median."""
    points = np.asarray(drawn.points, np.float64)
    reach = 1.05 * max(1.0, float(np.abs(points).max(initial=0)))  # of every axis, to both sides
    middle, unit = _SIDE / 2, (_SIDE / 2 - _MARGIN) / reach
    places = middle + unit * points * (1, -1)  # upward is less in a picture
    circles = (
        tag("circle", cx=f"{middle:g}", cy=f"{middle:g}", r=f"{unit * radius:.1f}")
        for radius in _RADII
        if radius < reach
    )
    lines = (
        tag("path", d=f"M{middle:g} 0V{_SIDE}", class_="axis"),
        tag("path", d=f"M0 {middle:g}H{_SIDE}", class_="axis"),
    )
    content = (*lines, circles, _dots(places, drawn.classes))
    return tag("svg", content, viewBox=f"0 0 {_SIDE} {_SIDE}", class_="map", role="img")


def _dots(places: np.ndarray, classes: np.ndarray | None) -> Iterator[Markup]:
    """A path of dots for every class, then the numbers of the classes above all dots."""
    if classes is None:
        yield tag("path", d=_path(places), class_="c0")
        return
    found = np.unique(classes)
    for number, each in enumerate(found):
        yield tag("path", d=_path(places[classes == each]), class_=f"c{number % COLORS_OF_CLASSES}")
    for each in found:
        across, down = np.median(places[classes == each], axis=0)
        yield tag("text", str(each), x=f"{across:.1f}", y=f"{down:.1f}")


def _path(places: np.ndarray) -> str:
    """Lines of no length, which round ends make dots."""
    return "".join(f"M{across:.1f} {down:.1f}h0" for across, down in places)
