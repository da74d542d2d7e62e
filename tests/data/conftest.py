"""Real files are read only below NATGRAD_DATA; everything else is made by the tests."""

import os

import pytest


@pytest.fixture
def real_data():
    if not os.path.isdir(os.environ.get("NATGRAD_DATA", "")):
        pytest.skip("NATGRAD_DATA names no folder: REAL DATA ARE NOT TESTED; set it to the data folder")


@pytest.fixture
def empty_folders(tmp_path, monkeypatch):
    """No data folder, an empty cache: what a new user has. Returns the cache."""
    monkeypatch.delenv("NATGRAD_DATA", raising=False)
    monkeypatch.setenv("NATGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
