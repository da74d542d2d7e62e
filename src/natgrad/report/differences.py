"""Configs side by side: what differs, what is unusual in one, and the command that repeats its run."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from natgrad.config import Config, resolve
from natgrad.names import short_names


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names.

    >>> flat({"seed": 0, "data": {"name": "digits"}})
    {'seed': 0, 'data.name': 'digits'}
    """
    found: dict[str, Any] = {}
    for name, value in tree.items():
        inner = isinstance(value, Mapping) and value
        found |= flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found


def settings(config: Config) -> dict[str, Any]:
    """Every setting of a config by its dotted name, as plain JSON values."""
    return flat(config.model_dump(mode="json"))


def unusual(config: Config) -> dict[str, Any]:
    """The settings that are not what this method and optimiser have by default."""
    usual = settings(resolve(_chosen(config)))
    return {name: value for name, value in settings(config).items() if value != usual[name]}


def differing(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names whose values are not the same in all records, in the order of their first appearance."""
    every = list(dict.fromkeys(name for record in records for name in record))
    absent = object()
    return [
        name
        for name in every
        if any(record.get(name, absent) != records[0].get(name, absent) for record in records)
    ]


def command(config: Config, *, x64: bool = False) -> str:
    """The command line that repeats a run, from its config alone.

    >>> command(resolve({"method": "rws", "layers": (40, 10), "evaluation.every": 1}))
    'natgrad train --method rws --layers 40,10 --evaluation.every 1'
    """
    usual = settings(resolve({}))
    told = {name: value for name, value in _chosen(config).items() if value != usual[name]} | unusual(config)
    short = {dotted: short for short, dotted in short_names(config.model.kind).items()}
    words = [word for name, value in told.items() for word in _flag(name, short.get(name), value)]
    return ("JAX_ENABLE_X64=1 " if x64 else "") + shlex.join(["natgrad", "train", *words])


def _chosen(config: Config) -> dict[str, Any]:
    """The settings that decide the defaults of others."""
    deciding = ("model.kind", "method", "optimizer.name")
    return {name: value for name, value in settings(config).items() if name in deciding}


def _flag(name: str, short: str | None, value: Any) -> list[str]:
    text = _literal(value)
    flag = f"--{name}" if short is None else f"--{short}".replace("_", "-")
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _literal(value: Any) -> str:
    """A value as the command line reads it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(inner, int) for inner in value):
        return ",".join(map(str, value))
    return json.dumps(value)
