"""A run's settings: validated, complete, and readable without importing JAX.

Every (kind, method) has a config class of its own, in the spec of the kind (`natgrad.models.registry`): it
declares the settings that are read, defaults included, and everything else is refused. `resolve` puts a
file, and settings by short or dotted name (`natgrad.config.names`), over the defaults.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from natgrad.config import former, names, refusals
from natgrad.config.sections import ENDLESS, FORMAT, RunSettings
from natgrad.errors import LARGEST_COUNT, InputError, Newer
from natgrad.models import registry
from natgrad.writing import open_regular

Config = RunSettings

_LONGEST = 1 << 16  # characters of a config file, which has a few thousand; its lines may have a sixteenth
LARGEST_NUMBER, SMALLEST_NUMBER = (
    1e30,
    1e-30,
)  # single precision holds them
_SEEDS = ("seed", "data.split_seed")  # have limits of their own


def resolve(settings: Mapping[str, Any], file: str | Path | None = None) -> RunSettings:
    """The complete config: defaults, then a TOML file, then settings by short or dotted name."""
    tree = read_toml(file) if file is not None else {}
    kind = str(settings.get("model", settings.get("model.kind", kind_of(tree))))
    own = names.short_names(kind)
    for name, value in settings.items():
        _put(tree, own.get(name) or _elsewhere(name), value)
    return validate(tree)


def validate(tree: Mapping[str, Any]) -> RunSettings:
    """A config from nested settings, or one sentence that says what is wrong."""
    reader = reader_of(tree)
    spec = registry.spec_of(reader[0])
    check_booleans(tree, spec.settings[reader])
    try:
        found: RunSettings = spec.settings[reader].model_validate(dict(tree))
    except ValidationError as error:
        raise refusals.explain(error, reader) from None
    check_sizes(found)
    if found.training.schedule_steps is not None and not spec.is_scheduled(found):
        raise refusals.no_schedule(found)
    return found


def reader_of(tree: Mapping[str, Any]) -> names.Reader:
    """The kind and the method of nested settings."""
    kind = kind_of(tree)
    methods = registry.spec_of(kind).methods_of(kind)
    method = str(tree.get("method", methods[0]))
    if method not in methods:
        raise refusals.no_method(kind, method)
    return kind, method


def kind_of(tree: Mapping[str, Any]) -> str:
    """The kind of model that nested settings ask for."""
    section = tree.get("model")
    return str(section.get("kind", registry.DEFAULT)) if isinstance(section, Mapping) else registry.DEFAULT


def read_toml(file: str | Path) -> dict[str, Any]:
    """The nested settings of a TOML file."""
    try:
        text = _text_of(file)
        tree = tomllib.loads(text)
    except OSError as error:
        raise InputError(
            f"cannot read the config file {file}: {error.strerror}; give an existing TOML file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{file} is not valid TOML ({error}); correct it, or start from --dry-run's output"
        ) from None
    number = tree.get("format", FORMAT)
    if isinstance(number, int) and number > FORMAT:
        raise Newer(file, number, FORMAT)
    if isinstance(number, int) and number < former.READABLE:
        raise InputError(
            f"{file} was written by an older natgrad (its format is {number}, this one knows {FORMAT}), "
            "whose settings had other names; rename them (CHANGELOG.md), leave format out, and train again"
        )
    return former.updated(tree, number) if isinstance(number, int) and number < FORMAT else tree


def _text_of(file: str | Path) -> str:
    with open_regular(file) as stream:
        text = stream.read(4 * _LONGEST).decode()
    if len(text) > _LONGEST or any(len(line) > _LONGEST // 16 for line in text.splitlines()):
        raise ValueError("too long for a config")
    return text


def dump(config: RunSettings) -> str:
    """The complete config as TOML: every setting that is read and has a value."""
    import tomli_w

    found = config.model_dump(mode="json", exclude_none=True)
    shown = [name for name in sorted(found, key=names.LAST.__contains__) if found[name] != {}]
    return tomli_w.dumps({name: found[name] for name in shown})


def _elsewhere(name: str) -> str:
    """The dotted name of a setting that this kind has no short name for: it will be refused under it."""
    return name if "." in name or name in RunSettings.model_fields else names.short_names().get(name, name)


def _put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, last = dotted.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise InputError(f"{dotted}: {section!r} is a single value here, not a section; see --dry-run")
    tree[last] = os.fspath(value) if isinstance(value, os.PathLike) else value


def check_booleans(tree: Mapping[str, Any], settings: type[BaseModel]) -> None:
    """Refuse true and false where a setting is a number: they would be taken as 1 and 0."""
    for name, field in names.fields_of(settings).items():
        found = [value for value in _parts(_at(tree, name)) if isinstance(value, bool)]
        if found and not _takes_booleans(field.annotation):
            given = str(found[0]).lower()
            raise InputError(
                f"{name}: expected something other than true or false, got {given}; "
                "--dry-run shows what it takes"
            )


def check_sizes(config: BaseModel) -> None:
    """Refuse numbers that are too large, or too near to zero."""
    tree = config.model_dump()
    for name in names.fields_of(type(config)):
        for value in _parts(_at(tree, name)):
            if isinstance(value, int) and abs(value) > LARGEST_COUNT and name not in _SEEDS:
                raise InputError(f"{name}: expected a whole number up to {LARGEST_COUNT}, got {value}")
            if isinstance(value, float) and value and not SMALLEST_NUMBER <= abs(value) <= LARGEST_NUMBER:
                limits = f"{SMALLEST_NUMBER:g} and {LARGEST_NUMBER:g}"
                raise InputError(f"{name}: expected a number between {limits}, got {value:g}")


def _takes_booleans(annotation: Any) -> bool:
    return annotation is bool or any(map(_takes_booleans, get_args(annotation)))


def _at(tree: Any, dotted: str) -> Any:
    """What stands at a place of nested settings; None where nothing does."""
    for part in dotted.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _parts(value: Any) -> Iterator[Any]:
    """A value, or all that are in it if it is a list, however deep."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list | tuple):
            waiting += found
        else:
            yield found


def rate_ends(config: Any) -> bool:
    """Whether the learning rate follows a schedule that has an end."""
    return getattr(config.optimizer, "schedule", ENDLESS[0]) not in ENDLESS


def own_length(config: Any) -> None:
    """Adaptive damping and a KL radius decide the length of a step themselves: nothing else may change it."""
    if (config.metric.adaptive or config.metric.kl_radius) and (change := _changes_steps(config.optimizer)):
        raise InputError(
            f"a metric with adaptive damping or a KL radius decides its own steps, got {change}; "
            "use sgd without weight decay, or leave metric.adaptive and metric.kl_radius out"
        )


def own_steps(config: Any) -> None:
    """A metric that counts how far its steps went has to know them: nothing else may change them."""
    if config.metric.renewal_kl and (change := _changes_steps(config.optimizer)):
        raise InputError(
            f"metric.renewal_kl adds up the divergence of natural steps, got {change}, which makes other "
            "steps of them; use sgd without weight decay, or give metric.refresh alone"
        )
    fresh = [name for name, section in config if getattr(section, "refresh", None) == 1]
    if config.metric.renewal_kl and fresh:
        raise InputError(
            f"metric.renewal_kl says when a metric that is kept is renewed, got {fresh[0]}.refresh 1, which "
            "renews it at every step; leave one of them out"
        )


def _changes_steps(optimizer: Any) -> str:
    """What an optimizer does to a direction besides taking it, in words; nothing if it only takes it."""
    if optimizer.name != "sgd":
        return f"the optimizer {optimizer.name}"
    return f"weight decay {optimizer.weight_decay}" if optimizer.weight_decay else ""
