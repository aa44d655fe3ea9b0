"""What ``sql`` jobs may connect to: names in a file of the worker, never addresses in a payload.

[billing]
dsn = "host=db.internal dbname=billing user=jobs"
password_file = "/run/secrets/billing"     # optional
connections = 10                           # at once, of this worker; 10 when left out
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import ProgrammingError
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from cronstream.settings import PREFIX, SettingsError

VARIABLE = f"{PREFIX}SQL_CONNECTIONS"


class NamedConnection(BaseModel):
    """One entry of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dsn: str
    password_file: Path | None = None
    connections: int = Field(10, ge=1, le=1000)

    @field_validator("dsn")
    @classmethod
    def _has_no_password(cls, dsn: str) -> str:
        try:
            parts = conninfo_to_dict(dsn)
        except ProgrammingError:
            raise ValueError("not a libpq connection string") from None
        if "password" in parts:
            raise ValueError("has a password; put it into a file and name that as password_file")
        return dsn

    def conninfo(self) -> str:
        """The connection string with the password in it. Raises OSError; read anew each time, so it may change."""
        if self.password_file is None:
            return self.dsn
        return make_conninfo(self.dsn, password=self.password_file.read_text().strip())


_entries = TypeAdapter(dict[str, NamedConnection])


def read_connections(path: Path | None) -> dict[str, NamedConnection]:
    """The file's entries; none without a file. Raises SettingsError, which quotes nothing of a connection string."""
    if path is None:
        return {}
    try:
        return _entries.validate_python(tomllib.loads(path.read_text()))
    except (OSError, ValueError) as error:
        if isinstance(error, ValidationError):
            problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors())
            raise SettingsError(f"{VARIABLE}: {path}: {problems}") from None
        raise SettingsError(f"{VARIABLE}: {path}: {error}") from None
