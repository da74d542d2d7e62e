"""From a TOML file to the settings of a sweep.

The file is a run's config in which a list stands for several values (where the setting itself is a list,
such as `model.layers`, a list of lists does), and, in a search, `{low = 0.01, high = 0.1, log = true}` for a
range. `[sweep]` has what is about the sweep itself; each of its `variants` overrides the rest of the file,
which the candidates share: each takes what its method reads.
"""

import hashlib
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from natgrad import config
from natgrad.config import names
from natgrad.errors import InputError, unknown
from natgrad.models import registry
from natgrad.records.folder import stem_of
from natgrad.sweep.shared import READERS, by_reader, check_shared, without_unread
from natgrad.sweep.values import Setting, by_dotted_name, values_of

MOST = 10_000  # settings of a grid: more are a mistake


class Variant(BaseModel):
    """A part of a grid: its name, its seeds if they are not those of all, and what it overrides."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str | None = None
    seeds: tuple[int, ...] | None = Field(None, min_length=1)


class SweepSection(BaseModel):
    """The file's section `[sweep]`: seeds, what is compared, and for a search how many settings it tries."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seeds: tuple[int, ...] = Field((0,), min_length=1)
    confirm: tuple[int, ...] = ()
    seeded: tuple[str, ...] = ()
    criterion: str = ""
    columns: tuple[str, ...] = Field((), min_length=1)
    objective: Literal["last", "best"] = "best"
    trials: PositiveInt | None = None
    search_seed: int = Field(0, ge=0, lt=2**32)
    heartbeat: float = Field(20.0, gt=0, le=3600)
    variants: tuple[Variant, ...] = Field((Variant(),), min_length=1)


class Range(BaseModel):
    """Numbers from low to high, both included; whole ones if both ends are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: int | float
    high: int | float
    log: bool = False


class Candidate(NamedTuple):
    """A setting that is compared with the others of its variant, by trainings with these seeds."""

    variant: str
    setting: Setting
    seeds: tuple[int, ...]


class SweepPlan(NamedTuple):
    """What to train: the candidates of a grid, or what a search may choose from."""

    section: SweepSection
    candidates: list[Candidate]
    space: dict[str, list[Any] | Range]
    fixed: Setting
    shared: Collection[str]

    def candidate(self, found: Setting) -> Candidate:
        """What a search has chosen, with all that it does not choose."""
        setting = without_unread(self.fixed | found, self.shared)
        return Candidate("", setting, self.section.seeds)


def read_plan(file: str | Path, overrides: Mapping[str, Any]) -> SweepPlan:
    """The plan of a file, with settings by short or dotted name over it; every setting is resolved."""
    return plan_of(config.read_toml(file), overrides)


def plan_of(tree: dict[str, Any], overrides: Mapping[str, Any]) -> SweepPlan:
    """The plan of a file's nested settings, out of which the sweep's own section is taken."""
    section = _section(tree)
    short = names.short_names()
    over = {short.get(name, name): value for name, value in overrides.items()}
    given = by_dotted_name(tree)
    if section.trials is not None:
        plan = _searched(section, given, over)
    else:
        plan = SweepPlan(section, _gridded(section, given, over), {}, {}, ())
    _check_seeds(plan)
    return plan._replace(section=_with_criterion(plan))


def _with_criterion(plan: SweepPlan) -> SweepSection:
    """The section with what is compared: by default the columns that its kind is compared by."""
    section, first = plan.section, plan.candidates[0]
    spec = registry.spec_of(resolved(first.setting, first.seeds[0], section.seeded).model.kind)
    criterion = section.criterion or spec.criterion
    test = criterion.replace("valid", "test")
    known = {column.name for column in spec.columns}
    columns = section.columns or (criterion, test if test in known else spec.headline_of())
    return section.model_copy(update={"criterion": criterion, "columns": columns})


def resolved(setting: Setting, seed: int, seeded: Sequence[str] = ()) -> config.Config:
    """The complete config of a setting; `seeded` settings take the seed too."""
    return config.resolve(setting | dict.fromkeys(("seed", *seeded), seed))


def name_of(settings: config.Config) -> str:
    """The folder of a trial: a pure function of its settings."""
    everything = settings.model_dump(mode="json", exclude={"seed"})
    digest = hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:10]
    return f"{stem_of(settings)}-{digest}-seed{settings.seed}"


def _section(tree: dict[str, Any]) -> SweepSection:
    """Take what is about the sweep itself out of the file's settings."""
    own = tree.pop("sweep", {})
    if not isinstance(own, dict):
        raise InputError(f"sweep: expected a section of settings, got {own!r}; write [sweep]")
    several = {"seeds": tree.pop("seeds")} if "seeds" in tree else {}
    if isinstance(tree.get("seed"), list):
        several["seed"] = tree.pop("seed")
    places = [*several, *(["sweep.seeds"] if "seeds" in own else [])]
    if len(places) > 1:
        raise InputError(f"expected the seeds in one place, got them in {' and '.join(places)}; keep one")
    try:
        return SweepSection.model_validate(own | {"seeds": next(iter(several.values()))} if several else own)
    except ValidationError as error:
        raise _explain("sweep", error, list(SweepSection.model_fields)) from None


def _gridded(section: SweepSection, given: Setting, over: Setting) -> list[Candidate]:
    found: dict[tuple[str, str], Candidate] = {}
    changes = [by_dotted_name(variant.model_extra or {}) for variant in section.variants]
    check_shared(given, (each for own in changes for each in by_reader(given | own | over)))
    for number, (variant, own) in enumerate(zip(section.variants, changes, strict=True), start=1):
        title, seeds = _title(variant, own, number), variant.seeds or section.seeds
        expanded = list(itertools.islice(_expanded(given, own | over), MOST + 1))
        if len(expanded) > MOST:
            raise InputError(
                f"expected at most {MOST} settings, the lists make more; search, with sweep.trials"
            )
        for setting in expanded:
            key = title, name_of(resolved(setting, 0))
            before = found.get(key, Candidate(title, setting, ()))
            found[key] = before._replace(seeds=tuple(dict.fromkeys((*before.seeds, *seeds))))
    return list(found.values())


def _title(variant: Variant, own: Setting, number: int) -> str:
    """A variant's name, or its single values in a row; the only variant needs none."""
    if variant.name is not None or variant == Variant():
        return variant.name or ""
    single = [f"{value}" for name, value in own.items() if values_of(name, value) is None]
    return ", ".join(single) or f"variant {number}"


def _expanded(given: Setting, own: Setting) -> Iterator[Setting]:
    """Every combination of the values of lists, where a method reads them or they are a variant's own."""
    for whole in by_reader(given | own):
        chosen = without_unread(whole, given.keys() - own.keys())
        if any(isinstance(value, dict) for value in chosen.values()):
            name = next(name for name, value in chosen.items() if isinstance(value, dict))
            raise InputError(f"{name}: a range needs a search; give sweep.trials, or a list of values")
        lists = {name: values for name in chosen if (values := values_of(name, chosen[name])) is not None}
        for combined in itertools.product(*lists.values()):
            yield chosen | dict(zip(lists, combined, strict=True))


def _searched(section: SweepSection, shared: Setting, over: Setting) -> SweepPlan:
    given = shared | over
    if section.variants != (Variant(),):
        raise InputError("sweep.variants: a search takes none; leave out sweep.trials or the variants")
    space: dict[str, list[Any] | Range] = {}
    for name, value in given.items():
        if isinstance(value, dict):
            space[name] = _range(name, value)
        elif (values := values_of(name, value)) is not None:
            space[name] = values
    if not space:
        raise InputError("sweep.trials: expected a range or a list of values to search, got none; give one")
    fixed = {name: value for name, value in given.items() if name not in space}
    check_shared(shared, by_reader(given))
    plan = SweepPlan(section, [], space, fixed, shared.keys() - over.keys())
    return plan._replace(candidates=[plan.candidate(found) for found in _corners(space)])


def _corners(space: Mapping[str, list[Any] | Range]) -> Iterator[Setting]:
    """Choices in which every kind and method has every value of a list and both ends of every range."""
    ends = {name: [part.low, part.high] if isinstance(part, Range) else part for name, part in space.items()}
    longest = max(len(values) for values in ends.values())
    for reader in by_reader({name: ends[name] for name in READERS if name in ends}):
        for number in range(longest):
            yield {name: values[min(number, len(values) - 1)] for name, values in ends.items()} | reader


def _range(name: str, value: dict[str, Any]) -> Range:
    try:
        found = Range.model_validate(value)
    except ValidationError as error:
        raise _explain(name, error, list(Range.model_fields)) from None
    if found.low >= found.high or (found.log and found.low <= 0):
        least = "0 < low < high" if found.log else "low < high"
        raise InputError(f"{name}: expected a range with {least}, got {found.low} to {found.high}")
    return found


def _check_seeds(plan: SweepPlan) -> None:
    """Every setting complete with every seed; the seeds that confirm are others than those that choose."""
    section = plan.section
    for name in (names.short_names().get(name, name) for name in section.seeded):
        if any(name in candidate.setting for candidate in plan.candidates):
            raise InputError(f"sweep.seeded: {name} takes the seed, and has a value of its own; keep one")
    for candidate in plan.candidates:
        if both := sorted({*section.confirm} & {*candidate.seeds}):
            raise InputError(
                f"sweep.confirm: expected seeds that have no part in the choice, got {both[0]}; give others"
            )
        for seed in (*candidate.seeds, *section.confirm):
            resolved(candidate.setting, seed, section.seeded)


def _explain(place: str, error: ValidationError, known: list[str]) -> InputError:
    first = error.errors(include_url=False)[0]
    key = ".".join([place, *(str(part) for part in first["loc"][:1])])
    if first["type"] == "extra_forbidden":
        return unknown("setting", key, [f"{place}.{name}" for name in known])
    wanted = first["msg"].removeprefix("Input should be ")
    return InputError(f"{key}: expected {wanted[0].lower() + wanted[1:]}, got {first['input']!r}")
