"""What the doctor makes of what it found. Pure: each function judges facts and says what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from cli.output import count, span
from connectors.seen import Slot
from connectors.verdict import WELL
from coordinator.zone_data import is_older
from cronstream.clock import SECOND
from cronstream.topics import TopicSpec

OK, WARNING, PROBLEM = "ok", "warning", "problem"
OLDEST_POSTGRES = 150000


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: str
    """ok, warning or problem"""
    says: str
    remedy: str | None = None
    details: list[dict[str, Any]] = field(default_factory=list)


def process_settings(refused: Sequence[str]) -> Check:
    """What processes say of settings that they refuse."""
    if not refused:
        return Check("settings", OK, "every process would take those that are set here")
    remedy = "mend what is named: a process that reads it does not start"
    return Check("settings", PROBLEM, "; ".join(refused), remedy)


def zone_data(here: str, package: str, held: str | None, planned: str | None) -> Check:
    """This node's time zone data against what leaders had (``held``) and plans stand on (``planned``)."""
    name = "zone data"
    says = f"{here} (PyPI's tzdata {package}) on this node"
    if held is None:
        return Check(name, OK, f"{says}; nobody has led yet")
    says += f"; the newest that a leader had is {held}, every plan stands on {planned or 'older data'}"
    if is_older(here, held):
        return Check(name, PROBLEM, says, f"this node cannot lead: bring its tzdata package to {held} or newer")
    if is_older(held, here):
        return Check(name, WARNING, says, f"the next leader with {here} plans anew: bring every node to {here}")
    if planned != held:
        remedy = "the leader plans anew: look again in a minute; if it stays so, read the leader's log"
        return Check(name, WARNING, says, remedy)
    return Check(name, OK, says)


def zone_keys(ours: Collection[str], theirs: Collection[str]) -> Check:
    """The zones that this node knows against those that SQL accepts."""
    name = "zone names"
    only_sql, only_here = sorted(set(theirs) - set(ours)), sorted(set(ours) - set(theirs))
    if only_sql:
        says = f"SQL accepts zones that this node does not know: {_some(only_sql)}"
        return Check(name, PROBLEM, says, "bring this node's tzdata package up to date")
    if only_here:
        says = f"SQL refuses zones that this node knows: {_some(only_here)}"
        return Check(name, WARNING, says, "run the version of cronstream that brings them, and `cronstream setup`")
    return Check(name, OK, f"{count(len(set(ours)), 'zone')}, the same in SQL and here")


def server_settings(found: Mapping[str, Any]) -> list[Check]:
    """Postgres' version and settings."""
    return [
        Check("postgres", OK, f"version {found['version']}")
        if found["version_number"] >= OLDEST_POSTGRES
        else Check("postgres", PROBLEM, f"version {found['version']}", "PostgreSQL 15 or newer is needed"),
        _setting("wal_level", found, "logical", PROBLEM, "capture cannot work: set wal_level = logical and restart it"),
        _setting(
            "track_commit_timestamp",
            found,
            "on",
            PROBLEM,
            "edits cannot be told by their commit: set track_commit_timestamp = on and restart it",
        ),
        Check("max_slot_wal_keep_size", OK, str(found["max_slot_wal_keep_size"]))
        if found["max_slot_wal_keep_size"] != "-1"
        else Check(
            "max_slot_wal_keep_size",
            WARNING,
            "not set (-1)",
            "a stuck capture can fill the disk with WAL: set it to what the disk can spare, and reload",
        ),
    ]


def _setting(name: str, found: Mapping[str, Any], wanted: str, otherwise: str, remedy: str) -> Check:
    value = str(found[name])
    return Check(name, OK, value) if value == wanted else Check(name, otherwise, f"is {value}, not {wanted}", remedy)


def slot(name: str, found: Slot | None) -> Check:
    """Capture's replication slot."""
    if found is None:
        remedy = "run `cronstream setup`; where it ran before, the capture watchdog makes a new slot: is one running?"
        return Check("replication slot", PROBLEM, f"there is no slot {name}", remedy)
    says = f"{name}: WAL {found.wal_status}, {'read' if found.active else 'nobody reads it'}"
    says += f", {found.behind_bytes / 1e6:,.1f} MB behind"
    if found.wal_status == "lost":
        remedy = "edits are found by the audit alone, late; the capture watchdog begins anew: is one running?"
        return Check("replication slot", PROBLEM, says, remedy)
    if found.wal_status not in WELL:
        remedy = "the slot is about to be lost: see that Connect reads it, or raise max_slot_wal_keep_size"
        return Check("replication slot", WARNING, says, remedy)
    if not found.active:
        return Check("replication slot", WARNING, says, "see that Connect and the connector run: `cronstream status`")
    return Check("replication slot", OK, says)


def clocks(apart_us: int, within_us: int, tolerance_us: float) -> Check:
    """How far apart the system's clock and the database's are at least, measured ``within_us``."""
    says = f"the system's clock and the database's are {_about(apart_us)} apart (measured within {_about(within_us)})"
    remedy = f"synchronise the clocks (chrony, NTP): beyond {tolerance_us / SECOND:g} s nobody leads"
    if apart_us > tolerance_us:
        return Check("clocks", PROBLEM, says, remedy)
    return Check("clocks", WARNING, says, remedy) if apart_us > tolerance_us / 5 else Check("clocks", OK, says)


def clocks_apart(sent_us: int, database_us: int, answered_us: int) -> int:
    """At least so far: the database looked at its clock somewhere between the two instants."""
    return max(sent_us - database_us, database_us - answered_us, 0)


def topics(specs: Sequence[TopicSpec], counts: Mapping[str, int]) -> Check:
    """The topics of the installation and their partition counts."""
    absent = [spec.name for spec in specs if spec.name not in counts]
    other = [
        f"{spec.name} has {counts[spec.name]}, not {spec.partitions}"
        for spec in specs
        if counts.get(spec.name, spec.partitions) != spec.partitions
    ]
    if other:
        remedy = "the count is fixed when an installation is made: set CRONSTREAM_PARTITIONS as it was then"
        return Check("topics", PROBLEM, f"partitions: {'; '.join(other)}", remedy)
    if absent:
        return Check("topics", PROBLEM, f"missing: {', '.join(absent)}", "run `cronstream setup`")
    return Check("topics", OK, f"{count(len(specs), 'topic')}, their partitions as set")


def definitions(looked_at: int, sampled: bool, unreadable: Sequence[dict[str, Any]]) -> Check:
    """Definitions that SQL accepted and this version cannot read."""
    seen = f"{'a sample of ' if sampled else ''}{count(looked_at, 'definition')}"
    if not unreadable:
        return Check("definitions", OK, f"{seen} can be read")
    return Check(
        "definitions",
        PROBLEM,
        f"{len(unreadable):,} of {seen} cannot be read by this version, and do not run where it leads",
        "run the version that wrote them, or edit them",
        list(unreadable),
    )


def _about(us: float) -> str:
    milliseconds = us / 1000
    return f"{milliseconds:.1f} ms" if milliseconds < 1000 else span(timedelta(milliseconds=round(milliseconds)))


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
