"""The real servers, started once per run; tests keep apart by names and databases.

TEST_STACK=native starts them from this machine's packages and jars under
.local/test; TEST_STACK=containers starts docker-compose.yml's servers. Without
the variable: containers where Docker answers, else native. A server that does
not start fails the run; nothing is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.support import containers, native
from tests.support.endpoints import Endpoints
from tests.support.installation import TestInstallation

# No test is judged by how long it took: machines are shared.
settings.register_profile("cronstream", deadline=None)
settings.load_profile("cronstream")


def _wanted_stack() -> str:
    wanted = os.environ.get("TEST_STACK") or ("containers" if containers.docker_answers() else "native")
    if wanted not in ("native", "containers"):
        raise pytest.UsageError(f"TEST_STACK={wanted}: native or containers")
    return wanted


@pytest.fixture(scope="session")
def stack() -> Iterator[Endpoints]:
    """Postgres, etcd, Kafka and Connect, ready."""
    started = containers.started if _wanted_stack() == "containers" else native.started
    with started() as endpoints:
        yield endpoints


@pytest.fixture(scope="session")
def kafka(stack: Endpoints) -> str:
    """Bootstrap servers."""
    return stack.kafka


@pytest.fixture(scope="session")
def etcd(stack: Endpoints) -> str:
    """host:port."""
    return stack.etcd


_INSTALLATION = pytest.StashKey[TestInstallation]()


@pytest.fixture
def installation(stack: Endpoints, request: pytest.FixtureRequest) -> Iterator[TestInstallation]:
    """A fresh installation: its own name, topics and migrated database."""
    with TestInstallation.made(stack) as made:
        request.node.stash[_INSTALLATION] = made
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the last log lines of its processes."""
    report = yield
    installation = item.stash.get(_INSTALLATION, None)
    if installation is not None and report.when == "call" and report.failed:
        report.sections += [(f"log of {node}", text) for node, text in installation.last_lines().items()]
    return report


@pytest.fixture
def postgres_dsn(stack: Endpoints) -> Iterator[str]:
    """An empty database of its own: a connection string with the password in it."""
    with stack.database() as dsn:
        yield dsn
