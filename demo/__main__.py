"""``make demo``: exit status 0 only if nothing was missed, early or run twice. The last line is JSON."""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Never

from rich.console import Console

from cronstream.clock import SystemClock
from demo.story import Story
from stack import servers, services
from stack.errors import StackError
from stack.home import Home
from stack.waiting import progress, say

HOME = Path(".local/demo")


def main() -> int:
    """Play the story on servers of its own, which are gone afterwards."""
    signal.signal(signal.SIGTERM, _interrupt)
    home = Home(HOME)
    result = None
    began = False
    try:
        with _alone():
            began = True
            try:
                _take_down(home, wipe=True)
                result = Story(home, Console(), SystemClock()).play()
            finally:
                # A second Ctrl-C must not leave servers running.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                with progress(lambda: "taking everything down"):
                    _take_down(home, wipe=result is not None and result.passed)
    except StackError as error:
        say(f"demo: {error}")
    except KeyboardInterrupt:
        left = f"its data and logs are left in {HOME}, until the next demo" if home.path.exists() else "nothing is left"
        say(f"demo: interrupted; nothing of it runs any more; {left}")
        return 130
    if began and (result is None or not result.passed):
        say(f"demo: failed; logs are kept in {home.logs}")
    if result is None:
        return 1
    if result.passed:
        say("demo: passed, and nothing of it is left; next: `make up`, then the first steps of README.md")
    print(json.dumps(result.line()), flush=True)
    return 0 if result.passed else 1


def _take_down(home: Home, *, wipe: bool) -> None:
    services.down(home)
    servers.down(home, wipe=wipe)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One demo at a time in a checkout: its folder is wiped at the start."""
    HOME.parent.mkdir(exist_ok=True)
    with HOME.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackError("another demo runs in this checkout") from None
        yield


def _interrupt(*_: object) -> Never:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
