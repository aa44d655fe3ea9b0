"""The stack from this machine's packages and jars, fresh for each run, under .local/test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack import servers
from stack.home import Home
from tests.support.endpoints import Endpoints


@contextmanager
def started() -> Iterator[Endpoints]:
    """Up, then down; TEST_KEEP=1 leaves the servers running for the next run."""
    home = Home(Path(os.environ.get("TEST_HOME", ".local/test")))
    keep = os.environ.get("TEST_KEEP") == "1"
    if not keep:
        servers.down(home, wipe=True)
    servers.up(home, quiet=True)
    variables = home.environment()
    postgres = variables["CRONSTREAM_POSTGRES"].replace("dbname=cronstream ", "")
    try:
        yield Endpoints(
            kafka=variables["CRONSTREAM_KAFKA"],
            etcd=variables["CRONSTREAM_ETCD"],
            connect=variables["CRONSTREAM_CONNECT"],
            postgres=postgres,
            password_file=home.password_file,
            connect_secrets=variables["CRONSTREAM_CONNECT_SECRETS"],
            capture_host=None,
            capture_port=None,
            kill=lambda name: servers.kill(home, name),
            start=lambda name: servers.start(home, name),
        )
    finally:
        if not keep:
            servers.down(home)
