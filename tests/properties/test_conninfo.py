"""A connection string is understood as libpq does, and what is wrong with it is said without a word of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from cronstream.conninfo import checked
from cronstream.settings import PROCESSES, Installation, SettingsError, read_settings
from sql.connection import connect

SERVERS = {"CRONSTREAM_KAFKA": "k:1", "CRONSTREAM_ETCD": "e:1"}
pieces = st.sampled_from(
    ["host", "dbname", "user", "password", "=", "'", "\\", " ", "\n", "\t", "a", "b", "é", "5432", "postgresql://", "/"]
)


@given(st.lists(pieces, max_size=14).map("".join))
@example("host='a b'user=c")
@example("host= dbname=x")
@example("dbname=x\\")
@example("user='it\\'s' dbname = 'a\\\\'")
def test_what_is_accepted_is_what_libpq_reads(text: str) -> None:
    try:
        parts: dict[str, Any] | None = conninfo_to_dict(text)
    except psycopg.ProgrammingError as error:
        if "invalid connection option" in str(error):
            return  # which names there are is libpq's to say
        parts = None
    try:
        checked(text)
    except ValueError as error:
        says = str(error)
        # libpq drops a backslash at the end.
        assert parts is None or "password" in text or says.startswith("is a URL") or text.endswith("\\")
    else:
        assert parts is not None
        assert "password" not in parts


WRONG = [
    "postgresql://app:hush@db/x",
    "postgres://db",
    "host=db password=hush",
    "host='db hush",
    "host=db hush",
    "hush",
]


@pytest.mark.parametrize("model", [Installation, *dict.fromkeys(PROCESSES.values())])
@pytest.mark.parametrize("wrong", WRONG)
def test_every_process_refuses_what_is_no_connection_string_and_shows_no_password(
    model: type[Installation], wrong: str, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("hush-too")
    given = {**SERVERS, "CRONSTREAM_POSTGRES": wrong, "CRONSTREAM_POSTGRES_PASSWORD_FILE": str(secret)}
    with pytest.raises(
        SettingsError, match=r"^CRONSTREAM_POSTGRES: (is a URL|its parameter \d|has a password)"
    ) as raised:
        read_settings(model, given)
    assert "hush" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_the_password_is_not_in_the_string_that_the_driver_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors quote what it cannot read: here what the settings let pass, an option that libpq does not know."""
    secret = tmp_path / "password"
    secret.write_text("hush")
    given = {**SERVERS, "CRONSTREAM_POSTGRES": "hostt=db", "CRONSTREAM_POSTGRES_PASSWORD_FILE": str(secret)}
    settings = read_settings(Installation, given)
    with pytest.raises(psycopg.Error, match="hostt") as raised:
        connect(settings)
    assert "hush" not in str(raised.value)
    handed: list[tuple[str, Any]] = []

    def driver(string: str, **parameters: Any) -> None:
        handed.append((string, parameters["password"]))
        raise psycopg.OperationalError("nobody is there")

    monkeypatch.setattr(psycopg, "connect", driver)
    with pytest.raises(psycopg.OperationalError):
        connect(settings)
    assert handed == [("hostt=db", "hush")]
