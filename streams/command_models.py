"""Commands: what users send to the commands topic. ``python -m streams.command_models`` prints their JSON Schema.

The models say what a command looks like; what its values mean is for the database to judge, which
applies the command by the same functions that SQL users call.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter
from typing_extensions import TypeAliasType

from streams.names import SEEN

_ID = "A text of the sender's own: 1 to 200 characters that can be seen, and spaces."
_TEXT = "A text of 1 to 255 characters that can be seen, and spaces."
Id = TypeAliasType("Id", Annotated[str, Field(min_length=1, max_length=200, pattern=SEEN, description=_ID)])
Text = TypeAliasType("Text", Annotated[str, Field(min_length=1, max_length=255, pattern=SEEN, description=_TEXT)])
Handler = TypeAliasType(
    "Handler", Annotated[str, Field(description="What to do: http, command, kafka, sql, python, log.")]
)


def _says(least: float, most: float, *, above: bool = False) -> Any:
    """The bounds of a number, for whoever reads the schema: the database refuses what is out of them, in its words."""
    return Field(json_schema_extra={"exclusiveMinimum" if above else "minimum": least, "maximum": most})


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Columns(_Model):
    """Columns of a definition, as in SQL: intervals and instants as text. docs/definitions.md says what they mean."""

    cron: str | None = Field(None, description="A cron expression: '*/5 * * * *'.")
    every: str | None = Field(None, description="An interval: '90 seconds' or 'PT90S'.")
    run_at: AwareDatetime | None = None
    anchor: AwareDatetime | None = None
    timezone: str = Field("UTC", description="An IANA time zone: 'Europe/Berlin'.")
    handler: Handler | None = None
    payload: Any = Field(default_factory=dict, description="What the handler needs, as JSON.")
    starts_at: AwareDatetime | None = None
    ends_at: AwareDatetime | None = None
    enabled: bool = True
    misfire_policy: Literal["FIRE_NOW", "SKIP", "CATCH_UP"] = "FIRE_NOW"
    misfire_grace: str = Field("60 seconds", description="An interval from 0 to 1 day.")
    catch_up_limit: Annotated[int, _says(1, 10_000)] = 100
    overlap_policy: Literal["allow", "queue", "skip"] = "allow"
    dst_gap: Literal["auto", "shift", "skip"] = "auto"
    dst_overlap: Literal["auto", "first", "second", "both"] = "auto"
    spread_seconds: Annotated[int, _says(0, 86_400)] = 0
    max_attempts: Annotated[int, _says(1, 1000)] = 5
    backoff_seconds: Annotated[float, _says(0, 86_400)] = 30
    backoff_factor: Annotated[float, _says(1, 100)] = 2
    max_backoff: str = Field("1 hour", description="An interval from 0 to 24 hours.")
    jitter: Literal["full", "equal", "none"] = "full"
    timeout_seconds: Annotated[float, _says(0, 86_400, above=True)] = 300


class Definition(Columns):
    """A whole definition: what is left out takes its default, but for enabled, which stays as it is."""

    handler: Handler


class Addressed(_Model):
    """What every command has: the sender's own id, and the job by tenant and name.

    A command whose id was seen before in its tenant changes nothing and gets the same answer.
    """

    id: Id
    tenant: Text = "default"
    name: Text


class RunNow(Addressed):
    """Run the job once, now."""

    command: Literal["run-now"]


class Backfill(Addressed):
    """Run the job for every scheduled time from begins to ends, both included."""

    command: Literal["backfill"]
    begins: AwareDatetime
    ends: AwareDatetime


class Upsert(Addressed):
    """Insert the job's definition, or replace it."""

    command: Literal["upsert"]
    definition: Definition = Field(description='An object of columns: {"cron": "*/5 * * * *", "handler": "log"}.')


class Patch(Addressed):
    """Change some columns of the job's definition; null clears one."""

    command: Literal["patch"]
    changes: Columns = Field(description='An object of the columns to change: {"every": "5 minutes"}.')


class Delete(Addressed):
    """Delete the job's definition."""

    command: Literal["delete"]


class Pause(Addressed):
    """Stop the job's schedule."""

    command: Literal["pause"]


class Resume(Addressed):
    """Let the job's schedule go on from now."""

    command: Literal["resume"]


class OneShot(Addressed):
    """A job that runs once, at run_at; it replaces a definition of the same name."""

    command: Literal["one-shot"]
    run_at: AwareDatetime
    handler: Handler
    payload: Any = Field(default_factory=dict, description="What the handler needs, as JSON.")


Command = RunNow | Backfill | Upsert | Patch | Delete | Pause | Resume | OneShot
COMMANDS: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="command")])
NAMES = ("run-now", "backfill", "upsert", "patch", "delete", "pause", "resume", "one-shot")


def schema() -> str:
    """The JSON Schema of a command: docs/commands.schema.json."""
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A command", **COMMANDS.json_schema()}
    return json.dumps(made, indent=2) + "\n"


if __name__ == "__main__":
    print(schema(), end="")  # noqa: T201
