"""What a training says at its end: five rows for people; all the rest is in the trace and the report."""

from collections.abc import Mapping
from typing import Any

from natgrad.report.columns import described, headline, on_validation, shown_value


def summary_rows(summary: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The best epoch, its figure on validation and on test data, seconds, and how to see more.

    >>> found = {"run": "r", "epochs": 9, "best_epoch": 6, "train_seconds": 1.25, "compile_seconds": 3.0}
    >>> found |= {"valid_ll": -7.0, "test_ll": -8.0, "test_ll_se": 0.5}
    >>> list(summary_rows(found, "helmholtz").values())
    ['9, the best is 6', '-7.000', '-8.00 ± 0.50', '1.2 of training, 3.0 of compiling', 'natgrad report r']
    """
    reported = headline(kind, summary)
    both = [] if reported is None else [on_validation(reported, described([kind])), reported]
    figures = {column.title: value for column in both if (value := shown_value(column, summary))}
    seconds = f"{summary['train_seconds']:.1f} of training, {summary['compile_seconds']:.1f} of compiling"
    epochs = f"{summary['epochs']}, the best is {summary.get('best_epoch', summary['epochs'])}"
    rows = {"epochs": epochs} | figures | {"seconds": seconds, "more": f"natgrad report {summary['run']}"}
    return rows | ({"warning": summary["warning"]} if "warning" in summary else {})
