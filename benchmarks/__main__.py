"""``python -m benchmarks [NAME ...]``: run benchmarks by name; without names, those of ``make bench``."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Sequence

from benchmarks import registry
from benchmarks.installation import STACK
from benchmarks.measure import machine
from benchmarks.report import FILE, Report


def main() -> int:
    """Run what was asked for; 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(registry.ALL)}")
    parser.add_argument("--full", action="store_true", help="ten million jobs, and long steady runs")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs reported")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in registry.ALL]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(registry.ALL)}")
    names = arguments.names or (registry.FULL if arguments.full else registry.USUAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped
    report = Report(fresh=arguments.fresh)
    report.update("machine", machine())
    try:
        failed = _run(names, report, full=arguments.full)
    finally:
        STACK.close()
    print(f"the report: {FILE}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _run(names: Sequence[str], report: Report, *, full: bool) -> list[str]:
    failed = []
    for name in names:
        report.begin(name)
        began = time.monotonic()
        print(f"== {name}", flush=True)
        try:
            registry.ALL[name](report, full=full)
        except Exception:
            traceback.print_exc()
            failed.append(name)
            report.set(f"{name}.failed", traceback.format_exc().splitlines()[-1])
        report.set(f"{name}.took_s", time.monotonic() - began)
        report.set(f"{name}.ran_at", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        report.write()
    return failed


if __name__ == "__main__":
    sys.exit(main())
