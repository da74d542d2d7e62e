"""Configs side by side: what differs, what is unusual in one, and the command that repeats its run."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from natgrad import config as configs
from natgrad.config.names import short_names

DECISIVE = ("model.kind", "method", "optimizer.name")
"""The settings that decide the defaults of others, each those after it; a config may lack the last."""


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names.

    >>> flattened({"seed": 0, "data": {"name": "digits"}})
    {'seed': 0, 'data.name': 'digits'}
    """
    found: dict[str, Any] = {}
    for name, value in tree.items():
        inner = isinstance(value, Mapping) and value
        found |= flattened(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found


def dotted_settings(config: configs.Config) -> dict[str, Any]:
    """Every setting of a config by its dotted name, as plain JSON values."""
    return flattened(config.model_dump(mode="json"))


def unusual(config: configs.Config) -> dict[str, Any]:
    """The settings that are not what this kind, method and optimizer have by default."""
    chosen, absent = dotted_settings(config), object()
    usual = dotted_settings(configs.resolve({name: chosen[name] for name in DECISIVE if name in chosen}))
    return {name: value for name, value in chosen.items() if value != usual.get(name, absent)}


def differing(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names whose values are not the same in all records, in the order of their first appearance."""
    every = list(dict.fromkeys(name for record in records for name in record))
    absent = object()
    return [
        name
        for name in every
        if any(record.get(name, absent) != records[0].get(name, absent) for record in records)
    ]


def command(config: configs.Config, *, x64: bool = False) -> str:
    """The command line that repeats a run, from its config alone.

    >>> command(configs.resolve({"method": "rws", "layers": (40, 10), "evaluation.every": 1}))
    'natgrad train --method rws --layers 40,10 --evaluation.every 1'
    """
    named = _decided(config) | unusual(config)
    short = {dotted: short.replace("_", "-") for short, dotted in short_names(config.model.kind).items()}
    words = [word for name, value in named.items() for word in _flag(short.get(name, name), value)]
    return ("JAX_ENABLE_X64=1 " if x64 else "") + shlex.join(["natgrad", "train", *words])


def _decided(config: configs.Config) -> dict[str, Any]:
    """The decisive settings that are not the default of those before them."""
    chosen, named = dotted_settings(config), dict[str, Any]()
    for name in DECISIVE:
        if name in chosen and chosen[name] != dotted_settings(configs.resolve(named)).get(name):
            named[name] = chosen[name]
    return named


def _flag(name: str, value: Any) -> list[str]:
    text = _literal(value)
    return [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]


def _literal(value: Any) -> str:
    """A value as the command line reads it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(inner, int) for inner in value):
        return ",".join(map(str, value))
    return json.dumps(value)
