"""A run's settings: validated, complete, and readable without importing JAX.

Every (kind, method) has a config class of its own, in the spec of the kind (`natgrad.models.registry`): it
declares the settings that are read, defaults included, and everything else is refused. `resolve` puts a
file, and settings by short or dotted name (`natgrad.config.names`), over the defaults.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from natgrad.config import former, limits, names, refusals
from natgrad.config.sections import FORMAT, RunSettings
from natgrad.errors import InputError, Newer
from natgrad.models import registry
from natgrad.writing import open_regular

Config = RunSettings

_LONGEST = 1 << 16  # characters of a config file, which has a few thousand; its lines may have a sixteenth


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
    limits.check_booleans(tree, spec.settings[reader])
    try:
        found: RunSettings = spec.settings[reader].model_validate(dict(tree))
    except ValidationError as error:
        raise refusals.explain(error, reader) from None
    limits.check_sizes(found)
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
