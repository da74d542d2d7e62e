"""`natgrad data`: which sets there are, whether they are here, and whether they are sound.

Plain functions that return what the command prints; a listing opens no file.
"""

from typing import Any

from natgrad.data.catalogue import CATALOGUE, Entry
from natgrad.data.dataset import load
from natgrad.data.files import fetch, locate
from natgrad.data.splits import SPLITS
from natgrad.errors import unknown

PLACES = ("embedded", "NATGRAD_DATA", "cache", "download", "missing")  # from near to far


def list_sets() -> list[dict[str, Any]]:
    """One record for each set of the catalogue, from what is known without opening a file."""
    return [_listed(entry) for entry in CATALOGUE.values()]


def get(name: str) -> dict[str, Any]:
    """Make sure the files of a set are here and sound; return where they are."""
    entry = _entry_of(name)
    paths = [str(fetch(file)) for file in entry.files]
    return {"name": name, "where": place(entry), "paths": paths}


def check_set(name: str) -> dict[str, Any]:
    """Verify the checksums of a set's files, load it, and return what was found."""
    unverified = ", ".join(file.path for file in _entry_of(name).files if file.sha256 is None)
    data = load(name)
    return {
        "name": name,
        "ok": True,
        "visible": data.visible,
        "rows": {split: len(getattr(data, split)) for split in SPLITS},
        "split": data.split["kind"],
        "checksums": data.split["checksums"],
        "note": f"no checksum of {unverified} is known: it was read only" if unverified else None,
    }


def _entry_of(name: str) -> Entry:
    """The entry of that name."""
    if name not in CATALOGUE:
        raise unknown("data set", name, CATALOGUE)
    return CATALOGUE[name]


def _listed(entry: Entry) -> dict[str, Any]:
    """The record of one set in the listing."""
    return {
        "name": entry.name,
        "description": entry.description,
        "visible": entry.visible,
        "image_shape": list(entry.image_shape) if entry.image_shape else None,
        "rows": dict(zip(SPLITS, entry.rows, strict=True)) if entry.rows else None,
        "binarize": entry.binarize or "binary",
        "where": place(entry),
    }


def place(entry: Entry) -> str:
    """Where the set is to be had: the farthest place among those of its files."""
    found = {locate(file)[0] for file in entry.files}
    return max(found, key=PLACES.index, default="embedded")
