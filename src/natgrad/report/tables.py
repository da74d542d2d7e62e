"""The tables of a page: final figures, settings, environment, commands. All text goes through `markup`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from natgrad.report import columns, differences
from natgrad.report.markup import Child, Markup, join_markup, tag
from natgrad.report.reading import Record

COLORS = 8


def final_figures(records: Sequence[Record]) -> Markup:
    """One row per run with its final figures; columns that no run has are left out."""
    parts = [_parts(record) for record in records]
    rows = [_merged(each) for each in parts]
    every = _merged(part for of_all in zip(*parts, strict=True) for part in of_all)
    named = [name for name in every if any(row.get(name) is not None for row in rows)]
    head = tag("tr", tag("th", "run"), (tag("th", name, class_="number") for name in named))
    body = (
        tag(
            "tr",
            tag("th", swatch(number), record.name),
            (tag("td", value_text(row.get(name)), class_="number") for name in named),
        )
        for number, (record, row) in enumerate(zip(records, rows, strict=True))
    )
    return _scrolling(tag("table", tag("thead", head), tag("tbody", body), class_="figures"))


def figures_of(record: Record) -> dict[str, Any]:
    """The final figures of a run by the words a reader uses, its headline first."""
    return _merged(_parts(record))


def _parts(record: Record) -> list[dict[str, Any]]:
    """The final figures of a run: those of its kind, those of all kinds, how it got there, what it is."""
    last, used, config = record.last, record.used, record.config
    counted = {
        "refused": sum(row.get(columns.REFUSED) or 0 for row in record.rows) or None,
        "seconds": None if last.get("seconds") is None else f"{last['seconds']:.1f}",
        "epochs": f"{value_text(last.get('epoch'))} of {config.training.epochs}",
    }
    named = {"state": record.state, "data": Path(config.data.name).name, "method": config.method}
    own, shared = (
        {column.title: columns.shown_value(column, used) for column in part}
        for part in columns.final(config.model.kind, used)
    )
    return [
        own,
        shared | {"of epoch": used.get("epoch")},
        counted,
        named,
        _model(record),
        {"seed": config.seed},
    ]


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def _model(record: Record) -> dict[str, Any]:
    """The kind of model and its sizes: whichever of its settings are lists."""
    section = record.config.model.model_dump(mode="json")
    return {"kind": section["kind"]} | {
        name: value for name, value in section.items() if isinstance(value, list)
    }


def compared_settings(records: Sequence[Record]) -> Markup:
    """What differs between the runs, or what is unusual in the one; the rest folded away."""
    full = [differences.dotted_settings(record.config) for record in records]
    odd = [differences.unusual(record.config) for record in records]
    if len(records) == 1:
        shown, none = list(odd[0]), "Every setting is the method's default."
    else:
        shown, none = _apart(full, odd), "Every setting that all runs have is the same in all."
    rest = [name for name in _merged(full) if name not in shown]
    first = compared(records, full, shown) if shown else tag("p", none)
    return join_markup(first, _folded(f"The other {len(rest)} settings", compared(records, full, rest)))


def _apart(full: Sequence[Mapping[str, Any]], odd: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings in which runs differ; one that only some of them have must be unusual there."""
    return [
        name
        for name in differences.differing(full)
        if all(name in each for each in full) or any(each.get(name) is not None for each in odd)
    ]


def environment(records: Sequence[Record]) -> Markup:
    """Versions, computer and data of every run; what is the same in several runs is folded away."""
    facts = [_known(differences.flattened(record.environment)) for record in records]
    apart = differences.differing(facts)
    same = [name for name in facts[0] if name not in apart]
    if not (apart or same):
        return tag("p", "No environment was recorded.")
    if len(records) == 1:
        return compared(records, facts, same)
    first = compared(records, facts, apart) if apart else tag("p", "The same for all runs.")
    return join_markup(
        first, _folded(f"{len(same)} facts that all runs share", compared(records, facts, same))
    )


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}


def _folded(title: str, content: Markup) -> Markup:
    return tag("details", tag("summary", title), content)


def commands(records: Sequence[Record]) -> Markup:
    """The command that repeats each run, ready to be copied: a click selects it whole."""
    note = "Each makes a new folder with the same numbers, on the same devices and versions."
    return join_markup(
        tag("p", note),
        (
            tag("div", tag("h3", swatch(number), record.name), tag("pre", _command(record)))
            for number, record in enumerate(records)
        ),
    )


def _command(record: Record) -> str:
    return differences.command(record.config, x64=record.environment.get("x64") is True)


def compared(records: Sequence[Record], facts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Markup:
    """A row per fact and a column per run; a fact that is the same in all is shown once."""
    heads = (tag("th", swatch(number), record.name) for number, record in enumerate(records))
    head = tag("thead", tag("tr", tag("th", ""), heads)) if len(records) > 1 else None
    apart = set(differences.differing(facts))

    def cells(name: str) -> Child:
        if name in apart:
            return [tag("td", value_text(fact.get(name))) for fact in facts]
        return tag("td", value_text(facts[0].get(name)), colspan=len(facts))

    body = tag("tbody", (tag("tr", tag("th", name), cells(name)) for name in names))
    return _scrolling(tag("table", head, body, class_="facts"))


def swatch(number: int) -> Markup:
    """The color of a run."""
    return tag("span", class_=f"swatch c{number % COLORS}", aria_hidden="true")


def value_text(value: Any) -> str:
    """A value as a reader likes it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}" if abs(value) < 1e5 else f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(value_text, value))
    return str(value)


def _scrolling(table: Markup) -> Markup:
    return tag("div", table, class_="scroll", tabindex=0)
