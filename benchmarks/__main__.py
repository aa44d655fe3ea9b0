"""``python -m benchmarks [NAME ...]``: run scenarios by name; without names, those of ``make bench``.

One that fails is reported, with null for its headline keys and the reason under ``NAME.failed``, and the
rest goes on. BENCH_SCALE=0.01 tries the commands out in little time; its figures claim nothing.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Sequence

from benchmarks import machine, registry, tables
from benchmarks.headlines import summary
from benchmarks.installation import STACK, BenchError
from benchmarks.measure import Processors, pace_ns
from benchmarks.report import FILE, FOLDER, Report
from benchmarks.scale import SCALE


def main() -> int:
    """Run what was asked for; 1 when a scenario failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(registry.ALL)}")
    parser.add_argument("--full", action="store_true", help="ten million jobs, and everything at its full size")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs reported")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="leave out what would not end by then")
    parser.add_argument("--plan", action="store_true", help="print what would run, and how long it may take")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in registry.ALL]:
        parser.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(registry.ALL)}")
    names = tuple(arguments.names) or (registry.FULL if arguments.full else registry.USUAL)
    _print_plan(names, full=arguments.full)
    if arguments.plan:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped
    report = Report(fresh=arguments.fresh)
    if arguments.fresh:
        tables.forget()
    report.update("machine", machine.machine() | machine.loaded() | {"scale": SCALE})
    report.update("fleet", machine.described())
    began = time.monotonic()
    try:
        failed = _run(names, report, full=arguments.full, deadline=began + (arguments.within or float("inf")))
    finally:
        STACK.close()
    took = time.monotonic() - began
    report.set("took_s", took)
    report.write()
    _print_end(names, report, took, full=arguments.full)
    print(f"the report: {FILE}, plots and tables beside it" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _run(names: Sequence[str], report: Report, *, full: bool, deadline: float) -> list[str]:
    """Those that failed, or were left out for want of time."""
    failed = []
    for name in names:
        scenario = registry.ALL[name]
        report.begin(name)
        report.set(f"{name}.python_step_ns", pace_ns())
        began, processors = time.monotonic(), Processors({})
        print(f"== {name}", flush=True)
        try:
            if began + scenario.budget(full=full) > deadline:
                raise BenchError("left out: it would not end in time")
            scenario.run(report, full=full)
        except Exception as error:
            traceback.print_exc()
            failed.append(name)
            report.set(f"{name}.failed", " / ".join(f"{type(error).__name__}: {error}".splitlines())[:500])
        report.set(f"{name}.took_s", time.monotonic() - began)
        report.set(f"{name}.cores_others_throughout", processors.shares()["others"])
        report.set(f"{name}.ran_at", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        report.write()
    return failed


def _print_plan(names: tuple[str, ...], *, full: bool) -> None:
    budgets = [(name, registry.ALL[name].budget(full=full)) for name in names]
    total = registry.budget_s(names, full=full)
    rows = [*budgets, ("servers", registry.SERVERS_S), ("all", total)]
    lines = [[name, tables.cell(seconds)] for name, seconds in rows]
    print(tables.plain("what runs, in this order", ("scenario", "may take s"), lines), flush=True)


def _print_end(names: tuple[str, ...], report: Report, took: float, *, full: bool) -> None:
    rows = [
        (
            name,
            report.get(f"{name}.took_s"),
            registry.ALL[name].budget(full=full),
            report.get(f"{name}.python_step_ns"),
            str(report.get(f"{name}.failed") or "")[:60] or report.get(f"{name}.cores_others_throughout"),
        )
        for name in names
    ]
    rows.append(("all", took, registry.budget_s(names, full=full), None, report.get("machine.busy_at_start")))
    columns = ("scenario", "s", "may take s", "a step of Python ns", "others' cores, or why it failed")
    tables.table("took", "how long it took, and how fast the machine was", columns, rows)
    if SCALE != 1:
        print(f"BENCH_SCALE={SCALE}: the figures below claim nothing\n")
    head = ("figure", "value", "to reach", "reached")
    tables.table("summary_full" if full else "summary", "what was measured", head, summary(report.values, names))


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    sys.exit(main())
