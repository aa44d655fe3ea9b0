"""The figures of a judged run, and its last line."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.faults.events import Attempt, Execution, Fault, Figure, Trigger
from tests.faults.history import History
from tests.faults.judges import Breach, expected_of, judge_all
from tests.faults.judges.unknown import unknown_runs

_SHOWN = 20


@dataclass(frozen=True)
class Verdict:
    """What the judges found, and what was measured."""

    history: History
    breaches: list[Breach]
    targets: int
    """Scheduled times that were owed."""

    @classmethod
    def of(cls, history: History) -> Verdict:
        return cls(history, judge_all(history), expected_of(history).count)

    @property
    def good(self) -> bool:
        return not self.breaches

    def line(self) -> dict[str, Any]:
        """The keys of the last line."""
        count = Counter(breach.promise for breach in self.breaches)
        return {
            "faults": len(self.history.of(Fault)),
            "targets": self.targets,
            "lost": count["NoRunLost"],
            "doubled": count["OneRunPerScheduledTime"],
            "stale": count["NoStaleTerm"],
            "early": count["NeverEarly"],
            "unknown": len(unknown_runs(self.history)),
            "takeover_p99_s": p99(self.takeovers("kill leader")),
            "good": self.good,
            "seed": self.history.window.seed,
        }

    def report(self) -> str:
        """For people: what hit, how long it took to come back, what was broken."""
        lines = ["faults:"]
        for name, count in sorted(Counter(fault.name for fault in self.history.of(Fault)).items()):
            figures = self._recovery(name)
            lines.append(f"  {count:4} {name}{figures}")
        lines += self._measured()
        by_promise = Counter(breach.promise for breach in self.breaches)
        for promise, number in by_promise.items():
            lines.append(f"{promise}: {number}")
            own = [breach for breach in self.breaches if breach.promise == promise]
            lines += [
                f"  job {breach.job_id} at {breach.scheduled_us} request {breach.request_id}: {breach.what}"
                for breach in own[:_SHOWN]
            ]
        return "\n".join(lines)

    def takeovers(self, name: str) -> list[float]:
        """Seconds from each fault of that name to the first trigger of a newer term.

        Without those that the leader outlived: no newer term came before the next fault.
        """
        faults = sorted(self.history.of(Fault), key=lambda fault: fault.began_us)
        nexts = [*(following.began_us for following in faults[1:]), math.inf]
        return [
            found
            for fault, until_us in zip(faults, nexts, strict=False)
            if fault.name == name
            and (found := self._first_of_newer_term(fault.began_us)) is not None
            and fault.began_us + found * 1e6 < until_us
        ]

    def first_after(self, name: str, kind: type[Attempt] | type[Execution]) -> list[float]:
        """Seconds from each fault of that name to the end of the silence that it brought to admission or execution.

        The silence: the longest gap that begins within five seconds after the fault.
        """
        times = self._times(kind)
        found = []
        for fault in self.history.of(Fault):
            if fault.name != name:
                continue
            first = max(0, bisect_left(times, fault.began_us) - 1)
            last = bisect_right(times, fault.began_us + 5_000_000)
            gaps = [(times[i + 1] - times[i], times[i + 1]) for i in range(first, min(last, len(times) - 1))]
            if gaps:
                found.append(max(0, max(gaps)[1] - fault.began_us) / 1e6)
        return found

    def lateness_in(self, name: str) -> list[float]:
        """Seconds from scheduled to published of what fell due while a fault of that name was under way."""
        windows = [fault for fault in self.history.of(Fault) if fault.name == name]
        return [
            (trigger.published_us - trigger.scheduled_us) / 1e6
            for trigger in self.history.of(Trigger)
            if trigger.request_id == 0 and any(f.began_us <= trigger.scheduled_us <= f.ended_us for f in windows)
        ]

    def _measured(self) -> Iterator[str]:
        """Memory and open files, from the first sample to the last."""
        by_name: dict[str, list[float]] = defaultdict(list)
        for figure in self.history.of(Figure):
            by_name[figure.name].append(figure.value)
        for name, values in sorted(by_name.items()):
            if name.startswith(("megabytes", "files")) and len(values) > 1:
                yield f"  {name}: {values[0]:.0f} first, {values[-1]:.0f} last, {max(values):.0f} at most"

    def _recovery(self, name: str) -> str:
        taken = self.takeovers(name)
        if "leader" in name and "postgres" not in name and taken:  # a leader outlives Postgres
            return f": newer term's first trigger after {_spread(taken)}"
        if name in ("crash postgres", "restart postgres") and (late := self.lateness_in(name)):
            return f": what fell due meanwhile was published {p99(late)} s late at p99"
        kind = {"streams": Attempt, "worker": Execution}.get(name.rpartition(" ")[2])
        if kind is not None:
            after = self.first_after(name, kind)  # type: ignore[arg-type]
            return f": first {kind.__name__.lower()} after {_spread(after)}" if after else ""
        return ""

    def _first_of_newer_term(self, began_us: int) -> float | None:
        index = bisect_left(self._terms, began_us)
        return (self._terms[index] - began_us) / 1e6 if index < len(self._terms) else None

    @cached_property
    def _terms(self) -> list[int]:
        """When each term published for the first time."""
        first: dict[int, int] = {}
        for trigger in self.history.of(Trigger):
            first[trigger.token] = min(first.get(trigger.token, trigger.published_us), trigger.published_us)
        return sorted(first.values())

    def _times(self, kind: type[Attempt] | type[Execution]) -> list[int]:
        return sorted(event.at_us for event in self.history.of(kind))


def p99(values: Sequence[float]) -> float | None:
    """None where nothing was measured."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[math.ceil(len(ordered) * 0.99) - 1], 3)


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.2f} s (median), {ordered[-1]:.2f} s (worst)"
