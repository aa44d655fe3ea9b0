"""What every process shows of itself: one log format, libraries included, and its name in its group."""

from __future__ import annotations

import re

from confluent_kafka.admin import AdminClient

from tests.support.installation import TestInstallation
from tests.support.poll import eventually

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) [a-zA-Z_.\-0-9]+ \S.*|  .*"
)
NODES = {
    "c1": "coordinator",
    "c2": "coordinator",
    "s1": "streams",
    "h1": "streams.sink",
    "o1": "streams.commands",
    "w1": "workers",
    "capture": "connectors",
}


def members(admin: AdminClient, group: str) -> list[str]:
    """The client ids of a group's members."""
    described = admin.describe_consumer_groups([group], request_timeout=10)[group].result(20)
    return [member.client_id for member in described.members]


def test_every_line_of_every_process_has_one_format_and_a_name(installation: TestInstallation) -> None:
    # A broker that is not there makes every client library speak; librdkafka begins with any of the list.
    nobody = ",".join(f"127.0.0.1:{port}" for port in range(1, 10))
    kafka = f"{nobody},{installation.endpoints.kafka}"
    for node, module in NODES.items():
        installation.start(module, node, kafka=installation.endpoints.kafka if module == "coordinator" else kafka)
        if node == "c1":
            eventually(lambda: "elected leader" in installation.log_of("c1"), within=60)
    for node in ("c1", "c2", "h1", "o1", "capture"):
        eventually(lambda node=node: "action=start " in installation.log_of(node), within=60)  # type: ignore[misc]
    eventually(lambda: "It waits: c1 leads" in installation.log_of("c2"), within=60)
    eventually(lambda: "action=opened" in installation.log_of("s1"), within=60)
    eventually(lambda: "action=taken_over" in installation.log_of("w1"), within=60)
    admin = AdminClient({"bootstrap.servers": installation.endpoints.kafka})
    for group, node in (("streams", "s1"), ("history", "h1"), ("commands", "o1"), ("workers", "w1")):
        name = f"{installation.name}-{group}"
        eventually(lambda name=name, node=node: members(admin, name) == [node], within=60)  # type: ignore[misc]
    installation.end_processes()
    for node in NODES:
        lines = installation.log_of(node).splitlines()
        assert lines
        assert [line for line in lines if not LINE.fullmatch(line)] == []
        assert not any(" __main__ " in line for line in lines)
    assert "librdkafka" in installation.log_of("w1")
