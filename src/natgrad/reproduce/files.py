"""The files of reproductions: a sweep's file with a section `[reproduce]` that has what the paper claims."""

import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from natgrad import config
from natgrad.errors import InputError, unknown


class Claim(BaseModel):
    """A number of the paper.

    Attributes:
        variants: the variants of the sweep that it is compared with.
        value: the number; column: what it is of, a figure of the trace or of the final evaluation.
        error: the column of its standard error, if it is not called after it.
        seconds: how long an epoch took there, on the paper's computer; epochs: how many it trained.
        place: where it stands, if not where the others do.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    variants: tuple[str, ...] = Field(min_length=1)
    value: float | None = None
    column: str = "test_ll"
    error: str = ""
    seconds: float | None = None
    epochs: PositiveInt | None = None
    place: str = ""


class Comparison(BaseModel):
    """What the paper says of two variants: that one ends better than the other, in its words."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    better: str
    worse: str
    column: str = "test_ll"
    says: str


class ReproductionSection(BaseModel):
    """The section `[reproduce]`.

    Attributes:
        place: the table or figure, with the paper's key; about: what it shows, in a line.
        epochs: how long the paper trained.
        samples: importance samples of the final evaluation (0: the last row of the trace is enough).
        note: what a reader should know of the differences.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    place: str
    about: str
    epochs: PositiveInt
    samples: int = Field(0, ge=0)
    claims: tuple[Claim, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    note: str = ""


class Reproduction(NamedTuple):
    """A file: its name, its own section, and the sweep that is the rest of it."""

    name: str
    section: ReproductionSection
    tree: dict[str, Any]


def known_reproductions() -> dict[str, Traversable]:
    """The files that are part of the package, by name."""
    folder = resources.files("natgrad.reproduce") / "papers"
    files = (file for file in folder.iterdir() if file.name.endswith(".toml"))
    return {
        file.name.removesuffix(".toml"): file for file in sorted(files, key=lambda file: _order(file.name))
    }


def read_reproduction(name: str | Path) -> Reproduction:
    """A reproduction by its name, or by the path of a file of one's own."""
    if str(name).endswith(".toml"):
        return _reproduction(Path(name).stem, config.read_toml(name))
    known = known_reproductions()
    if str(name) not in known:
        raise unknown("reproduction", str(name), known)
    return _reproduction(str(name), tomllib.loads(known[str(name)].read_text("utf-8")))


def _reproduction(name: str, tree: dict[str, Any]) -> Reproduction:
    own = tree.pop("reproduce", None)
    if not isinstance(own, dict):
        raise InputError(
            f"{name}: expected a section [reproduce] with what the paper claims, got none; add it"
        )
    try:
        return Reproduction(name, ReproductionSection.model_validate(own), tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in ("reproduce", *first["loc"]))
        raise InputError(f"{name}: {key}: {first['msg'][0].lower()}{first['msg'][1:]}") from None


def _order(name: str) -> tuple[str, int, str]:
    """By words, then by number: table2 before table10."""
    word = name.split("-")[0].removesuffix(".toml")
    letters = word.rstrip("0123456789")
    return "" if letters == "table" else letters, int(word[len(letters) :] or 0), name
