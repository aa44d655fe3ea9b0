"""The connector's configuration, from the JSON template and the settings. Pure.

The password never passes through here: Connect reads it from its own secrets file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from cronstream.settings import CaptureSettings, SettingsError

TEMPLATE = Path(__file__).parent / "capture.json"
PASSWORD_KEY = "postgres.password"  # noqa: S105 - the key's name in Connect's secrets file
_PLACEHOLDER = re.compile(r"@([A-Z_]+)@")


def connector_name(settings: CaptureSettings) -> str:
    """What Connect calls it."""
    return f"{settings.installation}-capture"


def slot_name(settings: CaptureSettings) -> str:
    """The replication slot: the installation's name in a slot's alphabet."""
    return settings.installation.replace("-", "_") + "_capture"


def connector_config(settings: CaptureSettings) -> dict[str, str]:
    """The configuration to PUT. Raises SettingsError where the settings say too little."""
    if settings.connect_secrets is None:
        raise SettingsError(
            "CRONSTREAM_CONNECT_SECRETS is not set: the file with the capture's password, as Connect sees it"
        )
    postgres = conninfo_to_dict(settings.postgres)
    host = settings.capture_postgres_host or postgres.get("host")
    database = postgres.get("dbname") or postgres.get("user")
    if not host or not database or not postgres.get("user"):
        raise SettingsError("CRONSTREAM_POSTGRES must name host, dbname and user for the capture")
    values = {
        "POSTGRES_HOST": str(host),
        "POSTGRES_PORT": str(settings.capture_postgres_port or postgres.get("port") or 5432),
        "POSTGRES_DATABASE": str(database),
        "POSTGRES_USER": str(postgres["user"]),
        "POSTGRES_PASSWORD": f"${{file:{settings.connect_secrets}:{PASSWORD_KEY}}}",
        "INSTALLATION": settings.installation,
        "SLOT": slot_name(settings),
        "TOPIC": settings.topics.changes,
        "HEARTBEAT_MS": str(round(settings.capture_heartbeat_seconds * 1000)),
    }
    template: dict[str, str] = json.loads(TEMPLATE.read_text(encoding="utf-8"))
    return {key: _PLACEHOLDER.sub(lambda match: values[match[1]], text) for key, text in template.items()}
