"""The secret files that docker-compose.yml mounts, generated once.

Containers read them under other user ids, so the files themselves are
readable and the folder that holds them is closed.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from stack.home import ROLE
from stack.paths import LOCAL
from stack.waiting import say

FOLDER = LOCAL / "compose" / "secrets"


def write(folder: Path = FOLDER) -> None:
    """Make what is missing; existing ones stay, since the databases know them."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name in ("postgres_superuser_password", "postgres_password", "status_token"):
        file = folder / name
        if not file.exists():
            file.write_text(secrets.token_hex(24))
            file.chmod(0o444)
    password = (folder / "postgres_password").read_text()
    properties = folder / "connect.properties"
    if not properties.exists():
        properties.write_text(f"postgres.user={ROLE}\npostgres.password={password}\n")
        properties.chmod(0o444)
    say(f"secrets are in {folder}; next: docker compose up --build --wait (docs/deploy.md)")
