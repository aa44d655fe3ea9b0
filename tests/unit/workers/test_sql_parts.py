"""Parameters of statements, and the file of connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from psycopg.pq import TransactionStatus

from cronstream.clock import SystemClock
from cronstream.settings import SettingsError
from tests.unit.workers.attempts import an_attempt, settings
from workers.attempt import BadPayload
from workers.handlers.sql import SqlHandler, numbered
from workers.handlers.sql_connections import NamedConnection, read_connections
from workers.handlers.sql_pool import Pool


def test_named_parameters_become_numbered_ones() -> None:
    statement = "INSERT INTO t VALUES (%(a)s, %(b)s, %(a)s) -- 5 % of %s"
    given = {"a": "x'y", "b": {"n": [1, None]}, "unused": 5}
    assert numbered(statement, given) == (
        b"INSERT INTO t VALUES ($1, $2, $1) -- 5 % of %s",
        [b"x'y", b'{"n":[1,null]}'],
    )


def test_values_are_text_that_the_server_reads() -> None:
    _, values = numbered("%(a)s %(b)s %(c)s %(d)s", {"a": 5, "b": 1.5, "c": True, "d": None})
    assert values == [b"5", b"1.5", b"true", None]


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(BadPayload, match="not there: idempotencykey, x"):
        numbered("%(x)s %(idempotencykey)s %(a)s", {"a": 1})


def test_the_file_names_connections_and_their_passwords_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("it's\n")
    path = tmp_path / "connections.toml"
    path.write_text(
        f'[billing]\ndsn = "host=db user=jobs"\npassword_file = "{secret}"\nconnections = 3\n[x]\ndsn = ""\n'
    )
    found = read_connections(path)
    assert found.keys() == {"billing", "x"}
    assert found["billing"].connections == 3
    assert "it\\'s" in found["billing"].conninfo()
    assert "it" not in repr(found)
    assert read_connections(None) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[billing]\n", "billing.dsn: Field required"),
        ('[billing]\ndsn = "host=db password=hush"\n', "billing.dsn: Value error, has a password"),
        ('[billing]\ndsn = "postgresql://u:hush@db/x"\n', "billing.dsn: Value error, has a password"),
        ('[billing]\ndsn = "hush = ="\n', "billing.dsn: Value error, not a libpq connection string"),
        ('[billing]\ndsn = ""\nconnections = 0\n', "billing.connections: Input should be greater"),
        ('[billing]\ndsn = ""\npool = 5\n', "billing.pool: Extra inputs"),
        ("billing", "Expected '='"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_and_not_quoted(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "connections.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match="CRONSTREAM_SQL_CONNECTIONS") as error:
        read_connections(path)
    assert says in str(error.value)
    assert "hush" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"CRONSTREAM_SQL_CONNECTIONS: .*No such file"):
        read_connections(tmp_path / "none")


def test_a_tenant_that_hangs_leaves_connections_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection:
        """Sound, idle and nowhere."""

        info = type("Info", (), {"transaction_status": TransactionStatus.IDLE})

        async def execute(self, _: str) -> None:
            pass

        async def close(self) -> None:
            pass

    async def connect() -> Connection:
        return Connection()

    async def go() -> None:
        pool = Pool(NamedConnection(dsn="", connections=4), "test")
        monkeypatch.setattr(pool, "_connect", connect)
        over = asyncio.Event()
        holding: list[str] = []

        async def run(tenant: str) -> None:
            async with pool.connection(tenant):
                holding.append(tenant)
                await over.wait()

        tasks = [asyncio.create_task(run("hangs")) for _ in range(10)]
        tasks += [asyncio.create_task(run("other"))]
        async with asyncio.timeout(5):
            while "other" not in holding:
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        assert holding.count("hangs") == 3
        over.set()
        await asyncio.gather(*tasks)
        assert len(holding) == 11
        assert not pool._tenants

    asyncio.run(go())


def test_a_run_that_gets_no_connection_before_its_deadline_says_that_nothing_was_sent(tmp_path: Path) -> None:
    path = tmp_path / "connections.toml"
    path.write_text('[billing]\ndsn = ""\nconnections = 1\n')
    attempt = an_attempt("sql", {"connection": "billing", "statement": "SELECT 1"})

    async def go() -> None:
        handler = SqlHandler(settings(sql_connections=path), SystemClock())
        await handler._pools["billing"]._free.acquire()
        async with asyncio.timeout(0.05):
            await handler.run(attempt)

    with pytest.raises(TimeoutError):
        asyncio.run(go())
    assert attempt.waits_for == "a connection to billing: its statement was not sent"
