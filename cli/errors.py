"""What a command says when it cannot do its work: one line, and a non-zero exit."""

from __future__ import annotations

import errno
from typing import IO, Any

import click

from cli.output import say

_REFUSALS = ("22023", "P0002", "23505")
"""invalid_parameter_value, no_data_found and unique_violation (of an id), as cronstream's functions raise them."""


class Failure(click.ClickException):
    """One line on standard error; exit status 1: something is wrong."""

    def show(self, file: IO[Any] | None = None) -> None:
        say(f"cronstream: {self.message}", err=True, file=file)


class Unasked(Failure):
    """What would have told does not answer itself: nobody knows how the part is."""


class Misuse(Failure):
    """One line on standard error; exit status 2: what was written on the command line means nothing."""

    exit_code = 2


def one_line(text: object) -> str:
    """The text without its line breaks."""
    return "; ".join(part.strip() for part in str(text).splitlines() if part.strip())


def explain(error: Exception) -> Failure | None:
    """The failure that an expected error means to a user; None for a bug, which keeps its traceback."""
    # Imported here: only a command that fails pays for them.
    from cronstream.schedule import ScheduleError
    from cronstream.settings import SettingsError
    from sql.migrate import SchemaError

    if isinstance(error, Failure):
        return error
    if isinstance(error, SettingsError):
        return Failure(one_line(error))
    if isinstance(error, ScheduleError):
        return Misuse(error.sentence())
    if isinstance(error, SchemaError):
        return Failure(one_line(error))
    return _explain_postgres(error) or _explain_others(error)


def _explain_postgres(error: Exception) -> Failure | None:
    import psycopg

    from sql import OtherInstallation
    from sql.blockers import Blocked

    if not isinstance(error, psycopg.Error):
        return None
    if isinstance(error, OtherInstallation | Blocked):
        return Failure(str(error))
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return Failure("a lock that this needs is held by another transaction: try again when that has ended")
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
        return Failure("the database has no cronstream schema, or an old one: run `cronstream setup`")
    if isinstance(error, psycopg.errors.QueryCanceled):
        return Failure("Postgres took too long for this: ask for less (--limit, --since, --tenant, one job)")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Failure(
            f"{one_line(error.diag.message_primary)}: the role lacks a right; the schema's owner gives it, to look at "
            "everything with SELECT cronstream.grant_viewing('ROLE'), to define jobs and ask for runs with "
            "SELECT cronstream.grant_definitions('ROLE')"
        )
    if error.sqlstate is None:
        return Failure(f"Postgres does not answer: {one_line(error)}")
    told = sentences(error.diag.message_primary, error.diag.message_detail, error.diag.message_hint)
    # What the schema's own functions refuse is the caller's to mend, and nothing of Postgres.
    refused = error.diag.schema_name == "cronstream" and error.sqlstate in _REFUSALS
    return Failure(told if refused else f"Postgres: {told}")


def sentences(*parts: str | None) -> str:
    """Message, detail and hint as sentences of one line."""
    lines = [one_line(part) for part in parts if part]
    return " ".join(line if line.endswith((".", "?", "!", ";")) else f"{line}." for line in lines)


def _explain_others(error: Exception) -> Failure | None:
    if isinstance(error, UnicodeEncodeError):
        return Misuse("an argument holds bytes that are no text")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
        return Failure(f"the output cannot be written: {error.strerror}")
    # By name, so that a failure does not import clients that the command did not need.
    match type(error).__name__:
        case "EtcdUnavailable":
            return Failure(f"etcd does not answer: {one_line(error)}")
        case "KafkaException":
            reason = error.args[0] if error.args else error
            return Failure(f"Kafka: {one_line(reason.str() if hasattr(reason, 'str') else reason)}")
        case "ConnectUnavailable" | "ConnectRefused" | "CaptureError" | "RegistrationError":
            return Failure(one_line(error))
    return None
