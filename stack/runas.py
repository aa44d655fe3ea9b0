"""Run Postgres as somebody else than root, who may not even reach the checkout.

Postgres refuses to run as root, so root hands it to the system user
``postgres``. Where the checkout lies below a folder which that user cannot
enter (a clone in /root), the process keeps one capability, to pass through
folders; where nothing is in the way, it keeps none.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

from stack.errors import StackError

USER = "postgres"
# Tried in this order: nothing, the lesser capability, the one that containers grant.
_CAPABILITIES = ("", "dac_read_search", "dac_override")


def prefix(folder: Path) -> list[str]:
    """What to put before a command so that it runs as Postgres' user and can enter ``folder``."""
    if os.geteuid() != 0:
        return []
    for capability in _CAPABILITIES:
        command = _setpriv(capability)
        # Not `test -x`: access(2) leaves capabilities out of account.
        probe = subprocess.run([*command, "stat", f"{folder}/."], capture_output=True, cwd="/", check=False)
        if probe.returncode == 0:
            return command
    raise StackError(
        f"postgres: its system user cannot enter {folder} and this machine does not let it pass. "
        "Mend: move the checkout to a folder that others may enter (chmod o+x its parents)"
    )


def own(path: Path) -> None:
    """Give a file or folder to Postgres' user, when that is not the one who runs this."""
    if os.geteuid() == 0:
        user = pwd.getpwnam(USER)
        os.chown(path, user.pw_uid, user.pw_gid)


def _setpriv(capability: str) -> list[str]:
    kept = [f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}"] if capability else []
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", *kept, "--"]
