"""A loop that stands still ends its process; one that is slow or was stopped does not."""

from __future__ import annotations

import subprocess
import sys

from cronstream import pulse
from cronstream.pulse import EXIT_CODE, Pulse


def ends_of(looks: int) -> tuple[Pulse, list[str]]:
    ends: list[str] = []
    return Pulse("the loop", looks, lambda: ends.append("ended")), ends


def test_a_loop_that_beats_between_looks_goes_on() -> None:
    loop, ends = ends_of(2)
    for _ in range(10):
        loop.beat()
        loop.look()
        loop.look()
    assert ends == []


def test_a_loop_that_misses_so_many_looks_in_a_row_is_over() -> None:
    loop, ends = ends_of(3)
    loop.beat()
    for _ in range(3):
        loop.look()
    assert ends == []
    loop.look()
    assert ends == ["ended"]


def test_a_loop_that_rests_is_not_watched() -> None:
    pulse.watch("the loop", 1)
    pulse.rest()
    pulse.beat()


def test_the_process_ends_at_once_and_says_where_it_stood() -> None:
    script = (
        "import threading, logging; logging.basicConfig();"
        "from cronstream import pulse; pulse.LOOK_SECONDS = 0.01;"
        "pulse.watch('the loop', 3); pulse.beat();"
        "threading.Event().wait()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == EXIT_CODE
    assert "the loop stands still" in done.stderr
    assert "most recent call first" in done.stderr
