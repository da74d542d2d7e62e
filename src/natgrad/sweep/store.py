"""A store that workers on any hosts share: a database, or a journal on a shared disk, both optuna's own.

An address may have a password in it: no message repeats more of it than its host and its database.
"""

import importlib.util
import json
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from natgrad.errors import InputError
from natgrad.sweep.search import import_optuna
from natgrad.writing import open_regular

DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}
PACKAGES = {"postgresql": "psycopg[binary]", "mysql": "pymysql"}  # that have the drivers
_EXPECTED = "postgresql://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE or the path of a journal file"
_CONNECT_SECONDS = 10
_LONGEST_LINE = 1 << 16
_TRIES = 4  # several workers may make the tables of an empty database at once: one of them can


def open_study(address: str, name: str) -> Any:
    """The study of this name in a store; made if it is not there."""
    optuna = import_optuna("join: a shared sweep", "leave out --join")
    for more in reversed(range(_TRIES)):
        try:
            with talking(address):
                storage = _database(optuna, address) if "://" in address else _journal(optuna, address)
                return optuna.create_study(
                    storage=storage, study_name=name, direction="maximize", load_if_exists=True
                )
        except InputError as error:
            if not more or not _is_race(error.__cause__):
                raise
            time.sleep(0.5)
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def talking(address: str) -> Iterator[None]:
    """What may go wrong with a store while one talks to it, said in one sentence."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, OSError) as error:
        raise InputError(
            f"cannot reach the store {shown(address)} ({_reason(address, error)}); check that it is there "
            "and that you can write to it, then run the same command again"
        ) from error
    except ValueError as error:
        if not isinstance(error, InputError) and "://" not in address:
            raise _no_journal(address) from error
        raise


def shown(address: str) -> str:
    """An address without the user, the password and the options.

    >>> shown("postgresql://me:secret@host:5432/sweeps?sslmode=require"), shown("disk/rates.journal")
    ('postgresql://host:5432/sweeps', 'disk/rates.journal')
    """
    if "://" not in address:
        return address
    url = _url(address)
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()}://{url.host or ''}{port}/{url.database or ''}"


def _url(address: str) -> Any:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise InputError(
            f"join: expected {_EXPECTED}, got an address that cannot be read; correct it"
        ) from None
    scheme = url.drivername.split("+")[0]
    if scheme not in DRIVERS:
        raise InputError(f"join: expected {_EXPECTED}, got {scheme}://; give another store")
    return url.set(drivername=f"{scheme}+{DRIVERS[scheme]}")


def _database(optuna: Any, address: str) -> Any:
    url = _url(address)
    scheme, driver = url.drivername.split("+")
    if importlib.util.find_spec(driver) is None:
        raise InputError(
            f"join: a store at {scheme}:// needs {driver}, which is missing; pip install {PACKAGES[scheme]}"
        )
    from sqlalchemy.pool import NullPool

    # Talks are minutes apart: no connection is kept that a server or a firewall could drop meanwhile.
    options = {"connect_args": {"connect_timeout": _CONNECT_SECONDS}, "poolclass": NullPool}
    return optuna.storages.RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=options)


def _journal(optuna: Any, path: str) -> Any:
    from optuna.storages.journal import JournalFileBackend

    _check_journal(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # journals were called experimental for a while
        return optuna.storages.JournalStorage(JournalFileBackend(path))


def _check_journal(path: str) -> None:
    """A file of another kind would be appended to."""
    if not os.path.exists(path):
        return
    with open_regular(path) as stream:
        first = stream.readline(_LONGEST_LINE)
    try:
        if first and "op_code" not in json.loads(first):
            raise _no_journal(path)
    except (ValueError, TypeError):
        raise _no_journal(path) from None


def _no_journal(path: str) -> InputError:
    return InputError(
        f"{path} is not a journal that can be read; give a journal of natgrad sweep, or a new file"
    )


def _reason(address: str, error: BaseException) -> str:
    """The first line of what the driver or the system says, without the password."""
    inner = error.__cause__ if error.__cause__ is not None else error
    said = getattr(inner, "strerror", None) or str(getattr(inner, "orig", inner))
    password = _url(address).password if "://" in address else None
    lines = said.replace(str(password), "***").strip().splitlines() if password else said.splitlines()
    return lines[0].strip() if lines else type(inner).__name__


def _is_race(error: BaseException | None) -> bool:
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    return isinstance(error, IntegrityError | ProgrammingError) or isinstance(
        getattr(error, "__cause__", None), IntegrityError | ProgrammingError
    )
