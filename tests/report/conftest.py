"""`make` writes a run folder by hand; `toy` is a kind of model that nobody knows."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import made_specs
import pytest
from made_runs import make_run

from natgrad import config
from natgrad.models import registry


@pytest.fixture(scope="session", autouse=True)
def known() -> Iterator[None]:
    """The default kind is described, if only by a stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("natgrad.models.helmholtz.spec") is None:
            patch.setitem(registry.FOLDERS, registry.DEFAULT, "made_specs:MACHINE")
        yield


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """`make(name, epochs=3, rows=None, **settings)` writes a run folder and returns it."""

    def made(name: str, **settings: Any) -> Path:
        return make_run(tmp_path / name, **settings)

    return made


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of the kind `toy` can be read: its settings are none of natgrad's."""
    monkeypatch.setitem(registry.FOLDERS, "toy", "made_specs:TOY")
    others = config.resolve

    def resolve(settings: Mapping[str, Any], file: str | Path | None = None) -> Any:
        tree = tomllib.loads(Path(file).read_text("utf-8")) if file is not None else {}
        if tree.get("model", {}).get("kind") == "toy":
            return made_specs.Toy.model_validate(tree)
        if settings.get("model.kind") == "toy":
            return made_specs.Toy(method=settings.get("method", "drift"))
        return others(settings, file)

    monkeypatch.setattr(config, "resolve", resolve)
