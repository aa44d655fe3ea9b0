"""What to do about what was seen. Pure: the watchdog only carries it out.

Connect leaves a failed task as it is, and a slot that is gone stays gone. Steps,
from the mildest: restart what failed, restart all of it, begin anew with a new
slot. Beginning anew skips what was committed meanwhile; those edits stand in
job_changes, where the coordinator's audit finds them, so nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from connectors.seen import Observation

# Restarts that may fail, with Postgres answering, before the connector begins anew.
RESTARTS_BEFORE_ANEW = 5
LONGEST_PAUSE_SECONDS = 30.0
# A connector that was just started may not have its slot and its first heartbeat yet.
SETTLING_SECONDS = 15.0
WELL = frozenset({"reserved", "extended"})


class Action(Enum):
    """What the watchdog can do."""

    NOTHING = "nothing"
    REGISTER = "register"
    """PUT the configuration: the connector is not there."""
    RESUME = "resume"
    """It was stopped or paused."""
    RESTART_FAILED = "restart-failed"
    RESTART_ALL = "restart-all"
    """It says RUNNING and delivers nothing."""
    BEGIN_ANEW = "begin-anew"
    """Stop, drop the slot, forget the offsets, register."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What was tried since capture was last well."""

    restarts: int = 0
    beginnings: int = 0
    since_action_seconds: float = 1e9

    def passed(self, seconds: float) -> Memory:
        """Time went by."""
        return replace(self, since_action_seconds=self.since_action_seconds + seconds)

    def did(self, verdict: Verdict) -> Memory:
        """An action was carried out, or tried."""
        match verdict.action:
            case Action.NOTHING:
                return Memory(since_action_seconds=self.since_action_seconds) if verdict.healthy else self
            case Action.RESTART_FAILED | Action.RESTART_ALL:
                return Memory(self.restarts + 1, self.beginnings, 0.0)
            case Action.BEGIN_ANEW:
                return Memory(0, self.beginnings + 1, 0.0)
            case _:
                return Memory(self.restarts, self.beginnings, 0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, why, and whether a person should hear of it."""

    action: Action
    reason: str = ""
    alarm: bool = False

    @property
    def healthy(self) -> bool:
        return self.action is Action.NOTHING and not self.reason


def verdict(seen: Observation, memory: Memory, stale_seconds: float) -> Verdict:
    """The one next step. ``stale_seconds``: heartbeats older than this are overdue."""
    if not seen.connect_answers:
        return Verdict(Action.NOTHING, "Connect does not answer", alarm=True)
    status = seen.status
    if status is None:
        return _paced(Verdict(Action.REGISTER, "the connector is not registered"), memory)
    if not seen.postgres_answers:
        # Restarting is no use before Postgres is back; what failed meanwhile is restarted then.
        return Verdict(Action.NOTHING, "Postgres does not answer", alarm=True)
    settling = memory.since_action_seconds < SETTLING_SECONDS
    if seen.slot is not None and seen.slot.wal_status == "lost":
        return _paced(Verdict(Action.BEGIN_ANEW, "the slot lost its WAL", alarm=True), memory)
    # Without its slot a connector fails at every start; restarts would only put that off.
    if seen.slot is None and (status.failed or not settling):
        return _paced(Verdict(Action.BEGIN_ANEW, "the slot is gone", alarm=True), memory)
    if status.connector in ("STOPPED", "PAUSED"):
        return _paced(Verdict(Action.RESUME, f"the connector is {status.connector}", alarm=True), memory)
    if status.failed:
        return _paced(_after_failure(Action.RESTART_FAILED, f"it failed: {status.reason}", memory), memory)
    if _within(stale_seconds, seen.heartbeat_age_seconds):
        if seen.slot is not None and seen.slot.wal_status not in WELL:
            return Verdict(
                Action.NOTHING, f"the slot's WAL is {seen.slot.wal_status}: it is about to be given up", alarm=True
            )
        if status.running:
            return Verdict(Action.NOTHING)
    if settling:
        return Verdict(Action.NOTHING, "it is starting")
    age = (
        "none was"
        if seen.heartbeat_age_seconds is None
        else f"the last one is {seen.heartbeat_age_seconds:.0f} s old, none newer"
    )
    late = (
        f"heartbeats are overdue: {age} delivered, while the connector says {status.connector}, its task {status.task}"
    )
    if status.running and _within(stale_seconds, seen.still_seconds):
        # A restart would begin the transaction from its start, and the next one again.
        return Verdict(Action.NOTHING, f"it is behind, and works on (a long transaction, or many): {late}", alarm=True)
    return _paced(_after_failure(Action.RESTART_ALL, late, memory), memory)


def _within(seconds: float, age_seconds: float | None) -> bool:
    return age_seconds is not None and age_seconds <= seconds


def _after_failure(action: Action, reason: str, memory: Memory) -> Verdict:
    if memory.restarts >= RESTARTS_BEFORE_ANEW:
        return Verdict(Action.BEGIN_ANEW, f"{memory.restarts} restarts did not help; {reason}", alarm=True)
    return Verdict(action, reason, alarm=True)


def _paced(wanted: Verdict, memory: Memory) -> Verdict:
    """Two seconds after the last action; the more was tried in vain, the longer."""
    tries = memory.beginnings if wanted.action is Action.BEGIN_ANEW else max(memory.restarts - 1, 0)
    if memory.since_action_seconds < min(2.0 ** (tries + 1), LONGEST_PAUSE_SECONDS):
        return Verdict(Action.NOTHING, f"{wanted.reason}; {wanted.action.value} follows", alarm=wanted.alarm)
    return wanted
