"""Finding a published file: the folder NATGRAD_DATA, then the user cache, then its upstream.

Every file is known by its path below such a folder and by its sha256, where that is published. Whatever
is found is checked before it is used (the largest file here takes a tenth of a second); whatever is
downloaded is checked before it enters the cache. The cache is NATGRAD_CACHE, or the platform's usual place.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from natgrad.errors import InputError
from natgrad.writing import open_regular


@dataclass(frozen=True)
class File:
    """A file: its path below a data folder, its checksum if that is known, and where it is published."""

    path: str
    sha256: str | None
    url: str | None = None


def cache_folder() -> Path:
    """The folder where downloads are kept."""
    if given := os.environ.get("NATGRAD_CACHE"):
        return Path(given)
    import pooch

    return Path(pooch.os_cache("natgrad"))


def locate(file: File) -> tuple[str, Path]:
    """Where the file is, as ("NATGRAD_DATA" | "cache" | "download" | "missing", path); nothing is read."""
    if folder := os.environ.get("NATGRAD_DATA"):
        path = Path(folder) / file.path
        if path.is_file():
            return "NATGRAD_DATA", path
    path = cache_folder() / file.path
    if path.is_file():
        return "cache", path
    return ("download" if file.url else "missing"), path


def fetch(file: File) -> Path:
    """The path of the file on this computer, downloaded if need be, its checksum verified."""
    where, path = locate(file)
    if where == "missing":
        raise InputError(
            f"the data file {file.path} was not found and has no public download; {advice(path)}"
        )
    return download(file, path) if where == "download" else verify(file, path)


def verify(file: File, path: Path) -> Path:
    """The same path, if its contents have the recorded checksum, or none is recorded."""
    try:
        with open_regular(path) as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"the data file {path} cannot be read ({error.strerror}); check its permissions"
        ) from error
    if file.sha256 is not None and found != file.sha256:
        raise InputError(
            f"expected the sha256 {file.sha256[:12]}... of {file.path}, "
            f"{path} has {found[:12]}...; delete that file and get it again"
        )
    return path


def download(file: File, path: Path) -> Path:
    """Fetch the file into the cache; pooch moves it into place only when complete and correct."""
    import pooch

    try:
        pooch.retrieve(file.url, known_hash=f"sha256:{file.sha256}", fname=path.name, path=path.parent)
    except ValueError as error:
        raise InputError(
            f"what {file.url} now serves is not the recorded {file.path} (its sha256 differs); {advice(path)}"
        ) from error
    except OSError as error:  # of the network (requests derives its errors from OSError) or of the disk
        raise InputError(
            f"the data file {file.path} was not found and {file.url} could not be saved "
            f"({type(error).__name__}); go online, or {advice(path)}"
        ) from error
    return path


def advice(path: Path) -> str:
    """What to do about a file that cannot be had."""
    folder = os.environ.get("NATGRAD_DATA")
    if not folder:
        state = "which is unset"
    else:
        state = f"now {folder!r}" if Path(folder).is_dir() else f"now {folder!r}, which is not a folder"
    return f"put it under that name in the folder NATGRAD_DATA ({state}) or at {path}"
