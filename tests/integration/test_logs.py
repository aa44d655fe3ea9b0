"""Whoever logs in a process of the product, a library included: the format is one."""

from __future__ import annotations

import re

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
    "w1": "workers",
    "capture": "connectors",
}


def test_every_line_of_every_process_has_one_format(installation: TestInstallation) -> None:
    # A broker that is not there makes every client library speak.
    kafka = f"127.0.0.1:1,{installation.endpoints.kafka}"
    for node, module in NODES.items():
        installation.start(module, node, kafka=installation.endpoints.kafka if module == "coordinator" else kafka)
        if node == "c1":
            eventually(lambda: "elected leader" in installation.log_of("c1"), within=60)
    for node in ("c1", "c2", "h1", "capture"):
        eventually(lambda node=node: "action=start " in installation.log_of(node), within=60)  # type: ignore[misc]
    eventually(lambda: "It waits: c1 leads" in installation.log_of("c2"), within=60)
    eventually(lambda: "action=opened" in installation.log_of("s1"), within=60)
    eventually(lambda: "action=taken_over" in installation.log_of("w1"), within=60)
    installation.end_processes()
    for node in NODES:
        lines = installation.log_of(node).splitlines()
        assert lines
        assert [line for line in lines if not LINE.fullmatch(line)] == []
        assert not any(" __main__ " in line for line in lines)
    assert "librdkafka" in installation.log_of("w1")
