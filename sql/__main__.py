"""``python -m sql migrate``: bring the database's schema up to date."""

from __future__ import annotations

import os
import sys

import psycopg

from cronstream.settings import Installation, SettingsError, read_settings
from sql.connection import claim, connect
from sql.migrate import SchemaError, migrate, schema_version_check

USAGE = "usage: python -m sql migrate | check"


def main(arguments: list[str]) -> int:
    """Run one command; the exit code."""
    if arguments not in (["migrate"], ["check"]):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        settings = read_settings(Installation, os.environ)
        with connect(settings, "migrate", autocommit=True) as conn:
            if arguments == ["check"]:
                schema_version_check(conn)
                print("schema: up to date")
                return 0
            for migration in migrate(conn):
                print(f"schema: applied {migration.version:04}_{migration.name}")
            claim(conn, settings.installation)
            print("schema: up to date")
    except (SettingsError, SchemaError, psycopg.OperationalError) as error:
        print(f"python -m sql: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
