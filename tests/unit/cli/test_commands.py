"""The command without a server: help, preview, and what it says when it cannot work."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from cronstream import __version__
from cronstream.clock import SystemClock, to_datetime
from cronstream.schedule import TZDATA_VERSION

COMMANDS = [
    [],
    ["setup"],
    ["status"],
    ["doctor"],
    ["jobs"],
    ["jobs", "list"],
    ["jobs", "show"],
    ["jobs", "pause"],
    ["jobs", "resume"],
    ["jobs", "delete"],
    ["jobs", "run-now"],
    ["jobs", "backfill"],
    ["runs"],
    ["runs", "list"],
    ["runs", "show"],
    ["requests"],
    ["requests", "list"],
    ["requests", "show"],
    ["history"],
    ["dead-letters"],
    ["preview"],
    ["adopt-etcd"],
]
GROUPS = [[], ["jobs"], ["runs"], ["requests"], ["history"], ["dead-letters"]]
LEAVES = [command for command in COMMANDS if command not in GROUPS]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No .local/env, and no variable of the caller's."""
    import os

    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("CRONSTREAM_"):
            monkeypatch.delenv(name)


@pytest.fixture
def nowhere() -> Iterator[dict[str, str]]:
    """Settings whose servers refuse connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        port = taken.getsockname()[1]
        yield {
            "CRONSTREAM_POSTGRES": f"host=127.0.0.1 port={port} dbname=x user=x",
            "CRONSTREAM_KAFKA": f"127.0.0.1:{port}",
            "CRONSTREAM_ETCD": f"127.0.0.1:{port}",
            "CRONSTREAM_CONNECT": f"http://127.0.0.1:{port}",
            "CRONSTREAM_CONNECT_SECRETS": "/nowhere",
        }


def run(*arguments: str, env: dict[str, str] | None = None, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, env=env, input=stdin)


def failed_with_one_line(result: Result) -> str:
    assert result.exit_code != 0
    assert not result.stdout
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("cronstream: ")
    return lines[0]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


@pytest.mark.parametrize("command", GROUPS, ids=" ".join)
def test_the_list_of_commands_cuts_no_sentence_off(command: list[str]) -> None:
    _, _, listed = run(*command, "--help").stdout.partition("Commands:\n")
    assert listed.count(".\n") == len(listed.splitlines()) > 1
    assert "..." not in listed


@pytest.mark.parametrize("command", LEAVES, ids=" ".join)
def test_every_command_has_json(command: list[str]) -> None:
    assert "--json" in run(*command, "--help").stdout


def test_the_version_is_known_without_an_installed_package() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"cronstream, version {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["jobs", "list", "--limit", "0"], "--limit"),
        (["runs", "list", "--frob"], "No such option"),
        (["jobs", "show"], "Missing argument 'JOB'"),
        (["runs", "list", "--since", "yesterday"], "neither how long ago"),
        (["runs", "list", "--state", "broken"], "'broken' is not one of 'running', 'succeeded'"),
        (["requests", "show", "0"], "is not in the range"),
        (["jobs", "backfill", "x", "--begins", "1h", "--ends", "7d"], "name the earlier one as --begins"),
        (["preview", "0 0 30 2 *"], 'cron: "0 0 30 2 *" never fires: no date matches it'),
        (["preview", "61 * * * *"], 'minute: "61" is not allowed'),
        (["preview", "@daily", "--tz", "Mars/Phobos"], 'timezone: "Mars/Phobos"'),
        (["preview", "@daily", "--after", "yesterday"], 'after: "yesterday"'),
        (["preview", "--every", "1 month"], "every: "),
        (["preview"], "give either a cron EXPR"),
    ],
)
def test_misuse_is_one_line_and_exit_status_2(arguments: list[str], says: str) -> None:
    result = run(*arguments)
    assert says in failed_with_one_line(result)
    assert result.exit_code == 2


def test_what_is_wrong_is_exit_status_1(nowhere: dict[str, str]) -> None:
    assert run("jobs", "list", env=nowhere).exit_code == 1
    assert run("jobs", "list").exit_code == 1, "no server is named"


@pytest.mark.parametrize(
    "command", [["jobs", "list"], ["jobs", "pause", "1"], ["runs", "list"], ["setup"], ["status"], ["doctor"]]
)
def test_without_a_server_s_name_it_says_where_to_go(command: list[str]) -> None:
    said = failed_with_one_line(run(*command))
    assert said.startswith("cronstream: no server is named: `make up` starts the local stack; if it is up, go to its")
    assert "CRONSTREAM_POSTGRES is not set" in said


def test_an_unknown_variable_is_named_with_the_one_that_was_meant(nowhere: dict[str, str]) -> None:
    said = failed_with_one_line(run("jobs", "list", env={**nowhere, "CRONSTREAM_KAFKAA": "x"}))
    assert said == "cronstream: CRONSTREAM_KAFKAA: no such setting; did you mean CRONSTREAM_KAFKA?"


@pytest.mark.parametrize("command", [["jobs", "list"], ["jobs", "show", "1"], ["runs", "list"]], ids=" ".join)
def test_a_database_that_does_not_answer_is_one_line(command: list[str], nowhere: dict[str, str]) -> None:
    said = failed_with_one_line(run(*command, env=nowhere))
    assert "Postgres does not answer" in said
    assert "refused" in said


def test_status_says_which_parts_are_down(nowhere: dict[str, str]) -> None:
    result = run("status", env=nowhere)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    silent = ["postgres", "kafka", "capture", "leader", "streams"]
    groups = ["workers", "mover", "history", "alerts", "commands"]
    shown = [[name, "DOWN"] for name in silent] + [[name, "?"] for name in groups]
    assert [line.split()[:2] for line in lines] == shown
    assert "could not be asked: Kafka: " in lines[-1]
    said = f"cronstream: down: {', '.join(silent)}; could not be asked: {', '.join(groups)}\n"
    assert result.stderr == said
    assert "Failure(" not in result.stdout
    assert "Error(" not in result.stdout


def test_status_as_json_keeps_the_exit_status(nowhere: dict[str, str]) -> None:
    result = run("status", "--json", env=nowhere)
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["ok"] is False
    assert "Postgres does not answer" in answer["postgres"]["down"]
    assert answer["alerts"]["unknown"].startswith("Kafka: ")


def test_doctor_says_what_it_could_not_look_at_and_what_it_knows(nowhere: dict[str, str]) -> None:
    result = run("doctor", "--json", env=nowhere)
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["ok"] is False
    assert [(check["name"], check["state"]) for check in answer["checks"]] == [
        ("settings", "ok"),
        ("zone data", "ok"),
        ("postgres", "problem"),
        ("topics", "problem"),
    ]
    assert TZDATA_VERSION in answer["checks"][1]["says"]
    assert "Postgres does not answer" in answer["checks"][2]["says"]
    shown = run("doctor", env=nowhere)
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["ok", "ok", *["PROBLEM", "remedy:"] * 2]
    assert shown.stderr == "cronstream: problems: postgres, topics\n"
    named = run("doctor", "--json", env={**nowhere, "CRONSTREAM_PYTHON_PATH": "/nosuch"})
    check = json.loads(named.stdout)["checks"][0]
    says = "CRONSTREAM_PYTHON_PATH: /nosuch is no folder: make it first, or name the one that is meant"
    assert (check["name"], check["state"], check["says"]) == ("settings", "problem", says)


def test_servers_are_found_in_the_file_that_make_up_writes(nowhere: dict[str, str]) -> None:
    Path(".local").mkdir()
    Path(".local/env").write_text("".join(f"{name}='{value}'\n" for name, value in nowhere.items()))
    assert "Postgres does not answer" in failed_with_one_line(run("jobs", "list"))


def test_an_environment_that_names_a_server_is_not_mixed_with_the_file(nowhere: dict[str, str]) -> None:
    Path(".local").mkdir()
    Path(".local/env").write_text("".join(f"{name}='{value}'\n" for name, value in nowhere.items()))
    said = failed_with_one_line(run("jobs", "list", env={"CRONSTREAM_KAFKA": "elsewhere:9092"}))
    assert "CRONSTREAM_POSTGRES is not set; CRONSTREAM_ETCD is not set" in said


def test_etcd_is_adopted_only_when_told_so() -> None:
    result = run("adopt-etcd")
    assert result.exit_code == 1
    assert "only if the old etcd is gone for good" in result.stderr
    assert result.stderr.splitlines()[-1] == (
        "cronstream: nothing was changed: say --yes when the old etcd is gone for good"
    )


def test_preview_marks_what_a_clock_change_moves() -> None:
    result = run("preview", "30 2 * * *", "--tz", "America/New_York", "--after", "2026-03-07T00:00:00Z", "--count", "2")
    assert result.exit_code == 0
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "UTC                   America/New_York",
        "2026-03-07T07:30:00Z  2026-03-07T02:30:00-05:00",
        "2026-03-08T07:00:00Z  2026-03-08T03:00:00-04:00  moved by a clock change",
    ]
    assert "note: 02:30 does not exist on 2026-03-08" in result.stderr


def test_preview_as_json() -> None:
    result = run("preview", "30 2 * * *", "--tz", "America/New_York", "--after", "2026-03-08T00:00:00Z", "--json")
    answer = json.loads(result.stdout)
    assert answer["fires"][0] == "2026-03-08T07:00:00Z"
    assert answer["instants"][0] == {
        "utc": "2026-03-08T07:00:00Z",
        "local": "2026-03-08T03:00:00-04:00",
        "moved": True,
    }
    assert len(answer["fires"]) == 5
    assert len(answer["notices"]) == 1


def test_preview_of_an_interval() -> None:
    result = run("preview", "--every", "90s", "--after", "2026-01-01T00:00:00Z", "--count", "2", "--json")
    assert json.loads(result.stdout)["fires"] == ["2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"]


def test_preview_answers_lines_with_lines_whatever_they_hold() -> None:
    good = {"id": 1, "expr": "30 2 * * *", "tz": "America/New_York", "after": "2026-03-08T05:00:00Z", "count": 1}
    result = run("preview", "--jsonl", stdin=json.dumps(good).encode() + b"\n\nnot json\n\xff\xfe\n" + b'{"id": 4}')
    assert result.exit_code == 0
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert answers[0] == {"id": 1, "fires": ["2026-03-08T07:00:00Z"]}
    assert ["error" in answer for answer in answers] == [False, True, True, True, True]
    assert answers[4]["id"] == 4


def test_preview_in_utc_is_one_column() -> None:
    result = run("preview", "@daily", "--after", "2026-03-07T00:00:00Z", "--count", "1")
    assert result.stdout == "UTC\n2026-03-08T00:00:00Z\n"


def test_a_line_without_after_is_answered_from_now_on() -> None:
    result = run("preview", "--jsonl", stdin='{"expr": "@daily"}\n{"expr": "@daily", "after": null}')
    here, wrong = (json.loads(line) for line in result.stdout.splitlines())
    assert len(here["fires"]) == 5
    assert "after: null is not allowed" in wrong["error"]


@pytest.mark.parametrize("arguments", [[], ["@daily", "--every", "90s"], ["@daily", "--jsonl"]])
def test_preview_of_nothing_or_of_two_things_is_misuse(arguments: list[str]) -> None:
    assert run("preview", *arguments).exit_code == 2


def test_since_is_an_instant_or_how_long_ago(nowhere: dict[str, str]) -> None:
    for good in ("15m", "2h", "7d", "now", "2026-03-08T07:00:00Z", "2026-03-08T07:00:00+01:00"):
        assert "Postgres does not answer" in failed_with_one_line(run("runs", "list", "--since", good, env=nowhere))
    for bad in ("yesterday", "2026-03-08", "5", "1 month", "99999999999d"):
        result = run("runs", "list", "--since", bad, env=nowhere)
        assert result.exit_code == 2, bad
        assert "neither how long ago" in result.stderr


@pytest.mark.parametrize("ends", [[], ["--ends", "now"], ["--ends", "1s"]])
def test_a_backfill_may_reach_up_to_now(ends: list[str], nowhere: dict[str, str]) -> None:
    said = failed_with_one_line(run("jobs", "backfill", "x", "--begins", "7d", *ends, env=nowhere))
    assert "Postgres does not answer" in said


def test_an_etcd_that_does_not_answer_is_not_adopted(nowhere: dict[str, str]) -> None:
    result = run("adopt-etcd", "--yes", env=nowhere)
    assert result.exit_code == 1
    assert "etcd does not answer" in result.stderr


@pytest.mark.parametrize("day", ["today", "tomorrow"])
def test_a_day_that_is_not_over_is_not_dropped(day: str, nowhere: dict[str, str], tmp_path: Path) -> None:
    at = to_datetime(SystemClock().wall_us()).date() + timedelta(days=day == "tomorrow")
    result = run("history", "export", "2020-01-01", f"{at}", "--drop", "--folder", str(tmp_path), env=nowhere)
    said = failed_with_one_line(result)
    assert result.exit_code == 2
    assert f"{at} is not over" in said
    assert "Leave --drop out, or wait" in said


@pytest.mark.parametrize("command", ["list", "redrive", "discard"])
def test_an_unknown_reason_is_refused_with_the_known_ones(command: str, nowhere: dict[str, str]) -> None:
    result = run("dead-letters", command, "--reason", "bogus", env=nowhere)
    assert result.exit_code == 2
    assert all(reason in result.stderr for reason in ("'bogus'", "exhausted", "refused_command", "unknown"))


@pytest.mark.parametrize("command", ["redrive", "discard"])
def test_all_letters_and_some_of_them_exclude_one_another(command: str, nowhere: dict[str, str]) -> None:
    result = run("dead-letters", command, "--reason", "final", "--all", env=nowhere)
    assert result.exit_code == 2
    assert "--all takes every letter, and the other options only some" in failed_with_one_line(result)


@pytest.mark.parametrize("command", [["export", "2026-01-01"], ["restore", "2026-01-01"]])
def test_a_folder_that_is_not_there_is_not_made(command: list[str], nowhere: dict[str, str], tmp_path: Path) -> None:
    mistyped = tmp_path / "histroy"
    for arguments, env, status in (
        (["--folder", str(mistyped)], nowhere, 2),
        ([], {**nowhere, "CRONSTREAM_HISTORY_FOLDER": str(mistyped)}, 1),
    ):
        result = run("history", *command, *arguments, env=env)
        assert result.exit_code == status
        assert f"{mistyped} is no folder: make it first" in failed_with_one_line(result)
    assert not mistyped.exists()


def test_enabled_and_paused_at_once_are_refused_rather_than_one_unheard(nowhere: dict[str, str]) -> None:
    result = run("jobs", "list", "--enabled", "--paused", env=nowhere)
    assert result.exit_code == 2
    assert "name one of them" in failed_with_one_line(result)
