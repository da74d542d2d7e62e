"""The course of a reproduction's trainings: test likelihoods against epochs and against seconds."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from natgrad.evaluate.pictures import save_figure
from natgrad.reproduce.files import Claim
from natgrad.reproduce.table import VariantResult
from natgrad.sweep.choice import is_number
from natgrad.sweep.table import title


def draw_course(path: Path, results: Mapping[str, VariantResult], claims: Sequence[Claim]) -> None:
    """Two panels for every data set: a line for each seed of a variant, and what the paper claims, dotted."""
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(map(_data_of, results.values())))
    figure = Figure(figsize=(11, 4.2 * len(sets)), dpi=110, layout="constrained")
    rows = figure.subplots(len(sets), 2, squeeze=False, sharey="row")
    for panels, data in zip(rows, sets, strict=True):
        own = {name: result for name, result in results.items() if _data_of(result) == data}
        for number, (name, result) in enumerate(own.items()):
            _draw_variant(panels, f"C{number}", name, result)
            for value in _claimed(claims, name, _column(result)):
                panels[0].axhline(value, color=f"C{number}", ls=":", lw=1)
        said = title(_column(next(iter(own.values()))))
        panels[0].set(xlabel="epochs", ylabel=said, title=f"{data}; dotted: claimed by the paper")
        panels[1].set(xlabel="seconds of training", title=data)
        panels[1].legend(fontsize=7)
        for axes in panels:
            axes.grid(alpha=0.3)
    save_figure(path, figure)


def _draw_variant(panels: Sequence[Any], color: str, name: str, result: VariantResult) -> None:
    for number, trial in enumerate(result.trials):
        seen = [row for row in trial["rows"][1:] if is_number(row.get(_column(result)))]
        label = name if number == 0 else None
        for axes, key in zip(panels, ("epoch", "seconds"), strict=True):
            line = [row[key] for row in seen], [row[_column(result)] for row in seen]
            axes.plot(*line, color=color, lw=1, marker=".", ms=4, label=label)


def _claimed(claims: Sequence[Claim], name: str, column: str) -> Iterator[float]:
    """The values that the paper has for a variant."""
    for claim in claims:
        if name in claim.variants and claim.column == column and claim.value is not None:
            yield claim.value


def _column(result: VariantResult) -> str:
    """What is drawn: the last of the compared columns, that of test rows."""
    return result.section.columns[-1]


def _data_of(result: VariantResult) -> str:
    setting = result.candidate.setting
    names = (setting.get(key) for key in ("data.name", "data.binarize"))
    return ", ".join(str(name) for name in names if name)
