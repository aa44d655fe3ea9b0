"""What tests of the schema share."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from sql.migrate import migrate
from tests.support.endpoints import Endpoints


@pytest.fixture(scope="module")
def database(stack: Endpoints) -> Iterator[str]:
    """A migrated database of the module's own."""
    with stack.database() as dsn:
        with psycopg.connect(dsn, autocommit=True) as conn:
            migrate(conn)
        yield dsn
