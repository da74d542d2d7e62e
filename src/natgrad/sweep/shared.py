"""Settings that a file shares between candidates: each takes those that its kind and method read.

A grid over methods can thus have one file, `method = ["rws", "nrws"]` beside `damping = [0.1, 0.2]`. What
nobody reads is refused.
"""

import difflib
import itertools
from collections.abc import Collection, Iterable, Iterator

from natgrad import config
from natgrad.config import names, refusals
from natgrad.models import registry
from natgrad.sweep.values import Setting, values_of

READERS = ("model.kind", "method")  # the settings that decide who reads the others


def by_reader(chosen: Setting) -> Iterator[Setting]:
    """The same settings with every kind and every method that lists of them stand for."""
    lists = {name: values_of(name, chosen[name]) or [chosen[name]] for name in READERS if name in chosen}
    for combined in itertools.product(*lists.values()):
        yield chosen | dict(zip(lists, combined, strict=True))


def reader_for(setting: Setting) -> names.Reader:
    """The kind and the method of settings by dotted name.

    >>> reader_for({"method": "rws", "objective.samples": 10})
    ('helmholtz', 'rws')
    """
    model = {"model": {"kind": setting["model.kind"]}} if "model.kind" in setting else {}
    method = {"method": setting["method"]} if "method" in setting else {}
    return config.reader_of(model | method)


def read_by(reader: names.Reader) -> Collection[str]:
    """The dotted names of the settings that a kind and a method read."""
    return names.fields_of(registry.spec_of(reader[0]).settings[reader])


def without_unread(setting: Setting, shared: Collection[str]) -> Setting:
    """Settings without those of the shared ones that their kind and method do not read.

    >>> without_unread({"method": "rws", "seed": 1, "metric.damping": 0.1}, {"metric.damping", "seed"})
    {'method': 'rws', 'seed': 1}
    """
    own = read_by(reader_for(setting))
    return {name: value for name, value in setting.items() if name in own or name not in shared}


def check_shared(shared: Iterable[str], settings: Iterable[Setting]) -> None:
    """Refuse a shared setting that none of these settings, one for every kind and method, reads."""
    readers = list(dict.fromkeys(map(reader_for, settings)))
    known = {reader: read_by(reader) for reader in readers}
    for name in shared:
        if not any(name in own for own in known.values()):
            alike = lambda reader: max(_likeness(name, own) for own in known[reader])  # noqa: B023, E731
            raise refusals.no_setting(name, max(readers, key=alike))


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
