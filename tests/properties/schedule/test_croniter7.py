"""Beside croniter 7, in an environment of its own: the same answers where the semantics are the same, and what differs.

faust holds the product's croniter below 6, whose next() is wrong across clock changes; version 7 is not.
The environment is made once, under .local/, from tests/croniter7/requirements.txt (make test-long).
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cronstream.schedule import ScheduleError, schedule_of
from cronstream.schedule.instants import parse_instant, utc_text
from tests.properties.schedule.shared_with_croniter import questions

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests/croniter7"
QUESTIONS = 5_000
NEW_YORK = "America/New_York"
Ask = Callable[[Sequence[dict[str, Any]]], list[Any]]


def environment() -> Path:
    """The interpreter of an environment with exactly the locked requirements; made when it is not there."""
    locked = FOLDER / "requirements.txt"
    home = ROOT / ".local/croniter7" / sha256(locked.read_bytes()).hexdigest()[:16]
    python, complete = home / "bin/python", home / "complete"
    home.mkdir(parents=True, exist_ok=True)
    with (home.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            _run([sys.executable, "-m", "venv", "--clear", str(home)])
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, "--require-hashes", "--no-deps", "-r", str(locked)])
            complete.touch()
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def croniter7() -> Ask:
    """Asks croniter 7: questions in, answers out."""
    command = [str(environment()), "-I", str(FOLDER / "answer.py")]

    def ask(asked: Sequence[dict[str, Any]]) -> list[Any]:
        fed = "".join(json.dumps(one) + "\n" for one in asked)
        done = subprocess.run(command, input=fed, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        versions, *answers = map(json.loads, done.stdout.splitlines())
        assert int(versions["croniter"].split(".")[0]) >= 7
        assert versions["tzdata"] == version("tzdata"), "bring tests/croniter7/requirements.txt to the product's tzdata"
        return answers

    return ask


def test_thousands_of_questions_have_the_same_answers(croniter7: Ask) -> None:
    asked = questions(Random(20261129), QUESTIONS)
    theirs = croniter7([question.asked() for question in asked])
    for question, answer in zip(asked, theirs, strict=True):
        assert question.ours() == answer, question
    print(f"croniter 7: {len({q.expr for q in asked}):,} expressions, {len(asked):,} questions, all the same")


def ours(expr: str, zone: str, after: str, count: int) -> list[str] | str:
    try:
        schedule = schedule_of(cron=expr, timezone=zone)
    except ScheduleError as error:
        return error.sentence()
    fires, t = [], parse_instant("after", after)
    for _ in range(count):
        t = schedule.next_after(t) or 0
        fires.append(utc_text(t))
    return fires


@pytest.mark.parametrize(
    ("expr", "zone", "after", "theirs", "right"),
    [
        pytest.param(
            "30 1 * * *", NEW_YORK, "2026-11-01T04:00:00Z",
            ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"],
            ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
            id="a fixed time runs in both passes there, once by the rules",
        ),
        pytest.param(
            "*/30 2 * * *", NEW_YORK, "2026-03-08T06:00:00Z",
            ["2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"],
            ["2026-03-09T06:00:00Z", "2026-03-09T06:30:00Z"],
            id="a wildcard job is moved out of a gap there, by the rules it has nothing extra",
        ),
        pytest.param(
            "*/14 * * * *", "Australia/Lord_Howe", "2030-04-06T14:56:00Z",
            ["2030-04-06T15:30:00Z"],
            ["2030-04-06T15:12:00Z"],
            id="a repeated half hour is lost there",
        ),
        pytest.param(
            "*/30 0,1 * * *", "Antarctica/Troll", "2014-10-25T23:30:00Z",
            ["2014-10-27T00:00:00Z"],
            ["2014-10-26T01:00:00Z"],
            id="two repeated hours are lost there",
        ),
        pytest.param(
            "5-5 * * * *", "UTC", "2026-01-01T00:00:00Z",
            ["2026-01-01T00:01:00Z"],
            ["2026-01-01T00:05:00Z"],
            id="a range of one value is the whole field there",
        ),
        pytest.param(
            "*/90 * * * *", "UTC", "2026-01-01T00:00:00Z",
            ["2026-01-01T01:00:00Z"],
            "minute: ",
            id="a step beyond the field is accepted there",
        ),
        pytest.param(
            "0 0 20-5 * *", "UTC", "2026-01-01T00:00:00Z",
            ["2026-01-02T00:00:00Z"],
            "day of month: ",
            id="a reversed range of days is accepted there",
        ),
        pytest.param(
            "0 0 31W * *", "UTC", "2026-01-30T12:00:00Z",
            ["2026-02-27T00:00:00Z"],
            ["2026-03-31T00:00:00Z"],
            id="nW falls back in a month without day n there",
        ),
        pytest.param(
            "0 0 9W * FRI", "UTC", "2026-01-01T12:00:00Z",
            ["2026-01-09T00:00:00Z"],
            ["2026-01-02T00:00:00Z"],
            id="nW beside a weekday leaves the weekday out there, either matches by the rules",
        ),
        pytest.param(
            "0 0 6,*/12 * 0-6", "UTC", "2026-01-01T00:00:00Z",
            ["2026-01-06T00:00:00Z"],
            ["2026-01-02T00:00:00Z"],
            id="every weekday beside a list of days with a star in it means both there, either by the rules",
        ),
        pytest.param(
            "0 0 LW * *", "UTC", "2026-01-01T00:00:00Z",
            "CroniterNotAlphaError",
            ["2026-01-30T00:00:00Z"],
            id="LW is unknown there",
        ),
        pytest.param(
            "0 0 * * 5L", "UTC", "2026-01-01T00:00:00Z",
            "CroniterNotAlphaError",
            ["2026-01-30T00:00:00Z"],
            id="5L is written L5 there",
        ),
        pytest.param(
            "0 0 15W,1 * *", "UTC", "2026-01-01T00:00:00Z",
            "CroniterBadCronError",
            ["2026-01-15T00:00:00Z"],
            id="nW may not stand in a list there",
        ),
        pytest.param(
            "15 30 9 * * *", "UTC", "2026-01-01T00:00:00Z",
            "CroniterBadCronError",
            ["2026-01-01T09:30:15Z"],
            id="the seconds are the last field there, the first by the rules",
        ),
        pytest.param(
            "0 0 31 2 *", "UTC", "2026-01-01T00:00:00Z",
            "CroniterBadDateError",
            "cron: ",
            id="what never fires is found out when asked there, at definition by the rules",
        ),
    ],
)  # fmt: skip
def test_where_croniter_7_differs_the_rules_win(
    croniter7: Ask, expr: str, zone: str, after: str, theirs: list[str] | str, right: list[str] | str
) -> None:
    """A difference that is gone fails as well: then it belongs among the questions."""
    count = 1 if isinstance(theirs, str) else len(theirs)
    asked = {"expr": expr, "tz": zone, "after": parse_instant("after", after) // 1_000_000, "count": count}
    (answer,) = croniter7([asked])
    if isinstance(theirs, str):
        assert str(answer).startswith(theirs)
    else:
        assert [utc_text(second * 1_000_000) for second in answer] == theirs
    said = ours(expr, zone, after, 1 if isinstance(right, str) else len(right))
    if isinstance(right, str):
        assert str(said).startswith(right)
    else:
        assert said == right
