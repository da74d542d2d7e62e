"""The picture sections of a page: sheets by their captions, one card for each run."""

from collections.abc import Mapping, Sequence
from typing import Any

from natgrad.core import PointMap
from natgrad.report import tables
from natgrad.report.maps import drawn_map
from natgrad.report.markup import Child, Markup, join_markup, tag
from natgrad.report.pictures import Picture, Pictures, PictureSection
from natgrad.report.reading import Record


def through_training(records: Sequence[Record], pictures: Sequence[Pictures]) -> Markup | None:
    """What was kept of each run, with a slider over the epochs; and why there is nothing more to see."""
    if not any(shown.frames or shown.missing for shown in pictures):
        return None
    cards = (
        _card(number, record, _latest(shown), tag("p", shown.missing) if shown.missing else None)
        for number, (record, shown) in enumerate(zip(records, pictures, strict=True))
    )
    slider = tag("input", type="range", id="time", min=0, max=0, value=0, aria_label="Epoch")
    control = tag("p", tag("label", "Epoch ", tag("output", id="epoch"), " ", slider), class_="controls")
    kept = any(shown.frames for shown in pictures)
    return join_markup(control if kept else None, tag("div", cards, class_="cards"))


def panel_sections(records: Sequence[Record], pictures: Sequence[Pictures]) -> dict[str, Markup]:
    """The sections that the kinds have of their own, by title; a text that all share is shown once."""
    return {
        title: _panel(title, records, pictures)
        for title in dict.fromkeys(title for shown in pictures for title in shown.panels)
    }


def frames_for_script(shown: Pictures) -> list[dict[str, Any]]:
    """The frames of a run as the page's script reads them."""
    return [
        {"epoch": frame.epoch, "pictures": {caption: each.uri for caption, each in frame.pictures.items()}}
        for frame in shown.frames
    ]


def _panel(title: str, records: Sequence[Record], pictures: Sequence[Pictures]) -> Markup:
    found = {number: shown.panels[title] for number, shown in enumerate(pictures) if title in shown.panels}
    texts = list(dict.fromkeys(drawn.text for drawn in found.values()))
    same = len(texts) == 1

    def content(drawn: PictureSection) -> list[Child]:
        return [None if same else tag("p", drawn.text), _figures(drawn.pictures)]

    cards = (_card(number, records[number], content(drawn)) for number, drawn in found.items())
    return join_markup(tag("p", texts[0]) if same else None, tag("div", cards, class_="cards"))


def _latest(shown: Pictures) -> Markup:
    """The last picture of every caption that a run has."""
    latest = {caption: each for frame in shown.frames for caption, each in frame.pictures.items()}
    return _figures(latest) if latest else tag("p", "No pictures were kept.")


def _figures(pictures: Mapping[str, Picture | PointMap]) -> Markup:
    """Pictures by their captions; wide ones and maps below each other, matrices in pairs, others abreast."""
    shape = "sheets"
    if any(isinstance(each, PointMap) or each.wide for each in pictures.values()):
        shape = "sheets wide"
    elif any(isinstance(each, Picture) and each.square for each in pictures.values()):
        shape = "sheets paired"
    return tag("div", (_picture(caption, each) for caption, each in pictures.items()), class_=shape)


def _picture(caption: str, picture: Picture | PointMap) -> Markup:
    if isinstance(picture, PointMap):
        return tag("figure", drawn_map(picture), tag("figcaption", caption))
    shape = "table square" if picture.square else "table" if picture.table else None
    image = tag("img", src=picture.uri, alt=caption, class_=shape)
    return tag("figure", image, tag("figcaption", caption))


def _card(number: int, record: Record, *content: Child) -> Markup:
    """A run's part of a section."""
    return tag("div", tag("h3", tables.swatch(number), record.name), content, class_="card", data_card=number)
