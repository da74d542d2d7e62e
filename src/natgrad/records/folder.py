"""A run folder: the whole truth of a run.

config.toml        complete and resolved         trace.jsonl    one row per evaluation
environment.json   versions, computer, data      state/         parameters and everything else, atomically
samples.png        pictures of the model         gallery/       its pictures through training
models/            copies of the model at steps 1, 2, 4, 8, ..., if asked for

Whatever is replaced is replaced whole: written to a temporary name, forced to the disk, renamed. Only
the trace grows in place; rows that a kill left behind its saved state are cut off on resuming. One process
writes a run at a time: the lock is the operating system's, on an open file, and ends with the process.
"""

import fcntl
import io
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from natgrad import config
from natgrad.errors import InputError, check_paths
from natgrad.models import registry
from natgrad.writing import extend, is_system, open_regular, write

_TRIES = 5  # to take the lock, a tenth of a second apart
_LONGEST = 1 << 20  # bytes of a row of the trace, which has thousands


def check_output_folder(out: str | Path | None) -> None:
    """Refuse, before any work, a folder that cannot become a run."""
    if out is None:
        return
    folder = Path(out)
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"the output folder {folder} is not empty; give another --out or remove it")
    check_writable(folder, "the run")


def check_writable(folder: Path, what: str) -> None:
    """Refuse, before any work, a folder that is not there and cannot be made, or may not be written."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK) or is_system(nearest):
        raise InputError(
            f"cannot write {what} to {folder}: {nearest} is not a folder you can write to; give another --out"
        )


def create(out: str | Path | None, settings: config.Config) -> Path:
    """Make the folder of a new run and write its config; by default that of `unused_folder`."""
    folder = Path(out) if out is not None else unused_folder(settings)
    check_output_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "config.toml", config.dump(settings))
    except OSError as error:
        raise InputError(f"cannot write the run to {folder}: {error.strerror}; give another --out") from None
    return folder


@contextmanager
def new_run(out: str | Path | None, settings: config.Config) -> Iterator[Path]:
    """The folder of a new run, held for writing; one that fails before its first record is removed."""
    folder = create(out, settings)
    with held(folder):
        try:
            yield folder
        except BaseException:
            if not (folder / "trace.jsonl").exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise


def open_run(folder: str | Path) -> tuple[Path, config.Config]:
    """An existing run and its config."""
    if not isinstance(folder, str | Path):
        check_paths(run=folder)
    path = Path(folder)
    if not (path / "config.toml").is_file():
        raise InputError(
            f"{path} is not a run folder (it has no config.toml); give a folder that `natgrad train` wrote"
        )
    return path, config.resolve({}, path / "config.toml")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """What a disk or a permission refuses, as one sentence: what was saved before is still there."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to the run {folder}: {error.strerror or error}; {_left(folder)}"
        ) from error


def _left(folder: Path) -> str:
    """What a run has when its disk refuses to write, and what to do."""
    if (folder / "trace.jsonl").exists():
        return f"what was saved before is kept: make room or allow writing, then `natgrad resume {folder}`"
    return "nothing had been recorded yet: make room or allow writing, then train again"


def append(folder: Path, row: Mapping[str, Any]) -> None:
    """Add a row to the trace."""
    extend(folder / "trace.jsonl", json_line(row) + "\n")


def trace(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of the trace; a last line cut off by a kill is left out."""
    path, damaged = folder / "trace.jsonl", 0
    if not path.exists():
        return
    with _opened(path) as stream:
        for number, line in enumerate(_lines(stream), start=1):
            if damaged:
                break
            row = _row(line)
            if row is None:
                damaged = number
            else:
                yield row
        else:
            return
    raise InputError(f"line {damaged} of {path} is damaged; remove that line")


def cut(folder: Path, rows: int) -> None:
    """Leave the first rows of the trace and nothing after them."""
    path, kept = folder / "trace.jsonl", 0
    with _opened(path) if path.exists() else io.BytesIO() as stream:
        for _ in range(rows):
            line = stream.readline(_LONGEST)
            if _row(line) is None or not line.endswith(b"\n"):
                raise InputError(
                    f"{path} has fewer good rows than the {rows} that the saved state counts; "
                    "restore it from a copy, or train again"
                )
            kept += len(line)
        more = stream.read(1)
        stream.seek(0)
        rows_kept = stream.read(kept) if more else b""
    if more:
        write(path, rows_kept)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError:
        raise InputError(f"{path} is not a file that can be read; restore it from a copy") from None


def json_line(value: Any) -> str:
    """One line of strict JSON; numbers that are not finite become null."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, longer ones in pieces: no row of a trace is so long."""
    while line := stream.readline(_LONGEST):
        yield line


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def stem_of(settings: config.Config) -> str:
    """What the name of a run begins with: data, kind of model where it is not the usual one, method."""
    kind = () if settings.model.kind == registry.DEFAULT else (settings.model.kind,)
    return "-".join((Path(settings.data.name).stem, *kind, settings.method))


def unused_folder(settings: config.Config) -> Path:
    """The first `runs/<data>-<kind>-<method>-<number>` that does not exist."""
    stem = stem_of(settings)
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run for writing, or refuse if another process does."""
    with writing(folder):
        (folder / "state").mkdir(exist_ok=True)
        handle = os.open(folder / "state" / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _take(handle, folder)
        yield
    finally:
        os.close(handle)


def _take(handle: int, folder: Path) -> None:
    try:
        for _ in range(_TRIES):
            with suppress(BlockingIOError):
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            time.sleep(0.1)  # someone may only be looking whether the run is locked
        raise InputError(f"another process is training {folder}; wait for it, or stop it, and resume then")
    except OSError as error:
        raise InputError(
            f"cannot lock {folder} ({error.strerror}); put the run on a disk that supports file locks"
        ) from None


def locked(place: Path) -> bool:
    """Whether a process holds the run's lock at this moment."""
    try:
        handle = os.open(place / "state" / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False
