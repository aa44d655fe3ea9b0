"""Settings: one frozen model a process, read from ``CRONSTREAM_*`` variables.

Units are in the names. A variable that no process knows is refused, with the
nearest name that one does. Secrets are read from files and never printed.
"""

from __future__ import annotations

import difflib
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    ValidationError,
    model_validator,
)

from cronstream import conninfo
from cronstream.topics import Topics

PREFIX = "CRONSTREAM_"
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")
_URL = re.compile(r"https?://[^\s/]\S*")
_ENDPOINTS = r"^[^\s,:]+:\d{1,5}(,[^\s,:]+:\d{1,5})*$"


def _parts(given: object) -> object:
    """A list as a variable writes it: with commas."""
    return tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given


_Listed = BeforeValidator(_parts)


def _folder(path: Path) -> Path:
    """A folder that is there: with another's name a process would seem to do its work and not do it."""
    if not path.is_dir():
        raise ValueError(f"{path} is no folder: make it first, or name the one that is meant")
    return path


def _web_address(url: str) -> str:
    if not _URL.fullmatch(url):
        raise ValueError("is no address like https://host/path: it begins with http:// or https:// and has no blanks")
    return url


_Folder = Annotated[Path, AfterValidator(_folder)]


def is_loopback(host: str) -> bool:
    """True for an address that only this machine reaches."""
    return _LOOPBACK.fullmatch(host) is not None


class SettingsError(ValueError):
    """A setting is missing, unknown or wrong; the message names the variable."""


def read_secret(setting: str, file: Path | None) -> str | None:
    """What a secret's file holds, without blanks around it. Raises SettingsError when it cannot be read or is empty."""
    if file is None:
        return None
    variable = PREFIX + setting.upper()
    try:
        secret = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{variable}: {error}") from None
    if not secret:
        raise SettingsError(f"{variable}: {file} is empty")
    return secret


class Installation(BaseModel):
    """What every process of one installation agrees on."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    installation: str = Field("cronstream", pattern=r"^[a-z][a-z0-9_-]{0,40}$")
    """Names the topics, the etcd keys, the consumer groups and the replication slot."""
    postgres: Annotated[str, AfterValidator(conninfo.checked)]
    """A libpq connection string of name=value pairs, without the password."""
    postgres_password_file: Path | None = None
    """The file that holds its password; without one libpq's own means say it."""
    kafka: str = Field(pattern=_ENDPOINTS)
    """Bootstrap servers: host:port[,host:port]."""
    etcd: str = Field(pattern=_ENDPOINTS)
    """Endpoints: host:port[,host:port]."""
    connect: str | None = None
    """Kafka Connect's REST address; only the capture needs it."""
    connect_secrets: str | None = None
    """The properties file, as Connect sees it, that holds the capture's password."""
    partitions: int = Field(4, ge=1, le=512)
    """Partitions of the work topics: fixed when the installation is made."""
    status_token_file: Path | None = None
    """Holds the token that status pages ask for, and that whoever asks them sends."""
    node: str = Field(default_factory=socket.gethostname, min_length=1)
    """This process' name, unique in the installation."""
    log_level: str = Field("INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")
    """DEBUG, INFO, WARNING or ERROR."""

    @property
    def topics(self) -> Topics:
        """The installation's topic names."""
        return Topics(self.installation)

    def postgres_password(self) -> str | None:
        """Hand it to the driver beside the connection string, never in it: of a string that it cannot read,
        the driver shows what it did not understand."""
        return read_secret("postgres_password_file", self.postgres_password_file)

    def status_token(self) -> str | None:
        """The token of the status pages; None where they ask for none."""
        return read_secret("status_token_file", self.status_token_file)


class Served(Installation):
    """Where a process answers operators."""

    status_host: str = "127.0.0.1"
    """The address to which its pages are bound."""
    status_port: int = Field(0, ge=0, le=65535)
    """0 takes a free port; the address is published in etcd."""


class CoordinatorSettings(Served):
    """Election, wheel and dispatch."""

    lease_ttl_seconds: int = Field(5, ge=2, le=60)
    """How long after its last sign of life a leader is replaced."""
    trust_margin_seconds: float = Field(1.0, gt=0)
    """Taken off the lease: at least the measured skew between boot clocks' rates."""
    clock_tolerance_seconds: float = Field(0.5, gt=0)
    """System and database clocks further apart than this end the term."""
    clock_check_seconds: float = Field(5.0, gt=0)
    """How often the clocks are compared."""
    horizon_seconds: float = Field(300.0, ge=10)
    """How far ahead the wheel is loaded."""
    catch_up_per_second: int = Field(1000, ge=1)
    """How fast missed times are published after an outage, across the fleet; on-time work goes first."""
    backfill_per_second: int = Field(100, ge=1)
    """How fast backfills are published, all together; on-time work and what was missed go first."""
    deletions_per_second: int = Field(1000, ge=1)
    """How fast retries and waiting runs of deleted jobs learn of it, after all that is due. Their schedules end
    at once, however many there are."""
    transaction_items: int = Field(50_000, ge=1)
    """The most items in one Kafka transaction."""
    gather_seconds: float = Field(0.008, ge=0, le=1)
    """The shortest time from the beginning of one transaction to the next: what falls due meanwhile shares one."""
    lookahead_seconds: float = Field(1.0, ge=0, le=8)
    """How long before its instant a herd is packed; 0: not before it is due."""
    transaction_timeout_ms: int = Field(10_000, ge=1000)
    """After so long the broker aborts a transaction that a dead leader left open."""
    audit_seconds: float = Field(5.0, gt=0)
    """How often the leader looks for edits that capture missed."""
    audit_stale_seconds: float = Field(10.0, gt=0)
    """An open change older than this is planned without the feed."""
    dedup_window_seconds: float = Field(600.0, ge=60)
    """Must equal the streams processes' window: half of it bounds unadvanced publishes."""

    @model_validator(mode="after")
    def _lease_outlives_margin(self) -> Self:
        if self.trust_margin_seconds * 2 >= self.lease_ttl_seconds:
            raise ValueError("trust_margin_seconds must be less than half of lease_ttl_seconds")
        return self


class ConsumerSettings(Installation):
    """What consumes as one of a group: its partitions go to the others when it is silent."""

    session_timeout_seconds: float = Field(6.0, ge=1)
    """How long a silent process keeps its partitions."""


class StreamsSettings(Served, ConsumerSettings):
    """Admission, settlement, status pages."""

    data_dir: Path = Path(".local/streams")
    """Where this process keeps its tables; one folder a process."""
    status_address: str | None = None
    """How other streams processes reach this one; default host:port."""
    dedup_window_seconds: float = Field(600.0, ge=60)
    """How long a run is remembered, so that it is not admitted twice. The coordinators' must be the same."""
    overlap_queue_limit: int = Field(100, ge=0)
    """How many runs of a job whose overlap_policy is queue may wait; what comes beyond is skipped."""

    @model_validator(mode="after")
    def _strangers_need_a_token(self) -> Self:
        if not is_loopback(self.status_host) and self.status_token_file is None:
            raise ValueError(
                f"status_host is {self.status_host}, which others reach: "
                f"set {PREFIX}STATUS_TOKEN_FILE, or bind to 127.0.0.1"
            )
        return self


class HistorySettings(ConsumerSettings):
    """The history sink, and what becomes of old days."""

    history_batch_items: int = Field(20_000, ge=1)
    """The most rows of one transaction."""
    history_linger_seconds: float = Field(0.2, gt=0)
    """How long a batch waits for more rows."""
    history_folder: _Folder | None = None
    """Where old days are exported to; without it they stay in Postgres for ever."""
    history_days: int = Field(30, ge=2)
    """How many whole days stay in Postgres, after their own and after the last row that was written to them; then
    they are exported and dropped."""


class AlertSettings(ConsumerSettings):
    """What becomes of dead letters: rows, and alerts."""

    alert_first_seconds: float = Field(0.5, ge=0)
    """How long the first alert of a kind waits for more of it."""
    alert_window_seconds: float = Field(30.0, gt=0)
    """After an alert, the next of its kind comes so much later, with the count."""
    alert_webhook_url: Annotated[str, AfterValidator(_web_address)] | None = None
    """Where alerts are POSTed to as JSON, beside their topic."""
    alert_webhook_token_file: Path | None = None
    """Sent to the webhook as a bearer token."""


class WorkerSettings(ConsumerSettings):
    """Handlers, their slots and what they may do."""

    slots: int = Field(100, ge=1)
    """Attempts that run at once in this process, but for those that are programs."""
    process_slots: int = Field(default_factory=lambda: 4 * (os.cpu_count() or 1), ge=1)
    """Programs (``command``, ``python``) that run at once; 4 a core."""
    http_allow: Annotated[tuple[IPvAnyNetwork, ...], _Listed] = ()
    """Networks that the ``http`` handler may reach although they are not public: 10.0.0.0/8,127.0.0.0/8."""
    command_enabled: bool = False
    """Whether the ``command`` handler may start programs on this machine."""
    command_inherits: Annotated[tuple[str, ...], _Listed] = ("PATH", "LANG", "LC_ALL", "TZ", "HOME", "TMPDIR")
    """The worker's variables that programs see."""
    process_cpu_seconds: int = Field(3600, ge=1)
    """Processor time that a program may take; of this and of the next four a payload's ``limits`` may ask for less."""
    process_memory_mib: int = Field(1024, ge=16)
    """Memory of a program: the data of each of its processes, and what all of them hold resident."""
    process_file_mib: int = Field(1024, ge=1)
    """The largest file that it may write."""
    process_open_files: int = Field(1024, ge=16)
    """Files that it may have open at once."""
    process_tree: int = Field(128, ge=1)
    """Processes of one program: it and all that it starts."""
    python_modules: Annotated[tuple[str, ...], _Listed] = ()
    """Modules, with what lies below them, that the ``python`` handler may call; none: it is off."""
    python_path: Annotated[tuple[_Folder, ...], _Listed] = ()
    """Folders in which those modules are looked for, before the worker's own packages."""
    sql_connections: Path | None = None
    """The TOML file that names what the ``sql`` handler may connect to; none: it is off."""
    output_bytes: int = Field(16 * 1024, ge=0)
    """How much of an attempt's output is kept."""
    drain_seconds: float = Field(10.0, ge=0)
    """How long running attempts may finish after SIGTERM or a revoked partition."""


class CaptureSettings(Installation):
    """The Debezium connector and its watchdog."""

    capture_postgres_host: str | None = None
    """How Connect reaches Postgres, where that differs from this process' way."""
    capture_postgres_port: int | None = None
    """As the host."""
    capture_heartbeat_seconds: float = Field(2.0, gt=0)
    """How often the capture shows that it is alive."""
    capture_watch_seconds: float = Field(2.0, gt=0)
    """How often the watchdog looks at the connector and its slot."""


PROCESSES: Mapping[str, type[Installation]] = MappingProxyType(
    {
        "coordinator": CoordinatorSettings,
        "streams": StreamsSettings,
        "streams.mover": ConsumerSettings,
        "streams.sink": HistorySettings,
        "streams.commands": ConsumerSettings,
        "streams.alerts": AlertSettings,
        "workers": WorkerSettings,
        "connectors": CaptureSettings,
    }
)
"""What each ``python -m`` process reads."""

# Not settings: the local stack's own, the tests' fault point, and what the command handler tells its programs.
_NEIGHBOURS = frozenset(
    {"home", "fault_point", "idempotency_key", "fencing_token", "scheduled_time", "attempt", "job_id", "job", "tenant"}
)

_Model = TypeVar("_Model", bound=Installation)


def variables_of(model: type[Installation]) -> set[str]:
    """What a process of that model reads."""
    return {PREFIX + name.upper() for name in model.model_fields}


def known_variables() -> set[str]:
    """Every variable that some process reads, and those that stand beside them."""
    return set().union(*map(variables_of, PROCESSES.values())) | {PREFIX + name.upper() for name in _NEIGHBOURS}


def read_settings(model: type[_Model], environ: Mapping[str, str]) -> _Model:
    """Build ``model`` from the environment. Raises SettingsError, naming the variable."""
    known = known_variables()
    for variable in environ:
        if variable.startswith(PREFIX) and variable not in known:
            near = difflib.get_close_matches(variable, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(f"{variable}: no such setting{hint}")
    values: dict[str, Any] = {
        name: environ[PREFIX + name.upper()] for name in model.model_fields if environ.get(PREFIX + name.upper())
    }
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SettingsError("; ".join(_explain(problem) for problem in error.errors())) from None


def _explain(problem: Any) -> str:
    where = "".join(str(part) for part in problem["loc"][:1]).upper()
    if problem["type"] == "missing":
        return f"{PREFIX}{where} is not set"
    says = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "bool_parsing":
        says = f"is {problem['input']!r}, not true or false (yes or no, on or off, 1 or 0)"
    return f"{PREFIX}{where}: {says}" if where else str(says)
