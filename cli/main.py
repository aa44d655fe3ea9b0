"""The command's root: finds subcommands when they are called, and turns errors into one line.

Subcommands are imported on demand, because ``preview`` needs no Kafka client and
a client takes longer to import than most commands run.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from cli.errors import explain

_COMMANDS = {
    "setup": "cli.setup:setup",
    "status": "cli.status:status",
    "doctor": "cli.doctor:doctor",
    "jobs": "cli.jobs:jobs",
    "runs": "cli.runs:runs",
    "preview": "cli.preview:preview",
    "adopt-etcd": "cli.adopt:adopt_etcd",
}


class Commands(click.Group):
    """The root group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            failure = explain(error)
            if failure is None:
                raise
            raise failure from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="cronstream", prog_name="cronstream")
def cli() -> None:
    """Cron at scale, driven by change data capture.

    Servers are found by CRONSTREAM_* variables; where the environment names none, by .local/env in
    the current folder, which `make up` writes.
    """


def main() -> None:
    """The entry point."""
    cli(prog_name="cronstream")
