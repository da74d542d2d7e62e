"""The settings of a sweep side by side, for people: table.md, table.json and sweep.png."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from natgrad import writing
from natgrad.config import names
from natgrad.models import registry
from natgrad.records import folder
from natgrad.sweep.choice import Results
from natgrad.sweep.compare import best_lines, failed, ranked
from natgrad.sweep.figure import SettingCurves, draw_sweep

DIGITS = {"epoch": 0, "seconds": 1}


def write_tables(place: Path, results: Results) -> dict[str, Any]:
    """Write the tables and the picture; return what they hold."""
    section, _, record = results
    lines, best = ranked(results), best_lines(results)
    found = {
        "sweep": str(place),
        "objective": f"{section.objective} {section.criterion}",
        "columns": list(section.columns),
        "chosen": best,
        "settings": [line for line, _ in lines],
        "warnings": doubts(results, best),
        "failed": failed(results),
        "table": str(place / "table.md"),
        "picture": str(place / "sweep.png"),
    }
    writing.write(place / "table.json", folder.json_line(found) + "\n")
    writing.write(place / "table.md", "\n".join(_markdown_page(found)) + "\n")
    curves = [
        SettingCurves(_named(line), [record.rows(each, seed) or [] for seed in each.seeds])
        for line, each in lines
    ]
    draw_sweep(place / "sweep.png", curves, column=section.criterion, title=title(section.criterion))
    return found


def _markdown_page(found: Mapping[str, Any]) -> list[str]:
    """The tables as lines of Markdown: the best of every variant, if there are any, then all."""
    every = markdown(found["columns"], found["settings"])
    notes = [line for note in found["warnings"] for line in ("", note)]
    if not has_table_of_best(found):
        return [*every, *notes]
    best = markdown(found["columns"], found["chosen"])
    return [*best, *notes, "", "Every setting, over the seeds that chose:", "", *every]


def has_table_of_best(found: Mapping[str, Any]) -> bool:
    """Whether the best settings have a table of their own: there are variants, or other seeds confirm."""
    return any(line["variant"] or line.get("confirmed") for line in found["chosen"])


def doubts(results: Results, best: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the best settings deserve doubt: at an edge, with rates cut, not confirmed, missing."""
    edge = [f"{_who(line)} ({setting_label(_at_edge(line))})" for line in best if line["edge"]]
    cut = [f"{_who(line)} ({line['cut']} of {line['seeds']} seeds)" for line in best if line["cut"]]
    alone = [_who(line) for line in best if results.section.confirm and not line["confirmed"]]
    there = {line["variant"] for line in best}
    lost = dict.fromkeys(each.variant for each in results.candidates if each.variant not in there)
    found = {
        "At the edge of the grid": edge,
        "Diverged, and continued with a smaller rate": cut,
        "Not confirmed, the figures are of the seeds that chose": alone,
        "Without a result": [name for name in lost if name],
    }
    return [f"{what}: {'; '.join(which)}." for what, which in found.items() if which]


def markdown(columns: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table as lines of Markdown."""
    rows = cells(columns, lines)
    heads = list(rows[0]) if rows else []
    table = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    return table + [f"| {' | '.join(row.values())} |" for row in rows]


def cells(columns: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The cells of a table by their heads; variants have their settings in one cell."""
    if any(line["variant"] for line in lines):
        first = [{"variant": line["variant"], "setting": setting_label(line["setting"])} for line in lines]
    else:
        names = list(dict.fromkeys(name for line in lines for name in line["setting"]))
        first = [{name: short_text(line["setting"].get(name, "")) for name in names} for line in lines]
    return [row | _figures(columns, line) for row, line in zip(first, lines, strict=True)]


def _figures(columns: Sequence[str], line: Mapping[str, Any]) -> dict[str, str]:
    """A line's numbers as text: means, ± their standard deviation over seeds."""
    spread = {title(name): _spread(name, line) for name in columns}
    plain = {name: written(name, line[name]) for name in ("epoch", "seconds")}
    return {"seeds": str(line["seeds"]), **spread, **plain}


def title(name: str) -> str:
    """A column's name for people.

    >>> title("valid_ll"), title("test_squared_error")
    ('valid LL', 'test squared error')
    """
    return name.replace("_ll", "_LL").replace("_", " ")


def written(name: str, value: float | None) -> str:
    """A figure as its column has it: the share of wrong classes in percent.

    >>> written("valid_ll", -1.5), written("test_error", 0.0214), written("epoch", None)
    ('-1.500', '2.14 %', '-')
    """
    if value is None:
        return "-"
    if (column := registry.column_of(name)) is not None and column.percent:
        return f"{100 * value:.2f} %"
    return f"{value:.{DIGITS.get(name, 3)}f}"


def short_text(value: Any) -> str:
    """A setting's value, short: lists of sizes as 64-16."""
    return "-".join(short_text(inner) for inner in value) if isinstance(value, list | tuple) else f"{value}"


def setting_label(setting: Mapping[str, Any]) -> str:
    """A setting in a few words, by short names."""
    parts = [f"{brief(name)} {short_text(value)}" for name, value in setting.items()]
    return ", ".join(parts) or "the only setting"


def brief(name: str) -> str:
    """The short name of a setting, or the last part of its dotted one.

    >>> brief("optimizer.name"), brief("optimizer.schedule")
    ('optimizer', 'schedule')
    """
    short = {dotted: own for own, dotted in names.short_names().items()}
    return short.get(name, name.split(".")[-1])


def _who(line: Mapping[str, Any]) -> str:
    return line["variant"] or "the best setting"


def _at_edge(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: line["setting"][name] for name in line["edge"]}


def _named(line: Mapping[str, Any]) -> str:
    setting = setting_label(line["setting"])
    return f"{line['variant']}: {setting}" if line["variant"] else setting


def _spread(name: str, line: Mapping[str, Any]) -> str:
    spread = line[f"{name}_sd"]
    return written(name, line[name]) + ("" if spread is None else f" ±{written(name, spread)}")
