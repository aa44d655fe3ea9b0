"""``cronstream adopt-etcd``: after an etcd was lost."""

from __future__ import annotations

import click

from cli.environment import postgres, settings
from cli.errors import Failure
from cli.output import json_option, print_json, say
from coordinator.election import Leader, read_leader
from cronstream.clock import SystemClock
from cronstream.settings import Installation
from sql.queries import load

_LOOKS = 4
_PAUSE_SECONDS = 0.5

_WHY = """Fencing tokens are etcd's revisions, and they must grow. An etcd that was wiped or restored counts from
the start again and has lost the name by which Postgres knows it, so no candidate leads.
This command tells Postgres to count the new etcd's revisions on top of the newest token.

Do it only if the old etcd is gone for good: a leader that still holds its key there would not be fenced.
"""


@click.command("adopt-etcd", short_help="Let coordinators lead after etcd was lost.")
@click.option("--yes", is_flag=True, help="The old etcd is gone for good: do it.")
@json_option
def adopt_etcd(yes: bool, as_json: bool) -> None:
    """Let coordinators lead again after etcd was wiped or restored from a backup.

    Fencing tokens are etcd's revisions; a new etcd counts anew, and nobody would lead. Use it only when
    the old etcd is gone for good.
    """
    if not yes:
        say(_WHY, err=True)
        raise Failure("nothing was changed: say --yes when the old etcd is gone for good")
    leader = _lasting_leader(settings(Installation))
    if leader is not None:
        raise Failure(f"nothing was changed: {leader.node} leads since {leader.since}, so this etcd is in use")
    with postgres() as connection:
        row = connection.execute(load("coordinator")["adopt_etcd"]).fetchone()
    if row is None:
        raise Failure("the database has no epoch row: run `cronstream setup`")
    if as_json:
        print_json({"adopted": True, "base": row[0]})
    else:
        say(f"adopted: tokens go on from {row[0]}; the next candidate can lead")


def _lasting_leader(found: Installation) -> Leader | None:
    """Who leads and goes on leading: a candidate that is refused holds the key for a moment only."""
    clock = SystemClock()
    for _ in range(_LOOKS):
        leader = read_leader(found.etcd, f"/{found.installation}")
        if leader is None:
            return None
        clock.sleep(_PAUSE_SECONDS)
    return leader
