"""Debian packages, without letting their services start.

Debian starts a server when its package is installed. The developer asked for
the programs only, and a system Postgres on 5432 would be a surprise; so for
the time of the installation a policy denies service starts and no default
cluster is made. Neither file is touched where the machine has one already.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from stack.errors import StackError
from stack.waiting import Stopwatch, say

POLICY = Path("/usr/sbin/policy-rc.d")
NO_CLUSTER = Path("/etc/postgresql-common/createcluster.d/cronstream-install.conf")


class RunLogged(Protocol):
    """install.run_logged, handed in."""

    def __call__(
        self, step: str, argv: Sequence[str], mend: str, environment: Mapping[str, str] | None = None, attempts: int = 1
    ) -> None: ...


def install_packages(packages: Sequence[str], run_logged: RunLogged) -> None:
    """Install what is missing with apt-get. Raises StackError where that cannot be done."""
    names = " ".join(packages)
    by_hand = f"sudo apt-get install {names}"
    if shutil.which("apt-get") is None:
        raise StackError(f"system packages: {names} missing and no apt-get here. Mend: install them by hand")
    if os.geteuid() != 0:
        raise StackError(f"system packages: {names} missing, and only root may install. Mend: {by_hand}")
    watch = Stopwatch()
    say(f"  system packages: installing {names}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    mend = f"see that the Debian mirror can be reached, or run it by hand: {by_hand}"
    run_logged("package lists", ["apt-get", "update", "-q"], mend, quiet, attempts=2)
    with no_services_started():
        argv = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
        run_logged("system packages", argv, mend, quiet, attempts=2)
    say(f"  system packages: ready ({watch.seconds:.0f} s)")


@contextmanager
def no_services_started() -> Iterator[None]:
    ours = [(POLICY, "#!/bin/sh\nexit 101\n", 0o755), (NO_CLUSTER, "create_main_cluster = false\n", 0o644)]
    written = []
    try:
        for file, text, mode in ours:
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
                file.chmod(mode)
                written.append(file)
        yield
    finally:
        for file in written:
            file.unlink(missing_ok=True)
