"""Known schedules and their fires, and definitions that must be refused, through the API and as preview lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cronstream.schedule import ScheduleError, parse_every, schedule_of
from cronstream.schedule.instants import parse_instant, utc_text
from cronstream.schedule.preview import preview_line

CASES = Path(__file__).parents[2] / "cases"


def load(name: str) -> list:
    lines = (CASES / name).read_text("utf-8").splitlines()
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, lines)]


def request_of(case: dict) -> dict:
    """`@every 90s` is notation of the case files alone: the API takes a duration."""
    request = {"id": case["id"], "tz": case["tz"], "after": case.get("after", "2026-11-29T00:00:00Z")}
    if case.get("kind") == "interval":
        request["every"] = "PT" + case["expr"].removeprefix("@every ").upper()
        if "anchor" in case:
            request["anchor"] = case["anchor"]
    else:
        request["expr"] = case["expr"]
    return request


@pytest.mark.parametrize("case", load("schedule_cases_given.jsonl"))
def test_it_fires_as_known(case: dict) -> None:
    request = request_of(case)
    schedule = schedule_of(
        cron=request.get("expr"),
        every_us=parse_every(request["every"]) if "every" in request else None,
        anchor_us=parse_instant("anchor", request["anchor"]) if "anchor" in request else None,
        timezone=case["tz"],
    )
    fires, t = [], parse_instant("after", case["after"])
    for _ in case["expect"]:
        t = schedule.next_after(t)
        fires.append(utc_text(t))
    assert fires == case["expect"]
    answer = json.loads(preview_line(json.dumps(request | {"count": len(case["expect"])})))
    assert answer == {"id": case["id"], "fires": case["expect"]}


@pytest.mark.parametrize("case", load("invalid_given.jsonl"))
def test_it_is_refused(case: dict) -> None:
    request = request_of(case)
    with pytest.raises(ScheduleError) as caught:
        schedule_of(
            cron=request.get("expr"),
            every_us=parse_every(request["every"]) if "every" in request else None,
            timezone=case["tz"],
        )
    assert caught.value.allowed
    answer = json.loads(preview_line(json.dumps(request)))
    assert set(answer) == {"id", "error"}
    assert answer["id"] == case["id"]


@pytest.mark.parametrize("value", [None, 5, 1.5, True, ["* * * * *"], {"a": 1}])
def test_a_definition_of_another_type_is_refused(value: object) -> None:
    for request in ({"expr": value, "tz": "UTC"}, {"expr": "* * * * *", "tz": value}):
        answer = json.loads(preview_line(json.dumps({"id": 1, "after": "2026-11-29T00:00:00Z", **request})))
        assert "not allowed" in answer["error"]
