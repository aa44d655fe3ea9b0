"""``cronstream preview --jsonl`` as machines use it: a process of its own, lines in, lines out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cronstream.clock import SystemClock
from tests.unit.schedule.test_given_cases import CASES, request_of

ROOT = Path(__file__).parents[3]
GOOD = {"id": "good", "expr": "30 2 * * *", "tz": "America/New_York", "after": "2026-03-08T05:00:00Z", "count": 1}
GOOD_ANSWER = {"id": "good", "fires": ["2026-03-08T07:00:00Z"]}


def answers(lines: Iterable[str | bytes]) -> list[dict[str, Any]]:
    """What the command answers to the lines."""
    fed = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
    command = [sys.executable, "-m", "cli", "preview", "--jsonl"]
    done = subprocess.run(command, input=fed, capture_output=True, cwd=ROOT, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return [json.loads(line) for line in done.stdout.splitlines()]


def cases(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / file).read_text("utf-8").splitlines()]


def test_all_given_cases_in_one_stream() -> None:
    known, bad = cases("schedule_cases_given.jsonl"), cases("invalid_given.jsonl")
    requests = [request_of(case) | {"count": len(case["expect"])} for case in known]
    requests += [request_of(case) for case in bad]
    said = answers(json.dumps(request) for request in requests)
    assert [answer["id"] for answer in said] == [case["id"] for case in known + bad]
    assert said[: len(known)] == [{"id": case["id"], "fires": case["expect"]} for case in known]
    for answer in said[len(known) :]:
        assert set(answer) == {"id", "error"}, answer


def test_no_line_stops_the_stream() -> None:
    after = '"after":"2026-01-01T00:00:00Z"'
    hostile: list[str | bytes] = [
        "not json",
        "null",
        "true",
        "5",
        "-1e999",
        "NaN",
        '"text"',
        "[]",
        '[{"id":1}]',
        "{}",
        "{",
        '{"id":1}{"id":2}',
        "[" * 1_000_000,
        '{"a":' * 100_000,
        '{"id":' + "9" * 10_000 + "}",
        '{"id":1e999}',
        b"\xff\xfe\x00",
        b"\x00",
        "\ufeff{}",
        "\u2028",
        "",
        " \t",
        '{"id":1,"expr":"\\ud800","tz":"UTC",' + after + "}",
        '{"id":1,"expr":"' + "x" * 5_000_000 + '","tz":"UTC",' + after + "}",
        '{"id":1,"expr":"* * * * *","tz":"' + "x" * 5_000_000 + '",' + after + "}",
        '{"id":1,"expr":"' + ",".join(["1"] * 400_000) + ' * * * *",' + after + "}",
    ]
    for value in ("null", "5", "1.5", "true", '["* * * * *"]', '{"a":1}', '""', "1e400"):
        hostile.append(f'{{"id":1,"expr":{value},"tz":"UTC",{after}}}')
        hostile.append(f'{{"id":1,"expr":"* * * * *","tz":{value},{after}}}')
        hostile.append(f'{{"id":1,"expr":"* * * * *","tz":"UTC","after":{value}}}')
        hostile.append(f'{{"id":1,"every":{value},"tz":"UTC",{after}}}')
        hostile.append(f'{{"id":1,"every":"PT5S","anchor":{value},{after}}}')
    counts = ("null", "-1", '"5"', "1.0", "true", "[]", "10001", "9" * 5000)
    hostile += [f'{{"id":1,"expr":"* * * * *","count":{count},{after}}}' for count in counts]
    lines: list[str | bytes] = []
    for line in hostile:
        lines += [line, json.dumps(GOOD)]
    said = answers(lines)
    assert len(said) == len(lines)
    assert said[1::2] == [GOOD_ANSWER] * len(hostile)
    for line, answer in zip(hostile, said[::2], strict=True):
        assert set(answer) == {"id", "error"}, line[:100]
        assert len(answer["error"]) < 1000


def test_blank_lines_are_answered_too_and_a_last_line_needs_no_end() -> None:
    command = [sys.executable, "-m", "cli", "preview", "--jsonl"]
    fed = b"\n \r\n\t\n" + json.dumps(GOOD).encode() + b"\r\n" + json.dumps(GOOD).encode()
    done = subprocess.run(command, input=fed, capture_output=True, cwd=ROOT, timeout=60, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["error" in answer for answer in said] == [True, True, True, False, False]
    assert said[-1] == GOOD_ANSWER


def test_an_answer_comes_before_the_next_question() -> None:
    """A program may ask line by line: an answer that waited in a buffer would be waited for for ever."""
    command = [sys.executable, "-m", "cli", "preview", "--jsonl"]
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=buffered) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for number in range(3):
                process.stdin.write(json.dumps(GOOD | {"id": number}).encode() + b"\n")
                process.stdin.flush()
                assert json.loads(process.stdout.readline()) == GOOD_ANSWER | {"id": number}
            process.stdin.close()
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_thousands_of_lines_a_second() -> None:
    """The figure is shown (pytest -s), and held loosely: the machine may be busy."""
    known = cases("schedule_cases_given.jsonl")
    lines = [json.dumps(request_of(case) | {"id": n, "count": 5}) for n in range(60) for case in known]
    clock = SystemClock()
    began = clock.boot_ns()
    answers([])
    started = clock.boot_ns()
    said = answers(lines)
    seconds = max((clock.boot_ns() - started - (started - began)) / 1e9, 1e-3)
    assert all("fires" in answer for answer in said)
    print(f"preview --jsonl: {len(lines):,} lines in {seconds:.2f} s, {len(lines) / seconds:,.0f} lines/s")
    assert len(lines) / seconds > 100
