"""What happens to the fleet during the minute, and the first call that shows its effect."""

from __future__ import annotations

from demo import oracle
from demo.fleet import FastJob
from demo.oracle import SECOND

EDITED_FROM_SECONDS, EDITED_TO_SECONDS = 15, 3


class Edit:
    """One job gets another interval."""

    def __init__(self, job: FastJob) -> None:
        self.job = job
        self.committed_us: int | None = None
        self.lag_ms: float | None = None
        """How long the capture took to bring it to the leader."""
        self.sentence: str | None = None
        self._lag_before: float | None = None

    def committed(self, committed_us: int) -> str:
        """It was committed; the sentence to show."""
        self.committed_us = committed_us
        return (
            f"UPDATE job {self.job.job_id} ({self.job.name}): every {EDITED_FROM_SECONDS} s -> "
            f"every {EDITED_TO_SECONDS} s"
        )

    def capture_lag(self, lag_ms: float | None) -> None:
        """The leader's newest figure: the edit's own once it differs from the one before the edit."""
        if self.committed_us is None:
            self._lag_before = lag_ms
        elif self.lag_ms is None and lag_ms != self._lag_before:
            self.lag_ms = lag_ms

    def hear(self, key: str, at_us: int) -> str | None:
        """A call; a sentence when it is the first of the new schedule."""
        run = oracle.run_of(key)
        if self.committed_us is None or self.sentence is not None or run is None or run[0] != self.job.job_id:
            return None
        due_us = self.committed_us + EDITED_TO_SECONDS * SECOND
        if run[1] != due_us:
            return None
        known = "" if self.lag_ms is None else f"the leader knew of it {self.lag_ms:.0f} ms after the commit; "
        self.sentence = (
            f"took effect: {known}the new schedule's first run, due {EDITED_TO_SECONDS} s after the commit, "
            f"started {(at_us - due_us) / 1000:.0f} ms late"
        )
        return self.sentence


class Kill:
    """The leader dies without a word."""

    def __init__(self) -> None:
        self.boot_ns: int | None = None
        self.node = ""
        self.token = 0
        self.arrival_seconds: float | None = None
        """From the kill to the first call with a newer token."""

    def killed(self, node: str, token: int, boot_ns: int) -> str:
        """It was killed; the sentence to show."""
        self.node, self.token, self.boot_ns = node, token, boot_ns
        return f"SIGKILL to {node}, the leader with token {token}"

    def hear(self, token: int, boot_ns: int) -> str | None:
        """A call; a sentence when it is the first of the new leader."""
        if self.boot_ns is None or self.arrival_seconds is not None or token <= self.token:
            return None
        self.arrival_seconds = (boot_ns - self.boot_ns) / 1e9
        return f"takeover: first run of the new leader (token {token}) {self.arrival_seconds:.3f} s after the kill"
