"""One page for one run or several: self-contained, no network, nothing executed but its own script.

Text from run folders is escaped by `markup`; numbers travel as JSON in a block that is never executed;
a content security policy admits the one script and the one style sheet by their checksums.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from natgrad.records.folder import json_line
from natgrad.report import charts, differences, tables
from natgrad.report.markup import Child, Markup, join, tag
from natgrad.report.pictures import Frame, shape_of
from natgrad.report.reading import FINISHED, Record

Pictures = Sequence[tuple[Sequence[Frame], Mapping[str, str] | Markup]]
"""For each run: the dreams through training, and reconstructions by caption or why there are none."""


def page(records: Sequence[Record], pictures: Pictures) -> str:
    """The whole page."""
    style, script = (
        files("natgrad.report").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js")
    )
    body = join(
        tag("header", tag("h1", _title(records)), tag("p", _subtitle(records))),
        _legend(records),
        tag("main", _sections(records, pictures)),
        tag("script", Markup(_data(records, pictures)), type="application/json", id="runs"),
        tag("script", Markup(script)),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{_title(records)} · natgrad"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(style)),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", body), lang="en") + "\n"


def _sections(records: Sequence[Record], pictures: Pictures) -> Markup:
    measured = any(record.rows for record in records)
    none = tag("p", "Nothing has been evaluated yet.")
    return join(
        _section("Figures", _warnings(records), tables.figures(records)),
        _section(
            "Learning", _range(), tag("div", charts.learning(records), class_="charts") if measured else none
        ),
        _section("Dreams", _dreams(records, pictures)),
        _section("Reconstructions", _reconstructions(records, pictures)),
        _section("Steps", tag("div", charts.step(records), class_="charts")),
        _section("Layers", _layers(records)),
        _section("Settings", tables.settings(records)),
        _section("Environment", tables.environment(records)),
        _section("Repeat", tables.commands(records)),
    )


def _section(title: str, *content: Child) -> Markup | None:
    """A section, or nothing where it would be empty."""
    inside = join(*content)
    if not inside or inside == '<div class="charts"></div>':
        return None
    return tag("section", tag("h2", title), inside, id=title.lower())


def _legend(records: Sequence[Record]) -> Markup:
    buttons = (
        tag(
            "button",
            tables.swatch(number),
            record.name,
            type="button",
            data_toggle=number,
            aria_pressed="true",
        )
        for number, record in enumerate(records)
    )
    return tag("nav", buttons, id="legend", aria_label="Runs: press to hide or show")


def _range() -> Markup:
    """What the vertical axes must hold; the start of a training dwarfs what comes after it."""
    choices = (("whole range", 0), ("after the start", 0.1), ("late half", 0.5))
    buttons = (
        tag("button", name, type="button", data_from=str(share), aria_pressed=str(share == 0.1).lower())
        for name, share in choices
    )
    return tag("p", "Vertical axes: ", tag("span", buttons, class_="choice"), class_="controls")


def _layers(records: Sequence[Record]) -> Markup | None:
    drawn = charts.layers(records)
    if not drawn:
        return None
    options = (tag("option", record.name, value=number) for number, record in enumerate(records))
    choice = tag("label", "Run: ", tag("select", options, id="layers-of"))
    keys = tag("span", id="layer-keys")
    return join(tag("p", choice, keys, class_="controls"), tag("div", drawn, class_="charts"))


def _dreams(records: Sequence[Record], pictures: Pictures) -> Markup | None:
    if not any(frames for frames, _ in pictures):
        return None
    cards = (
        _card(number, record, _pair(frames[-1]) if frames else tag("p", "No dreams were kept."))
        for number, (record, (frames, _)) in enumerate(zip(records, pictures, strict=True))
    )
    slider = tag("input", type="range", id="time", min=0, max=0, value=0, aria_label="Epoch")
    control = tag("p", tag("label", "Epoch ", tag("output", id="epoch"), " ", slider), class_="controls")
    return join(control, tag("div", cards, class_="cards"))


def _pair(frame: Frame) -> Markup:
    return tag(
        "div", (_picture(kind, getattr(frame, kind), kind) for kind in ("means", "samples")), class_="pair"
    )


def _picture(caption: str, uri: str, class_: str | None = None) -> Markup:
    image = tag("img", src=uri, alt=caption, class_=class_)
    return tag("figure", image, tag("figcaption", caption))


def _reconstructions(records: Sequence[Record], pictures: Pictures) -> Markup:
    def shown(number: int, found: Mapping[str, str] | Markup) -> Child:
        if isinstance(found, Markup):
            return found
        side = "pair" if shape_of(records[number]) is None else None
        return tag("div", (_picture(caption, uri) for caption, uri in found.items()), class_=side)

    cards = (
        _card(number, record, shown(number, found))
        for number, (record, (_, found)) in enumerate(zip(records, pictures, strict=True))
    )
    told = "Test rows, and below or beside them the means of their posteriors sent back through generation."
    return join(tag("p", told), tag("div", cards, class_="cards"))


def _card(number: int, record: Record, *content: Child) -> Markup:
    """A run's part of a section; rows that are no images are drawn as tables."""
    kind = "card" if shape_of(record) else "card table"
    return tag("div", tag("h3", tables.swatch(number), record.name), content, class_=kind, data_card=number)


def _warnings(records: Sequence[Record]) -> Child:
    sets = sorted({record.config.data.name for record in records})
    told = []
    if len(sets) > 1:
        told.append("These runs are on different data: their losses and likelihoods are not comparable.")
    if open_ := [record.name for record in records if record.state != FINISHED]:
        told.append(f"Not finished: {', '.join(open_)}.")
    return [tag("p", sentence, class_="warning") for sentence in told]


def _title(records: Sequence[Record]) -> str:
    return records[0].name if len(records) == 1 else f"{len(records)} runs side by side"


def _subtitle(records: Sequence[Record]) -> str:
    def every(values: list[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    facts = [differences.flat(record.environment) for record in records]
    versions = [str(fact["versions.natgrad"]) for fact in facts if "versions.natgrad" in fact]
    parts = (
        every([record.config.data.name for record in records]),
        every([record.config.method for record in records]),
        f"natgrad {every(versions)}" if versions else "",
    )
    return " · ".join(part for part in parts if part)


def _data(records: Sequence[Record], pictures: Pictures) -> str:
    """The numbers for the script; `<` is written so that no text can end the block."""
    runs: list[dict[str, Any]] = [
        charts.data(record) | {"frames": [frame._asdict() for frame in frames]}
        for record, (frames, _) in zip(records, pictures, strict=True)
    ]
    return json_line({"runs": runs}).replace("<", "\\u003c")


def _policy(style: str, script: str) -> str:
    def checksum(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return f"default-src 'none'; img-src data:; style-src {checksum(style)}; script-src {checksum(script)}"
