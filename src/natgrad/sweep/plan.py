"""From a TOML file to the settings of a sweep, checked before anything runs.

The file is a run's config in which a list stands for several values (where the setting itself is a list,
such as `model.layers`, a list of lists does), and, in a search, `{low = 0.01, high = 0.1, log = true}` for a
range. `[sweep]` has what is about the sweep itself; each of its `variants` overrides the rest of the file.
"""

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from natgrad import config, names
from natgrad.data import load as load_data
from natgrad.errors import InputError, unknown
from natgrad.training.checks import check

MOST = 10_000  # settings of a grid: more are a mistake

Setting = dict[str, Any]


class Section(BaseModel):
    """The file's section `[sweep]`: seeds, what is compared, and for a search how many settings it tries."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seeds: tuple[int, ...] = Field((0,), min_length=1)
    objective: Literal["last", "best"] = "last"
    trials: PositiveInt | None = None
    search_seed: int = Field(0, ge=0, lt=2**32)
    variants: tuple[dict[str, Any], ...] = Field(({},), min_length=1)


class Range(BaseModel):
    """Numbers from low to high, both included; whole ones if both ends are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: int | float
    high: int | float
    log: bool = False


class Plan(NamedTuple):
    """What to train: the settings of a grid, or what a search may choose from."""

    section: Section
    settings: list[Setting]
    space: dict[str, list[Any] | Range]
    fixed: Setting


def read(file: str | Path, overrides: Mapping[str, Any]) -> Plan:
    """The plan of a file, with settings by short or dotted name over it."""
    tree = config.read(file)
    section = _section(tree)
    given = flat(tree) | {names.short_names().get(name, name): value for name, value in overrides.items()}
    if section.trials is not None:
        plan = _searched(section, given)
    else:
        plan = Plan(section, _gridded(section, given), {}, {})
    _check(plan)
    return plan


def resolved(setting: Setting, seed: int) -> config.Config:
    """The complete config of a setting."""
    return config.resolve(setting | {"seed": seed})


def name_of(settings: config.Config) -> str:
    """The folder of a trial: a pure function of its settings."""
    everything = settings.model_dump(mode="json", exclude={"seed"})
    digest = hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:10]
    return f"{Path(settings.data.name).stem}-{settings.method}-{digest}-seed{settings.seed}"


def flat(tree: Mapping[str, Any], above: str = "") -> Setting:
    """Nested settings by their dotted names.

    >>> flat({"method": "rws", "optimizer": {"learning_rate": [0.1, 0.2]}, "layers": [8, 4]})
    {'method': 'rws', 'optimizer.learning_rate': [0.1, 0.2], 'model.layers': [8, 4]}
    """
    found: Setting = {}
    for key, value in tree.items():
        if not above and isinstance(value, dict) and key in names.sections():
            found |= flat(value, f"{key}.")
        else:
            found[names.short_names().get(key, key) if not above else above + key] = value
    return found


def values_of(name: str, value: Any) -> list[Any] | None:
    """The values that an entry stands for, or None if it is a single one.

    >>> values_of("seed", [1, 2]), values_of("model.layers", [8, 4]), values_of("model.layers", [[8, 4], [9]])
    ([1, 2], None, [[8, 4], [9]])
    """
    own = names.depths().get(name, 0)
    if not isinstance(value, list) or _depth(value) <= own:
        return None
    if not value:
        raise InputError(
            f"{name}: expected at least one value in its list, got none; give some or leave it out"
        )
    if own and not all(isinstance(inner, list) for inner in value):
        raise InputError(
            f"{name}: expected a list of lists, got {value!r}; put every alternative in brackets"
        )
    return value


def _section(tree: dict[str, Any]) -> Section:
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
        return Section.model_validate(own | {"seeds": next(iter(several.values()))} if several else own)
    except ValidationError as error:
        raise _explain("sweep", error, list(Section.model_fields)) from None


def _gridded(section: Section, given: Setting) -> list[Setting]:
    found: dict[str, Setting] = {}
    for variant in section.variants:
        chosen = given | flat(variant)
        lists = {name: values for name in chosen if (values := values_of(name, chosen[name])) is not None}
        if any(isinstance(value, dict) for value in chosen.values()):
            name = next(name for name, value in chosen.items() if isinstance(value, dict))
            raise InputError(f"{name}: a range needs a search; give sweep.trials, or a list of values")
        for combined in itertools.product(*lists.values()):
            setting = chosen | dict(zip(lists, combined, strict=True))
            found.setdefault(name_of(resolved(setting, section.seeds[0])), setting)
            if len(found) > MOST:
                raise InputError(
                    f"expected at most {MOST} settings, the lists make more; search, with sweep.trials"
                )
    return list(found.values())


def _searched(section: Section, given: Setting) -> Plan:
    if section.variants != ({},):
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
    return Plan(section, _corners(space, fixed), space, fixed)


def _corners(space: Mapping[str, list[Any] | Range], fixed: Setting) -> list[Setting]:
    """Settings in which every value of a list and both ends of every range appear: enough to be checked."""
    ends = {name: [part.low, part.high] if isinstance(part, Range) else part for name, part in space.items()}
    longest = max(len(values) for values in ends.values())
    return [
        fixed | {name: values[min(number, len(values) - 1)] for name, values in ends.items()}
        for number in range(longest)
    ]


def _range(name: str, value: dict[str, Any]) -> Range:
    try:
        found = Range.model_validate(value)
    except ValidationError as error:
        raise _explain(name, error, list(Range.model_fields)) from None
    if found.low >= found.high or (found.log and found.low <= 0):
        least = "0 < low < high" if found.log else "low < high"
        raise InputError(f"{name}: expected a range with {least}, got {found.low} to {found.high}")
    return found


def _check(plan: Plan) -> None:
    """Every setting complete and fit for its data; each set of data is read once."""
    known: dict[str, Any] = {}
    for setting in plan.settings:
        for seed in plan.section.seeds:
            settings = resolved(setting, seed)
        chosen = settings.data
        if (key := chosen.model_dump_json()) not in known:
            known[key] = load_data(
                chosen.name,
                binarize=chosen.binarize,
                split_seed=chosen.split_seed,
                image_shape=chosen.image_shape,
            )
        check(settings, known[key])


def _explain(place: str, error: ValidationError, known: list[str]) -> InputError:
    first = error.errors(include_url=False)[0]
    key = ".".join([place, *(str(part) for part in first["loc"][:1])])
    if first["type"] == "extra_forbidden":
        return unknown("setting", key, [f"{place}.{name}" for name in known])
    wanted = first["msg"].removeprefix("Input should be ")
    return InputError(f"{key}: expected {wanted[0].lower() + wanted[1:]}, got {first['input']!r}")


def _depth(value: Any) -> int:
    return 1 + max((_depth(inner) for inner in value), default=0) if isinstance(value, list) else 0
