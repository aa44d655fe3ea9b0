"""One time line: what was owed, what ran, how late, and the faults' windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.faults.events import Execution, Fault
from tests.faults.judges import expected_of
from tests.faults.verdict import Verdict


def draw(verdict: Verdict, file: Path) -> Path:
    """Write the picture; returns its file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    history = verdict.history
    window = history.window
    begin = window.from_us

    def seconds(instants: list[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return (np.array(instants, np.float64) - begin) / 1e6

    owed = [at for times in expected_of(history).times.values() for at in times]
    calls = [call for call in history.of(Execution) if call.request_id == 0]
    length = max(1.0, (window.until_us - begin) / 1e6 + 10)
    edges = np.arange(0, length + 1)
    figure, (rate, lateness) = plt.subplots(2, 1, sharex=True, figsize=(max(14, length / 40), 8))
    rate.hist(seconds(owed), edges, histtype="step", color="black", label="owed")
    rate.hist(seconds([call.at_us for call in calls]), edges, color="tab:blue", alpha=0.5, label="executed")
    rate.set_ylabel("a second")
    first = [call for call in calls if call.attempt == 1]
    late = np.array([(call.at_us - call.scheduled_us) / 1e6 for call in first])
    lateness.plot(seconds([call.scheduled_us for call in first]), np.maximum(late, 1e-3), ",", color="tab:blue")
    lateness.set_yscale("log")
    lateness.set_ylabel("seconds late, by scheduled time")
    broken = [breach.scheduled_us for breach in verdict.breaches if breach.scheduled_us]
    if broken:
        lateness.plot(seconds(broken), np.full(len(broken), 0.002), "x", color="red", label="broken promises")
        lateness.legend(loc="upper right")
    for number, fault in enumerate(history.of(Fault)):
        left, right = (fault.began_us - begin) / 1e6, (fault.ended_us - begin) / 1e6
        for axis in (rate, lateness):
            axis.axvspan(left, max(right, left + 0.5), color="tab:red", alpha=0.15)
        rate.annotate(fault.name, (left, 1 - 0.06 * (number % 5)), xycoords=("data", "axes fraction"), fontsize=6)
    rate.legend(loc="upper right")
    lateness.set_xlabel("seconds since the run began")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return file
