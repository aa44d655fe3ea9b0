"""Settings of the product's processes on this machine: a file, and the shell that runs `make up`.

    .local/settings      KEY=value lines, # comments; made with an example by the first `make up`
    the shell            CRONSTREAM_COMMAND_ENABLED=false make up

One that both name with different values is refused, so there is no order of
precedence to remember. Addresses, names and folders are the stack's own.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from stack.errors import StackError
from stack.home import Home, parse_env
from stack.paths import CHECKOUT, DEFAULT_HOME, LOCAL, VENV_PYTHON

PREFIX = "CRONSTREAM_"
SHARED = (f"{PREFIX}INSTALLATION", f"{PREFIX}PARTITIONS")
"""What commands must know as well: goes into the env file."""

EXAMPLE = """\
# Settings of the processes that `make up` starts, one KEY=value a line. `make up` reads this file each
# time and restarts those processes whose settings changed. docs/settings.md lists all.

# Whether workers may run the handler `command`: programs on this machine (default: false).
#CRONSTREAM_COMMAND_ENABLED=true

# Networks that the handler `http` may reach although they are not public (here: this machine).
#CRONSTREAM_HTTP_ALLOW=127.0.0.0/8,::1/128

# Attempts that one worker runs at once (default: 100); programs (`command`, `python`) have slots of their own.
#CRONSTREAM_SLOTS=100

# DEBUG, INFO, WARNING or ERROR (default: INFO).
#CRONSTREAM_LOG_LEVEL=INFO
"""

_CHECK = """\
import os, sys
from cronstream import settings
from workers.handlers.sql_connections import read_connections
try:
    for model in settings.PROCESSES.values():
        settings.read_settings(model, os.environ)
    read_connections(settings.read_settings(settings.WorkerSettings, os.environ).sql_connections)
except settings.SettingsError as error:
    sys.exit(str(error))
"""

_HEARD = """\
import json
from cronstream.settings import PROCESSES, variables_of
print(json.dumps({module: sorted(variables_of(model)) for module, model in PROCESSES.items()}))
"""


def file_of(home: Home) -> Path:
    """Where that home's settings are; the usual one's outlive its data."""
    return (LOCAL if home.path == DEFAULT_HOME.resolve() else home.path) / "settings"


def make_example(home: Home) -> None:
    """The file with an example in comments, unless there is one."""
    file = file_of(home)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(EXAMPLE)


def read(home: Home, shell: Mapping[str, str] | None = None) -> dict[str, str]:
    """The file's settings. Raises StackError for what is no setting, is the stack's, or is another in the shell."""
    file = file_of(home)
    if not file.exists():
        return {}
    text, shell, own = file.read_text(), os.environ if shell is None else shell, stacks_own(home)
    said: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        name, equals, value = written.partition("=")
        if not (name.startswith(PREFIX) and equals) or value.startswith('"'):
            raise StackError(f"{file}:{number}: not a line like {PREFIX}SLOTS=100: {written}")
        if name in said:
            raise StackError(f"{file}:{number}: {name} stands in line {said[name]} already: say it once")
        said[name] = number
    chosen = parse_env(text)
    for name, value in chosen.items():
        if name in own:
            raise StackError(f"{file}: {name} is the stack's own and not to be set")
        if shell.get(name, value) != value:
            raise StackError(f"{name} is {shell[name]} in the environment and {value} in {file}: say it in one place")
    return chosen


def stacks_own(home: Home) -> frozenset[str]:
    """What differs by home and process, so that nobody else may set it."""
    return frozenset(home.environment()) | {f"{PREFIX}NODE", f"{PREFIX}DATA_DIR", f"{PREFIX}STATUS_PORT"}


def unheard(home: Home, shell: Mapping[str, str] | None = None) -> list[str]:
    """The shell's variables that no process hears of, since the stack has its own."""
    shell, own = os.environ if shell is None else shell, home.environment()
    return sorted(name for name in stacks_own(home) if name in shell and shell[name] != own.get(name))


def check(environment: Mapping[str, str]) -> None:
    """Whether every process would take them, asked before any is stopped. Raises StackError."""
    _ask_the_product(_CHECK, environment)


def heard(module: str) -> frozenset[str]:
    """The variables that the product's process of that module reads."""
    return _heard()[module]


@cache
def _heard() -> Mapping[str, frozenset[str]]:
    by_module: dict[str, list[str]] = json.loads(_ask_the_product(_HEARD, {}))
    return {module: frozenset(names) for module, names in by_module.items()}


def _ask_the_product(script: str, environment: Mapping[str, str]) -> str:
    """What a script prints that imports the product, as the stack itself never does. Raises StackError."""
    asked = subprocess.run(
        [str(VENV_PYTHON), "-c", script],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        raise StackError(f"settings: {asked.stderr.strip()}")
    return asked.stdout


def shared(home: Home, shell: Mapping[str, str] | None = None) -> dict[str, str]:
    """The part that commands need to find the installation, from the file or the shell."""
    shell = os.environ if shell is None else shell
    chosen = {**shell, **read(home, shell)}
    return {name: chosen[name] for name in SHARED if name in chosen}
