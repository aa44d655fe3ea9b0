"""The local stack's parts that need no server."""

from __future__ import annotations

import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stack import (
    compose_secrets,
    connect,
    kafka,
    packages,
    ports,
    postgres,
    process,
    properties,
    servers,
    services,
    settings,
)
from stack.__main__ import main
from stack.errors import StackError
from stack.home import Home, parse_env, render_env
from stack.paths import CHECKOUT, DEFAULT_HOME, STACK_CONFIG, digest
from stack.process import Identity
from tests.support.poll import eventually

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
# Ignores SIGTERM and has a child in a session of its own.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    made.create()
    yield made
    process.kill(made.pid_file("it"), family=True)


def spawn(home: Home, argv: list[str]) -> Identity:
    identity = process.spawn(
        argv,
        pid_file=home.pid_file("it"),
        log_file=home.log_file("it"),
        environment={"PATH": "/usr/bin:/bin"},
        folder=home.path,
    )
    eventually(lambda: "up" in home.log_file("it").read_text(), within=20)
    return identity


class TestPorts:
    def test_a_listener_takes_its_port(self) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            assert not ports.is_free(listener.getsockname()[1])

    def test_chosen_ports_are_free_and_below_the_kernels_own(self) -> None:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        port = ports.choose()
        assert ports.FIRST <= port <= ports.LAST < low
        assert ports.is_free(port)

    def test_a_home_keeps_its_ports(self, home: Home) -> None:
        chosen = {name: home.port(name) for name in ("kafka", "etcd", "connect")}
        assert len(set(chosen.values())) == 3
        assert {name: Home(home.path).port(name) for name in chosen} == chosen

    def test_a_port_that_somebody_took_is_chosen_anew(self, home: Home) -> None:
        kept = home.port("etcd")
        with socket.socket() as stranger:
            stranger.bind(("127.0.0.1", home.port("kafka")))
            stranger.listen()
            home.release_taken_ports()
            assert home.port("kafka") != stranger.getsockname()[1]
        assert home.port("etcd") == kept


class TestEnvFile:
    def test_it_reads_what_it_wrote(self, home: Home) -> None:
        assert parse_env(render_env(home.environment())) == home.environment()

    def test_shells_read_the_same(self, home: Home) -> None:
        home.write_env()
        script = f'. {home.env_file}; printf %s "$CRONSTREAM_POSTGRES"'
        said = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
        assert said.stdout == home.environment()["CRONSTREAM_POSTGRES"]

    def test_values_that_would_break_a_line_are_refused(self) -> None:
        with pytest.raises(ValueError, match="CRONSTREAM_HOME"):
            render_env({"CRONSTREAM_HOME": "it's"})

    def test_the_usual_home_is_found_by_the_name_that_readers_know(self, home: Home) -> None:
        assert servers.env_file_of(home) == home.env_file
        assert servers.env_file_of(Home(DEFAULT_HOME)) == CHECKOUT / ".local" / "env"

    def test_no_secret_is_in_it(self, home: Home) -> None:
        home.write_connect_secrets()
        assert home.secret("postgres_password") not in home.write_env()


class TestSecrets:
    def test_only_the_owner_reads_them(self, home: Home) -> None:
        home.write_connect_secrets()
        for file in (home.password_file, home.connect_secrets_file):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(home.secrets.stat().st_mode) == 0o700

    def test_a_password_is_made_once(self, home: Home) -> None:
        assert home.secret("postgres_password") == Home(home.path).secret("postgres_password")
        assert home.secret("postgres_password") != home.secret("postgres_superuser_password")

    def test_all_see_the_same_password_however_many_ask_first(self, home: Home) -> None:
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: home.secret("new"), range(40)))) == 1
            list(pool.map(lambda _: home.write_connect_secrets(), range(40)))
        assert stat.S_IMODE(home.connect_secrets_file.stat().st_mode) == 0o600

    def test_compose_keeps_what_it_made(self, tmp_path: Path) -> None:
        compose_secrets.write(tmp_path / "s")
        first = (tmp_path / "s" / "postgres_password").read_text()
        compose_secrets.write(tmp_path / "s")
        assert first == (tmp_path / "s" / "postgres_password").read_text()
        assert first in (tmp_path / "s" / "connect.properties").read_text()


class TestSettings:
    def test_the_example_changes_nothing_and_is_made_once(self, home: Home) -> None:
        settings.make_example(home)
        assert settings.read(home, {}) == {}
        uncommented = settings.EXAMPLE.replace("\n#CRON", "\nCRON")
        settings.file_of(home).write_text(uncommented)
        settings.make_example(home)
        assert settings.read(home, {}) == {
            "CRONSTREAM_COMMAND_ENABLED": "true",
            "CRONSTREAM_HTTP_ALLOW": "127.0.0.0/8,::1/128",
            "CRONSTREAM_SLOTS": "100",
            "CRONSTREAM_LOG_LEVEL": "INFO",
        }
        settings.check({**home.environment(), **settings.read(home, {})})

    @pytest.mark.parametrize(
        ("text", "shell", "says"),
        [
            ("CRONSTREAM_SLOTS=1\nSLOTS=5\n", {}, r":2: not a line like CRONSTREAM_SLOTS=100: SLOTS=5"),
            ("export CRONSTREAM_SLOTS=5\n", {}, "not a line like"),
            ('CRONSTREAM_HISTORY_FOLDER="here"\n', {}, "not a line like"),
            ("CRONSTREAM_SLOTS=5\n\nCRONSTREAM_SLOTS=6\n", {}, ":3: CRONSTREAM_SLOTS stands in line 1 already"),
            ("CRONSTREAM_KAFKA=there:9092\n", {}, "CRONSTREAM_KAFKA is the stack's own"),
            ("CRONSTREAM_SLOTS=5\n", {"CRONSTREAM_SLOTS": "6"}, "SLOTS is 6 in the environment and 5 in .*one place"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, home: Home, text: str, shell: dict[str, str], says: str) -> None:
        settings.file_of(home).write_text(text)
        with pytest.raises(StackError, match=says):
            settings.read(home, shell)

    @pytest.mark.parametrize(
        ("name", "value", "says"),
        [
            ("SLOT", "5", "CRONSTREAM_SLOT: no such setting; did you mean"),
            ("SLOTS", "many", "CRONSTREAM_SLOTS: "),
            (
                "SQL_CONNECTIONS",
                "/nowhere/named.toml",
                "SQL_CONNECTIONS: /nowhere/named.toml: .*No such file",
            ),
        ],
    )
    def test_what_no_process_takes_is_refused_before_one_is_stopped(
        self, home: Home, name: str, value: str, says: str
    ) -> None:
        with pytest.raises(StackError, match=says):
            settings.check({**home.environment(), f"CRONSTREAM_{name}": value})

    def test_commands_learn_which_installation_it_is(self, home: Home) -> None:
        settings.file_of(home).write_text("CRONSTREAM_INSTALLATION='mine'\nCRONSTREAM_SLOTS=5\n")
        assert parse_env(home.write_env(settings.shared(home, {}))) == home.environment() | {
            "CRONSTREAM_INSTALLATION": "mine"
        }
        assert settings.shared(home, {"CRONSTREAM_PARTITIONS": "8", "CRONSTREAM_SLOTS": "5"}) == {
            "CRONSTREAM_INSTALLATION": "mine",
            "CRONSTREAM_PARTITIONS": "8",
        }

    def test_what_the_stack_does_not_hear_of_the_shell_is_named(self, home: Home) -> None:
        shell = {**home.environment(), "CRONSTREAM_NODE": "me", "CRONSTREAM_KAFKA": "there:9092", "PATH": "/bin"}
        assert settings.unheard(home, shell) == ["CRONSTREAM_KAFKA", "CRONSTREAM_NODE"]

    def test_workers_of_this_machine_reach_it_unless_the_shell_says_otherwise(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker, streams = services.Service("w", "workers"), services.Service("s", "streams")
        monkeypatch.delenv("CRONSTREAM_HTTP_ALLOW", raising=False)
        assert services.environment(home, worker)["CRONSTREAM_HTTP_ALLOW"] == "127.0.0.0/8,::1/128"
        assert "CRONSTREAM_HTTP_ALLOW" not in services.environment(home, streams)
        monkeypatch.setenv("CRONSTREAM_HTTP_ALLOW", "10.0.0.0/8")
        assert services.environment(home, worker)["CRONSTREAM_HTTP_ALLOW"] == "10.0.0.0/8"


class TestStatus:
    def test_what_is_down_fails_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["status", "--home", str(tmp_path / "never")]) == 1
        assert "nothing was ever started" in capsys.readouterr().out

    def test_what_ended_by_itself_is_told_from_what_was_stopped(
        self, home: Home, capsys: pytest.CaptureFixture[str]
    ) -> None:
        identity = process.spawn(
            [sys.executable, "-c", "print('up'); print('  its last words'); raise SystemExit(1)"],
            pid_file=home.pid_file("history"),
            log_file=home.log_file("history"),
            environment={},
            folder=home.path,
        )
        eventually(lambda: not process.is_alive(identity), within=20)
        assert main(["status", "--home", str(home.path)]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert "history        ended      its last log line: its last words" in lines
        assert "capture        down" in lines


class TestProcess:
    def test_a_later_process_of_the_same_number_is_another(self, home: Home) -> None:
        identity = spawn(home, SLEEP)
        assert process.is_alive(identity)
        earlier = Identity(identity.pid, identity.started - 1, identity.boot)
        assert not process.is_alive(earlier)
        assert not process.is_alive(Identity(identity.pid, identity.started, "another boot"))
        process.send(earlier, signal.SIGKILL)
        assert process.is_alive(identity)

    def test_the_pid_file_finds_it_again(self, home: Home) -> None:
        identity = spawn(home, SLEEP)
        assert process.running(home.pid_file("it")) == identity
        assert process.stop(home.pid_file("it"), signal.SIGTERM, 10.0)
        assert process.running(home.pid_file("it")) is None
        assert not home.pid_file("it").exists()

    def test_what_does_not_go_is_killed_with_all_below_it(self, home: Home) -> None:
        identity = spawn(home, [sys.executable, "-c", STUBBORN])
        family = process.descendants(identity.pid)
        assert len(family) == 1
        assert not process.stop(home.pid_file("it"), signal.SIGTERM, 0.2)
        assert not any(process.is_alive(member) for member in [identity, *family])

    def test_a_crash_of_one_leaves_its_children(self, home: Home) -> None:
        identity = spawn(home, [sys.executable, "-c", STUBBORN])
        (child,) = process.descendants(identity.pid)
        process.kill(home.pid_file("it"), family=False)
        assert not process.is_alive(identity)
        assert process.is_alive(child)
        process.send(child, signal.SIGKILL)

    @pytest.mark.parametrize("text", ["", "12", "{}", '{"pid": 1}'])
    def test_a_broken_pid_file_is_nobody(self, home: Home, text: str) -> None:
        home.pid_file("it").write_text(text)
        assert process.running(home.pid_file("it")) is None

    def test_the_tail_of_a_log(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        assert process.tail(log) == "(no log)"
        log.write_text("\n".join(map(str, range(100))))
        assert process.tail(log, 2) == "98\n99"


class TestConfiguration:
    def test_a_setting_stands_in_one_place(self) -> None:
        with pytest.raises(ValueError, match=r"set twice: log\.dirs"):
            properties.render("log.dirs=/a\n", {"log.dirs": "/b"})

    def test_rendered_files_parse_to_both_parts(self, home: Home) -> None:
        for template, here in ((kafka.TEMPLATE, kafka.place(home)), (connect.TEMPLATE, connect.place(home))):
            common = properties.parse(template.read_text())
            assert properties.parse(properties.render(template.read_text(), here)) == common | here

    def test_the_broker_advertises_the_port_of_the_env_file(self, home: Home) -> None:
        assert kafka.place(home)["advertised.listeners"] == "PLAINTEXT://" + home.environment()["CRONSTREAM_KAFKA"]

    def test_cluster_ids_are_uuids_and_never_look_like_options(self) -> None:
        assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", kafka.cluster_id()) for _ in range(500))

    def test_jars_are_kept_under_the_poms_hash(self, tmp_path: Path) -> None:
        pom = tmp_path / "pom.xml"
        pom.write_text("one")
        first = digest(pom)
        pom.write_text("two")
        assert digest(pom) != first

    def test_nothing_of_the_stack_needs_more_than_the_standard_library(self) -> None:
        """It runs before the virtual environment exists."""
        bare = subprocess.run(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); import stack.__main__",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert bare.returncode == 0, bare.stderr


class TestPostgres:
    def test_the_verifier_is_the_one_of_the_standard(self) -> None:
        """RFC 7677, section 3."""
        verifier = postgres.scram_verifier("pencil", bytes.fromhex("5b6d99689d12358eeca04b141236fa81"))
        assert verifier == (
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ=="
            "$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        )

    def test_first_statements_hold_no_password_and_no_comment(self) -> None:
        statements = postgres.first_statements((STACK_CONFIG / "roles.sql").read_text(), "VERIFIER").splitlines()
        assert any("PASSWORD 'VERIFIER'" in statement for statement in statements)
        assert all(statement.endswith(";") and not statement.startswith("--") for statement in statements)
        assert not any("SUPERUSER" in statement for statement in statements)


class TestPackages:
    def test_services_do_not_start_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        policy, cluster = tmp_path / "policy-rc.d", tmp_path / "etc" / "no-cluster.conf"
        monkeypatch.setattr(packages, "POLICY", policy)
        monkeypatch.setattr(packages, "NO_CLUSTER", cluster)
        with packages.no_services_started():
            assert subprocess.run([policy], check=False).returncode == 101
            assert "create_main_cluster = false" in cluster.read_text()
        assert not policy.exists()
        assert not cluster.exists()

    def test_a_policy_of_the_machine_stays_as_it_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        policy = tmp_path / "policy-rc.d"
        policy.write_text("theirs")
        monkeypatch.setattr(packages, "POLICY", policy)
        monkeypatch.setattr(packages, "NO_CLUSTER", tmp_path / "no-cluster.conf")
        with packages.no_services_started():
            assert policy.read_text() == "theirs"
        assert policy.read_text() == "theirs"
