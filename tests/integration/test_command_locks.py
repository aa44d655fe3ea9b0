"""Commands whose job somebody else's transaction holds: they wait in their order, and nobody else does."""

from __future__ import annotations

import signal
from typing import Any

from tests.integration.test_commands import DEFINITION, Desk, desk
from tests.support.installation import TestInstallation
from tests.support.poll import eventually

__all__ = ["desk"]

OTHERS = [f"other-{number}" for number in range(8)]


def prepare(installation: TestInstallation, desk: Desk) -> None:
    for name in ("edited", *OTHERS):
        desk.command("upsert", f"make {name}", name=name, definition=DEFINITION)
    for name in ("edited", *OTHERS):
        desk.answer(f"make {name}")


def ids(desk: Desk, name: str) -> list[Any]:
    return [answer["id"] for key, answer in desk.answers if key == f"default/{name}".encode()]


def test_a_transaction_that_is_open_holds_up_its_own_job_alone(installation: TestInstallation, desk: Desk) -> None:
    installation.start("streams.commands", "commands")
    prepare(installation, desk)
    with installation.connect(autocommit=False) as user:
        user.execute("UPDATE cronstream.job_definitions SET spread_seconds = 7 WHERE name = 'edited'")
        desk.command("patch", "first", name="edited", changes={"spread_seconds": 1})
        desk.command("patch", "second", name="edited", changes={"spread_seconds": 2})
        for name in OTHERS:
            desk.command("patch", f"patch {name}", name=name, changes={"spread_seconds": 3})
        for name in OTHERS:
            desk.answer(f"patch {name}")
        desk.command("run-now", "third", name="edited")
        desk.command("run-now", "after", name=OTHERS[0])
        desk.answer("after")
        assert ids(desk, "edited") == ["make edited"]
        user.commit()
    desk.answer("third")
    assert ids(desk, "edited") == ["make edited", "first", "second", "third"]
    with installation.connect() as connection:
        found = connection.execute(
            "SELECT spread_seconds FROM cronstream.job_definitions WHERE name = 'edited'"
        ).fetchone()
    assert found == (2,)
    sent = 9 + 2 + 8 + 2
    eventually(lambda: desk.committed() == sent, within=20, says="all are committed")


def test_a_process_that_dies_while_commands_wait_loses_and_doubles_none(
    installation: TestInstallation, desk: Desk
) -> None:
    first = installation.start("streams.commands", "first")
    prepare(installation, desk)
    with installation.connect(autocommit=False) as user:
        user.execute("UPDATE cronstream.job_definitions SET spread_seconds = 7 WHERE name = 'edited'")
        desk.command("pause", "pause", name="edited")
        desk.command("resume", "resume", name="edited")
        for name in OTHERS:
            desk.command("run-now", f"run {name}", name=name)
        for name in OTHERS:
            desk.answer(f"run {name}")
        assert ids(desk, "edited") == ["make edited"]
        first.send_signal(signal.SIGKILL)
        first.wait(10)
        installation.start("streams.commands", "second")
        desk.command("run-now", "later", name=OTHERS[0])
        desk.answer("later")
        assert set(ids(desk, "edited")) == {"make edited"}
    desk.answer("resume")
    assert list(dict.fromkeys(ids(desk, "edited"))) == ["make edited", "pause", "resume"]
    with installation.connect() as connection:
        assert connection.execute("SELECT count(*) FROM cronstream.open_requests").fetchone() == (8 + 1,)


def test_while_the_table_is_locked_commands_wait_and_then_all_are_answered(
    installation: TestInstallation, desk: Desk
) -> None:
    installation.start("streams.commands", "commands")
    prepare(installation, desk)
    with installation.connect(autocommit=False) as user:
        user.execute("LOCK TABLE cronstream.job_definitions")
        for name in OTHERS:
            desk.command("pause", f"pause {name}", name=name)
            desk.command("resume", f"resume {name}", name=name)
        eventually(
            lambda: "Commands wait for other transactions" in installation.log_of("commands"), within=30, every=0.2
        )
    for name in OTHERS:
        desk.answer(f"resume {name}")
        assert ids(desk, name) == [f"make {name}", f"pause {name}", f"resume {name}"]
