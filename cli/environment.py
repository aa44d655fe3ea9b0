"""Where the command finds its servers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg

import sql
from cronstream.settings import PREFIX, Installation, SettingsError, read_settings
from sql.blockers import naming_blockers

ENV_FILE = Path(".local/env")
STATEMENT_SECONDS = 30
LOCK_SECONDS = 2
_OPTIONS = f"-c timezone=UTC -c lock_timeout={LOCK_SECONDS}s"
_SERVERS = [PREFIX + name for name in ("POSTGRES", "KAFKA", "ETCD", "CONNECT")]
Model = TypeVar("Model", bound=Installation)


def variables(environ: Mapping[str, str] | None = None, file: Path = ENV_FILE) -> dict[str, str]:
    """The environment; with the file's variables below it where it names no server itself.

    All servers come from one place, so that a half-set environment cannot mix two installations.
    """
    environ = os.environ if environ is None else environ
    if any(environ.get(name) for name in _SERVERS) or not file.is_file():
        return dict(environ)
    return {**_parse(file), **environ}


def settings(model: type[Model]) -> Model:
    """The settings of this call. Raises SettingsError."""
    found = variables()
    if not any(found.get(name) for name in _SERVERS):
        raise SettingsError(
            "no server is named: `make up` starts the local stack; if it is up, go to its folder or read its "
            f"{ENV_FILE} ({PREFIX}POSTGRES is not set, and there is no {ENV_FILE} here)"
        )
    return read_settings(model, found)


@contextmanager
def postgres() -> Iterator[psycopg.Connection[Any]]:
    """A connection in autocommit mode whose statements end after half a minute, or two seconds of waiting for a lock.

    Raises Blocked, which names who holds that lock.
    """
    with (
        sql.connect(settings(Installation), "cli", autocommit=True, options=_OPTIONS) as connection,
        naming_blockers(connection),
    ):
        # To compile what is asked here would take longer than it does.
        connection.execute(f"SET statement_timeout = {STATEMENT_SECONDS * 1000}; SET jit = off".encode())
        yield connection


def _parse(file: Path) -> dict[str, str]:
    values = {}
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise SettingsError(f"{file}: {error}") from None
    for line in lines:
        name, equals, value = line.strip().partition("=")
        if equals and name.startswith(PREFIX):
            values[name] = value.removeprefix("'").removesuffix("'")
    return values
