"""`natgrad report`: one self-contained page to look at runs."""

from pathlib import Path

from natgrad.cli.commands import Json, _print


def report(*runs: Path, out: Path | None = None, json: Json = False) -> None:
    """Write one self-contained HTML page about a run, or about several side by side.

    Parameters
    ----------
    runs
        Run folders.
    out
        The page; by default report.html in the run's folder, for several runs in the current one.
    """
    from natgrad.report.making import report_runs

    found = report_runs(runs, out=out)
    return _print(found, json=json, title="report")
