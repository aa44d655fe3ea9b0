"""The command handler, with real programs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cronstream.records import Kind
from tests.support.poll import eventually
from tests.unit.workers.attempts import an_attempt, settings
from workers.attempt import Attempt, BadPayload, Result
from workers.handlers import program
from workers.handlers.command import CommandHandler

BOUND = 4096
# A program, its child, and a grandchild that has left the session for good.
FAMILY = "echo begun; setsid sh -c 'echo $$ >> {pids}; sleep 600' & sh -c 'echo $$ >> {pids}; sleep 600; :' & {then}"


def run(
    payload: dict[str, Any], *, cut_off: tuple[Path, int] | None = None, **changes: Any
) -> tuple[Attempt, Result | None]:
    """None: it was cut off, as at its deadline, once that file had so many process ids."""

    async def go() -> tuple[Attempt, Result | None]:
        chosen = settings(**{"command_enabled": True, "output_bytes": BOUND, **changes})
        handler = CommandHandler(chosen, {"PATH": os.environ["PATH"], "SECRET": "s"})
        attempt = an_attempt("command", payload)
        if cut_off is None:
            return attempt, await handler.run(attempt)
        running = asyncio.create_task(handler.run(attempt))
        await asyncio.to_thread(pids_in, *cut_off)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return attempt, None

    return asyncio.run(go())


def result_of(argv: list[str], **more: Any) -> Result:
    _, result = run({"argv": argv, **more})
    assert result is not None
    return result


def pids_in(path: Path, count: int = 2) -> list[int]:
    def read() -> list[int]:
        found = [int(line) for line in path.read_text().split()] if path.exists() else []
        return found if len(found) >= count else []

    return eventually(read, within=30)  # an interpreter that starts on a busy machine


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone, or going while it is read
        return False


def test_exit_code_zero_has_succeeded() -> None:
    assert result_of(["sh", "-c", "echo out; echo err >&2"]) == Result(Kind.SUCCEEDED, None, "out\nerr\n")


def test_any_other_exit_code_has_failed() -> None:
    assert result_of(["sh", "-c", "echo no; exit 3"]) == Result(Kind.FAILED, "exit code 3: no", "no\n")


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (None, None),
        (" \n\n", None),
        ("Traceback\n  File\nLookupError: no\n\n  \n", "LookupError: no"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
    ],
)
def test_the_last_line_says_what_went_wrong(said: str | None, line: str | None) -> None:
    assert program.last_line(said) == line


def test_output_that_is_not_kept_is_not_in_the_error_either() -> None:
    _, result = run({"argv": ["sh", "-c", "echo secret; exit 3"]}, output_bytes=0)
    assert result == Result(Kind.FAILED, "exit code 3", None)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV"])
def test_a_signal_has_failed(name: str) -> None:
    assert result_of(["sh", "-c", f"kill -{name[3:]} $$"]) == Result(Kind.FAILED, f"killed by {name}", None)


def test_a_missing_program_is_named() -> None:
    result = result_of(["/no/such/program"])
    assert result.error == "exit code 127: /no/such/program: No such file or directory"
    assert result.output == "/no/such/program: No such file or directory\n"


def test_there_is_no_shell() -> None:
    assert result_of(["printf", "%s", "$(id); `id` *"]).output == "$(id); `id` *"


def test_stdin_reaches_the_program() -> None:
    assert result_of(["cat"], stdin="äöü").output == "äöü"


def test_a_program_that_ignores_a_long_stdin_is_no_trouble() -> None:
    assert result_of(["true"], stdin="x" * 1_000_000).kind is Kind.SUCCEEDED


def test_the_environment_is_an_allow_list_and_says_which_run_it_is() -> None:
    result = result_of(["env"], env={"OWN": "1", "CRONSTREAM_ATTEMPT": "forged"})
    environment = dict(line.split("=", 1) for line in (result.output or "").splitlines())
    assert environment == {
        "PATH": os.environ["PATH"],
        "OWN": "1",
        "CRONSTREAM_IDEMPOTENCY_KEY": "7-1772953200000000-0",
        "CRONSTREAM_FENCING_TOKEN": "41",
        "CRONSTREAM_SCHEDULED_TIME": "2026-03-08T07:00:00Z",
        "CRONSTREAM_ATTEMPT": "1",
        "CRONSTREAM_JOB_ID": "7",
        "CRONSTREAM_JOB": "nightly",
        "CRONSTREAM_TENANT": "acme",
    }


def test_a_flood_of_output_keeps_its_end_within_the_bound() -> None:
    result = result_of(["sh", "-c", "head -c 50000000 /dev/zero | tr '\\0' x; echo the end"])
    assert result.kind is Kind.SUCCEEDED
    output = result.output or ""
    assert len(output) == BOUND
    assert output.startswith("[50000008 bytes in all; the end:]\n")
    assert output.endswith("xthe end\n")


def test_the_whole_tree_dies_at_the_deadline(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    attempt, result = run({"argv": ["sh", "-c", FAMILY.format(pids=pids, then="wait")]}, cut_off=(pids, 2))
    assert result is None
    assert attempt.partial_output == "begun\n"
    assert not any(is_alive(pid) for pid in pids_in(pids))


def test_nothing_outlives_its_program(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    then = f"while [ $(cat {pids} 2>/dev/null | wc -l) -lt 2 ]; do sleep 0.05; done; exit 0"
    assert result_of(["sh", "-c", FAMILY.format(pids=pids, then=then)]).kind is Kind.SUCCEEDED
    assert not any(is_alive(pid) for pid in pids_in(pids))


def test_the_whole_tree_dies_with_its_worker(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "import asyncio\n"
        "from workers.handlers.command import CommandHandler\n"
        "from tests.unit.workers.attempts import an_attempt, settings\n"
        f"payload = {{'argv': ['sh', '-c', {FAMILY.format(pids=pids, then='wait')!r}]}}\n"
        "handler = CommandHandler(settings(command_enabled=True))\n"
        "asyncio.run(handler.run(an_attempt('command', payload)))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as worker:
        try:
            family = pids_in(pids)
        finally:  # the block ends with the worker
            worker.send_signal(signal.SIGKILL)
    eventually(lambda: not any(is_alive(pid) for pid in family), within=10)


def test_a_program_that_kills_its_guard_has_failed() -> None:
    result = result_of(["sh", "-c", "kill -9 $PPID; sleep 600"])
    assert result == Result(Kind.FAILED, "killed by SIGKILL", None)


def test_a_guard_that_is_stopped_again_and_again_is_killed_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "KILL_SECONDS", 0.2)
    pids = tmp_path / "pids"
    script = f"kill -STOP $PPID; echo $$ >> {pids}; while kill -STOP $PPID; do :; done"
    _, result = run({"argv": ["sh", "-c", script]}, cut_off=(pids, 1))
    assert result is None
    [pid] = pids_in(pids, 1)
    eventually(lambda: not is_alive(pid), within=10)


def test_a_stopped_guard_is_woken_and_tells_what_it_had_read(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"echo begun; kill -STOP $PPID; echo $$ >> {pids}; sleep 600"
    attempt, result = run({"argv": ["sh", "-c", script]}, cut_off=(pids, 1))
    assert result is None
    assert attempt.partial_output == "begun\n"
    assert not is_alive(pids_in(pids, 1)[0])


def test_it_is_off_unless_allowed() -> None:
    _, result = run({"argv": ["true"]}, command_enabled=False)
    assert result is not None
    assert result.kind is Kind.FAILED
    assert "CRONSTREAM_COMMAND_ENABLED" in (result.error or "")
    assert result.final


@pytest.mark.parametrize("payload", [{}, {"argv": []}, {"argv": "ls"}, {"argv": ["a\0b"]}, {"argv": ["x"], "env": [1]}])
def test_what_is_no_command_is_a_failure(payload: dict[str, Any]) -> None:
    with pytest.raises(BadPayload, match="the payload is not a command"):
        run(payload)


def test_it_runs_in_the_folder_that_it_names(tmp_path: Path) -> None:
    assert result_of(["pwd"], cwd=str(tmp_path)).output == f"{tmp_path}\n"
    result = result_of(["pwd"], cwd="/no/such/folder")
    assert (result.kind, result.error) == (Kind.FAILED, "/no/such/folder: No such file or directory")


def test_the_exit_codes_that_a_payload_names_are_final() -> None:
    script = ["sh", "-c", "exit 65"]
    assert not result_of(script).final
    assert not result_of(script, final_exit_codes=[64]).final
    assert result_of(script, final_exit_codes=[64, 65]).final


def test_processor_time_is_limited() -> None:
    result = result_of([sys.executable, "-c", "while True: pass"], limits={"cpu_seconds": 1})
    limit = "limits.cpu_seconds, at most the worker's CRONSTREAM_PROCESS_CPU_SECONDS"
    assert result.error == f"killed by SIGXCPU: more than 1 s of processor time ({limit})"


def test_the_size_of_a_file_is_limited(tmp_path: Path) -> None:
    write = ["dd", "if=/dev/zero", f"of={tmp_path / 'file'}", "bs=1M", "count=3", "status=none"]
    result = result_of(write, limits={"file_mib": 2})
    limit = "limits.file_mib, at most the worker's CRONSTREAM_PROCESS_FILE_MIB"
    assert result.error == f"killed by SIGXFSZ: a file of more than 2 MiB ({limit})"


def test_memory_is_limited_for_each_process() -> None:
    result = result_of([sys.executable, "-c", "bytearray(200 << 20)"], limits={"memory_mib": 100})
    assert result.error == "exit code 1: MemoryError"


def test_memory_is_limited_for_the_whole_tree() -> None:
    fork = "import os, time\nfor _ in range(5):\n  if not os.fork(): break\nb = bytearray(40 << 20)\ntime.sleep(60)"
    result = result_of([sys.executable, "-c", fork], limits={"memory_mib": 100})
    assert result.error == "killed by SIGKILL: [killed: more than 100 MiB of memory]"
    assert result.output == "[killed: more than 100 MiB of memory]\n"


def test_the_number_of_processes_is_limited(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"for i in 1 2 3 4 5 6; do sh -c 'echo $$ >> {pids}; sleep 600; :' & done; wait"
    _, result = run({"argv": ["sh", "-c", script]}, process_tree=5)
    assert result is not None
    said = "[killed: more than 5 processes]"
    assert (result.error, result.output) == (f"killed by SIGKILL: {said}", f"{said}\n")
    assert not any(is_alive(pid) for pid in pids_in(pids, 6))


def test_files_are_limited_in_size_and_number(tmp_path: Path) -> None:
    write = f"open({str(tmp_path / 'big')!r}, 'wb').write(bytes(3 << 20))"
    assert "File too large" in (result_of([sys.executable, "-c", write], limits={"file_mib": 1}).output or "")
    assert (tmp_path / "big").stat().st_size <= 1 << 20
    opens = "held = [open('/dev/null') for _ in range(100)]"
    assert "Too many open files" in (result_of([sys.executable, "-c", opens], limits={"open_files": 32}).output or "")


@pytest.mark.parametrize("memory", [0, 2000, -1])
def test_a_payload_cannot_take_more_than_the_worker_allows(memory: int) -> None:
    message = f"limits.memory_mib is {memory}; this worker allows 1 to 1024 .CRONSTREAM_PROCESS_MEMORY_MIB"
    with pytest.raises(BadPayload, match=message):
        run({"argv": ["true"], "limits": {"memory_mib": memory}})
