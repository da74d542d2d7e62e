"""One page for one run or several: self-contained, no network, nothing executed but its own script.

Text from run folders is escaped by `markup`; numbers travel as JSON in a block that is never executed;
a content security policy admits the one script and the one style sheet by their checksums.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from natgrad.records.folder import json_line
from natgrad.report import cards, charts, columns, differences, tables
from natgrad.report.listing import evaluated_rows
from natgrad.report.markup import Child, Markup, join_markup, tag
from natgrad.report.pictures import Pictures
from natgrad.report.reading import FINISHED, Record


def report_page(records: Sequence[Record], pictures: Sequence[Pictures]) -> str:
    """The whole page; `pictures` are those of each run."""
    style, script = (
        files("natgrad.report").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js")
    )
    body = join_markup(
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


def _sections(records: Sequence[Record], pictures: Sequence[Pictures]) -> Markup:
    has_rows = any(record.rows for record in records)
    none = tag("p", "Nothing has been evaluated yet.")
    return join_markup(
        _section("Figures", _warnings(records), tables.final_figures(records)),
        _section(
            "Learning", _range(), tag("div", charts.learning(records), class_="charts") if has_rows else none
        ),
        _section("Pictures", cards.through_training(records, pictures)),
        (
            _section(title, content, of="panel-")
            for title, content in cards.panel_sections(records, pictures).items()
        ),
        _section("Steps", tag("div", charts.step(records), class_="charts")),
        _section("Layers", _layers(records)),
        _section("Settings", tables.compared_settings(records)),
        _section("Environment", tables.environment(records)),
        _section("Repeat", tables.commands(records)),
    )


def _section(title: str, *content: Child, of: str = "") -> Markup | None:
    """A section, or nothing where it would be empty; `of` sets its id apart from the page's own."""
    inside = join_markup(*content)
    if not inside or inside == '<div class="charts"></div>':
        return None
    return tag("section", tag("h2", title), inside, id=of + re.sub(r"\W+", "-", title.lower()))


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
    return join_markup(tag("p", choice, keys, class_="controls"), tag("div", drawn, class_="charts"))


def _warnings(records: Sequence[Record]) -> Child:
    """What a reader should know before figures are compared."""
    configs = [record.config for record in records]
    sets = {record.name: evaluated_rows(record.config.data) for record in records}
    specs = {
        id(columns.spec_if_known(config.model.kind)) for config in configs
    }  # kinds of one spec are alike
    warnings = []
    if len(set(sets.values())) > 1:
        told = "; ".join(f"{name}: {data}" for name, data in sets.items())
        warnings.append(
            f"These runs are on different data ({told}): their losses and figures are not comparable."
        )
    if len(specs) > 1:
        warnings.append("These runs are of different kinds of model: their losses may not be comparable.")
    if open_ := [record.name for record in records if record.state != FINISHED]:
        warnings.append(f"Not finished: {', '.join(open_)}.")
    return [tag("p", sentence, class_="warning") for sentence in warnings]


def _title(records: Sequence[Record]) -> str:
    return records[0].name if len(records) == 1 else f"{len(records)} runs side by side"


def _subtitle(records: Sequence[Record]) -> str:
    def every(values: list[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    facts = [differences.flattened(record.environment) for record in records]
    versions = [str(fact["versions.natgrad"]) for fact in facts if "versions.natgrad" in fact]
    parts = (
        every([record.config.data.name for record in records]),
        every([record.config.model.kind for record in records]),
        every([record.config.method for record in records]),
        f"natgrad {every(versions)}" if versions else "",
    )
    return " · ".join(part for part in parts if part)


def _data(records: Sequence[Record], pictures: Sequence[Pictures]) -> str:
    """The numbers for the script; `<` is written so that no text can end the block."""
    runs: list[dict[str, Any]] = [
        charts.columns_for_script(record) | {"frames": cards.frames_for_script(shown)}
        for record, shown in zip(records, pictures, strict=True)
    ]
    return json_line({"runs": runs, "curves": charts.curves(records)}).replace("<", "\\u003c")


def _policy(style: str, script: str) -> str:
    def checksum(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return f"default-src 'none'; img-src data:; style-src {checksum(style)}; script-src {checksum(script)}"
