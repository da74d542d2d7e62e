"""What was tried, counted by the file of tests that tried it: printed at the end, and recorded for a page."""

import json
import os
from collections import Counter, defaultdict
from pathlib import Path

TRIED: dict[str, Counter[str]] = defaultdict(Counter)


def count(file, kind, number=1):
    """Count attempts of a kind: `count("test_x.py", "settings", 3)`."""
    TRIED[file][kind] += number


def told(failed):
    """One sentence for all; a test that fails has lost, hung or raised."""
    whole = sum(TRIED.values(), Counter())
    tried = ", ".join(f"{number:,} {kind}" for kind, number in sorted(whole.items()))
    return f"tried: {tried}; lost, hung or with a traceback: {failed} tests"


def record(path, reports):
    """Every file's attempts, and how many of its tests failed, as JSON; one that did not run stays."""
    before = json.loads(Path(path).read_text())["parts"] if Path(path).exists() else {}
    parts = {}
    for report in reports:
        place, _, _ = report.nodeid.partition("::")
        part = parts.setdefault(place, {"tests": 0, "failed": 0, "seconds": 0.0})
        part["tests"] += report.when == "call"
        part["failed"] += report.failed
        part["seconds"] += report.duration
    for place, part in parts.items():
        part |= {"seconds": round(part["seconds"]), "tried": dict(TRIED[Path(place).name])}
    Path(path).write_text(json.dumps({"cores": os.cpu_count(), "parts": before | parts}, indent=1) + "\n")
