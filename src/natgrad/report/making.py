"""Make the page of one run or of several, side by side, and write it whole."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from natgrad.errors import InputError, check_paths
from natgrad.report.reading import Record, read_all
from natgrad.writing import write


def report_runs(runs: Sequence[str | Path], *, out: str | Path | None = None) -> dict[str, Any]:
    """Write the page: by default report.html in the run's folder, for several runs in the present one."""
    from natgrad.report.page import report_page
    from natgrad.report.pictures import run_pictures

    if not runs:
        raise InputError("expected at least one run folder, got none; give one that `natgrad train` wrote")
    check_paths(out=out)
    records = read_all(runs)
    place = Path(out) if out is not None else _default(records)
    text = report_page(records, [run_pictures(record) for record in records])
    try:
        write(place, text)
    except OSError as error:
        raise InputError(
            f"cannot write the report {place}: {error.strerror}; give a file you can write to with --out"
        ) from None
    size = len(text.encode())
    return {"report": str(place), "runs": [str(record.folder) for record in records], "bytes": size}


def _default(records: Sequence[Record]) -> Path:
    return records[0].folder / "report.html" if len(records) == 1 else Path("report.html")
