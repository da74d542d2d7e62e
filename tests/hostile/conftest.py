"""What was tried, counted, and printed at the end: `make attack`."""

from collections import Counter

import pytest

_TRIED: Counter[str] = Counter()


@pytest.fixture
def tried():
    """Count attempts of a kind: `tried("settings", 3)`. A test that fails has lost, hung or raised."""

    def count(kind, number=1):
        _TRIED[kind] += number

    return count


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    failed = len(terminalreporter.stats.get("failed", [])) + len(terminalreporter.stats.get("error", []))
    if _TRIED:
        told = ", ".join(f"{number} {kind}" for kind, number in sorted(_TRIED.items()))
        terminalreporter.write_line(f"tried: {told}; lost, hung or with a traceback: {failed} tests")
