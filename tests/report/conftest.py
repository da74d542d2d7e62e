"""`make` writes a run folder by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """`make(name, epochs=3, rows=None, **settings)` writes a run folder and returns it."""

    def made(name: str, **settings: Any) -> Path:
        return make_run(tmp_path / name, **settings)

    return made
