from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cronstream.fault_points import VARIABLE, FaultPoint

REACHES = "from cronstream.fault_points import reach; [reach(name) for name in 'abab']; print('lived')"


def run(chosen: str | None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment = clean if chosen is None else {**clean, VARIABLE: chosen}
    return subprocess.run([sys.executable, "-c", REACHES], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("chosen", ["a", "b:2"])
def test_the_chosen_point_kills_its_process(chosen: str) -> None:
    assert run(chosen).returncode == -signal.SIGKILL


@pytest.mark.parametrize("chosen", [None, "", "b:3", "c"])
def test_no_other_point_does_anything(chosen: str | None) -> None:
    assert run(chosen).stdout == "lived\n"


@pytest.mark.parametrize("text", [":2", "a:0", "a:x", "a:-1"])
def test_a_wrong_point_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE):
        FaultPoint.parse(text)
