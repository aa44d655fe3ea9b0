"""``python -m tests.faults`` runs the short set, each family of faults once; ``--minutes 60`` all there are, so long.

``python -m tests.faults judge FILE`` judges a kept history again. The last line is one of JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from cronstream.clock import SystemClock
from tests.faults.faults import FAULTS
from tests.faults.history import History
from tests.faults.nemesis import SHORT
from tests.faults.picture import draw
from tests.faults.run import Plan, run
from tests.faults.verdict import Verdict

SHORT_MINUTES = 9.0


def main(arguments: list[str]) -> int:
    """0 when every promise was kept."""
    if arguments[:1] == ["judge"]:
        file = Path(arguments[1])
        return tell(Verdict.of(History.read(file)), file)
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, help="of faults; without it the short set")
    parser.add_argument("--seed", type=int, help="the same seed makes the same fleet and faults")
    parser.add_argument("--only", action="append", metavar="NAME", help="this fault, in place of all; may be repeated")
    parser.add_argument(
        "--scale", type=float, help="of the fleet: 1, for long runs, is about 2,300 jobs; 0.5 for short ones"
    )
    parser.add_argument(
        "--outage", type=float, metavar="SECONDS", help="for which a server is away at most: 60 in long runs, else 8"
    )
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.only or ()) - FAULTS.keys())
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}; there are: {', '.join(sorted(FAULTS))}")
    seed = chosen.seed if chosen.seed is not None else SystemClock().wall_us() // 1_000_000 % 100_000
    long = chosen.minutes is not None
    faults = tuple(chosen.only) if chosen.only else None if long else SHORT
    plan = Plan(
        seed=seed,
        minutes=chosen.minutes if long else SHORT_MINUTES,
        faults=faults,
        scale=chosen.scale or (1.0 if long else 0.5),
        longest_pause=30.0 if long else 10.0,
        longest_outage=chosen.outage or (60.0 if long else 8.0),
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    logging.getLogger("aetcd").setLevel(logging.ERROR)
    print(f"seed {seed}", file=sys.stderr)
    return tell(*run(plan))


def tell(verdict: Verdict, file: Path) -> int:
    """The report, the picture, the last line."""
    print(verdict.report())
    picture = draw(verdict, file.with_suffix(".png"))
    print(f"history: {file}\npicture: {picture}\njudge it again: python -m tests.faults judge {file}")
    print(json.dumps(verdict.line()))
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
